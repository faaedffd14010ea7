"""From configs to ModelSpec: what is read, what is defaulted, what is refused and by which name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import KvadviseError, NoKvCache, NotUnderstood
from advisor.facts import ModelFacts
from advisor.model.architectures import ARCHITECTURES, NESTED
from advisor.model.dtypes import auto_dtype
from advisor.model.quantization import read_quantization
from advisor.model.read import read_model
from advisor.model.spec import AttentionCache, IndexerCache, MlaCache, ModelSpec, StateCache
from advisor.versions import DEFAULT, Version
from kvadvise.catalogue import find_facts, list_models
from kvadvise.surroundings import Surroundings

NOW = Version(0, 32, 0)
NOWHERE = Surroundings(env={}, cwd=Path("/"), home=Path("/nonexistent"))
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


def read(config: dict[str, Any], version: Version = NOW) -> ModelSpec:
    return read_model(ModelFacts(id="test", config=config), version)


def known(name: str) -> ModelSpec:
    facts = find_facts(name, NOWHERE)
    assert facts is not None
    return read_model(facts, NOW)


def kinds(model: ModelSpec) -> dict[str, int]:
    """How many caches of each kind a model keeps."""
    counts: dict[str, int] = {}
    for layer in model.layers:
        for cache in layer.caches:
            name = cache.kind if isinstance(cache, AttentionCache | StateCache) else type(cache).__name__
            counts[name] = counts.get(name, 0) + 1
    return counts


# counts of layers: vllm-facts 2.4, layout-by-version, model cards
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", {"full": 32}),
        ("google/gemma-2-9b", {"sliding": 21, "full": 21}),
        ("google/gemma-3-27b-it", {"sliding": 52, "full": 10}),
        ("google/gemma-3n-E4B-it", {"sliding": 16, "full": 4}),
        ("google/gemma-4-31B", {"sliding": 50, "full": 10}),
        ("openai/gpt-oss-20b", {"sliding": 12, "full": 12}),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", {"chunked": 36, "full": 12}),
        ("mistralai/Mistral-7B-v0.1", {"sliding": 32}),
        ("deepseek-ai/DeepSeek-V3", {"MlaCache": 61}),
        ("deepseek-ai/DeepSeek-V3.2", {"IndexerCache": 61, "MlaCache": 61}),
        ("zai-org/GLM-5.2", {"IndexerCache": 21, "MlaCache": 78}),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"gdn": 36, "full": 12}),
        ("nvidia/Nemotron-H-56B-Base-8K", {"mamba2": 54, "full": 10}),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"mamba2": 23, "full": 6}),
        ("LiquidAI/LFM2-1.2B", {"short_conv": 10, "full": 6}),
        ("openai/whisper-tiny", {"full": 4, "cross": 4}),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", {"full": 49}),
        ("MiniMaxAI/MiniMax-M1-80k", {"linear": 70, "full": 10}),
        ("tiiuae/Falcon-H1-0.5B-Instruct", {"full": 36, "mamba2": 36}),
        ("Zyphra/Zamba2-2.7B", {"full": 9, "mamba2": 54}),
    ],
)
def test_kinds_of_layers(name: str, expected: dict[str, int]) -> None:
    assert kinds(known(name)) == expected


@pytest.mark.parametrize(
    ("name", "heads", "kv", "size"),
    [
        ("tiiuae/falcon-7b", 71, 1, 64),
        ("bigcode/gpt_bigcode-santacoder", 16, 1, 128),
        ("THUDM/chatglm3-6b", 32, 2, 128),
        ("google/gemma-2b", 8, 1, 256),
        ("Qwen/Qwen3-0.6B", 16, 8, 128),
        ("google/gemma-3-4b-it", 8, 4, 256),
        ("openai-community/gpt2-medium", 16, 16, 64),
        ("mistralai/Mistral-Nemo-Instruct-2407", 32, 8, 128),
    ],
)
def test_heads(name: str, heads: int, kv: int, size: int) -> None:
    model = known(name)
    assert (model.num_heads, model.num_kv_heads, model.head_size) == (heads, kv, size)


# derived lengths: vLLM's own answers without a max_model_len, and the YaRN change at 0.30
@pytest.mark.parametrize(
    ("change", "version", "expected"),
    [
        ({}, NOW, 8192),
        ({"max_position_embeddings": None}, NOW, 2048),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, NOW, 32768),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, NOW, 16384),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, NOW, 8192),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "max_position_embeddings": 32768}, NOW, 32768),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
            Version(0, 29, 0),
            131072,
        ),
        ({"model_max_length": 4096}, NOW, 4096),
        ({"n_positions": 1024}, NOW, 1024),
    ],
)
def test_longest_sequence(change: dict[str, Any], version: Version, expected: int) -> None:
    config = {key: value for key, value in {**LLAMA, **change}.items() if value is not None}
    assert read(config, version).max_length.tokens == expected


def test_longrope_starts_at_the_length_it_was_trained_on() -> None:
    config = {
        **LLAMA,
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]},
    }
    model = read(config)
    assert (model.default_max_model_len, model.max_length.tokens) == (4096, 131072)


def test_the_tokenizer_can_say_less() -> None:
    facts = ModelFacts(id="test", config=LLAMA, model_max_length=2048)
    assert read_model(facts, NOW).max_length.tokens == 2048


@pytest.mark.parametrize(
    ("stated", "has_bf16", "expected"),
    [
        ("bfloat16", True, "bfloat16"),
        ("float16", True, "float16"),
        ("float32", True, "bfloat16"),
        (None, True, "bfloat16"),
        ("bfloat16", False, "float16"),
        ("float32", False, "float16"),
    ],
)
def test_dtype_auto(stated: str | None, has_bf16: bool, expected: str) -> None:
    assert auto_dtype(stated, has_bf16=has_bf16) == expected


@pytest.mark.parametrize(
    ("config", "method", "kv"),
    [
        ({}, None, None),
        ({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}, "awq", None),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, "fp8", None),
        (
            {"quantization_config": {"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8}}},
            "compressed-tensors",
            "fp8",
        ),
        (
            {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}},
            "modelopt_fp4",
            "fp8_e4m3",
        ),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, "modelopt", None),
    ],
)
def test_quantisation_of_the_checkpoint(config: dict[str, Any], method: str | None, kv: str | None) -> None:
    found = read_quantization(config, config)
    assert (found.method, found.kv.dtype) == (method, kv)


def test_hf_quant_config_counts_beside_the_config() -> None:
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    assert read_quantization({}, {}, beside).kv.dtype == "fp8_e4m3"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"architectures": ["NoSuchForCausalLM"]}, "NoSuchForCausalLM"),
        ({"architectures": None}, "architectures"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_attention_heads": None}, "num_attention_heads"),
        ({"hidden_size": None}, "hidden_size"),
        ({"vocab_size": None}, "vocab_size"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"num_hidden_layers": -1}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_attention_heads": 31}, "num_key_value_heads"),
        ({"num_attention_heads": "many"}, "num_attention_heads"),
        ({"layer_types": ["full_attention"] * 31 + ["quantum_attention"]}, "quantum_attention"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 32}, "sliding_window"),
        ({"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h"}, "hybrid_override_pattern"),
        ({"architectures": ["GraniteMoeHybridForCausalLM"]}, "layer_types"),
        ({"architectures": ["LlavaForConditionalGeneration"]}, "model_type"),
    ],
)
def test_what_is_not_understood_is_named(change: dict[str, Any], named: str) -> None:
    config = {key: value for key, value in {**LLAMA, **change}.items() if value is not None}
    if "LlavaForConditionalGeneration" in config["architectures"] if "architectures" in config else False:
        config["text_config"] = {"model_type": "no_such_text", "hidden_size": 64}
    with pytest.raises(NotUnderstood) as caught:
        read(config)
    assert named in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("name", ["BertModel", "XLMRobertaModel", "Qwen2ForRewardModel", "MistralModel"])
def test_models_that_generate_nothing_say_so(name: str) -> None:
    with pytest.raises(NoKvCache, match="KV plan does not apply"):
        read({**LLAMA, "architectures": [name]})


def test_a_missing_inner_size_takes_the_class_default_only_inside() -> None:
    text = {key: value for key, value in LLAMA.items() if key not in ("architectures", "num_attention_heads")}
    nested = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "text_config": text}
    assert read(nested).num_heads == 32
    with pytest.raises(NotUnderstood):
        read({**text, "architectures": ["LlamaForCausalLM"]})


@pytest.mark.parametrize(
    ("wrapper", "model_type", "plain"),
    [
        ("Mistral3ForConditionalGeneration", "mistral3", "MistralForCausalLM"),
        ("LlavaForConditionalGeneration", "llava", "LlamaForCausalLM"),
        ("LlavaOnevisionForConditionalGeneration", "llava_onevision", "Qwen2ForCausalLM"),
        ("Cohere2VisionForConditionalGeneration", "cohere2_vision", "Cohere2ForCausalLM"),
        ("Qwen3VLForConditionalGeneration", "qwen3_vl", "Qwen3ForCausalLM"),
    ],
)
def test_an_unnamed_text_model_is_the_wrappers_own(wrapper: str, model_type: str, plain: str) -> None:
    text = {
        "hidden_size": 5120,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 4096,
        "vocab_size": 131072,
        "max_position_embeddings": 131072,
    }
    wrapped = {"architectures": [wrapper], "model_type": model_type, "text_config": text}
    inner = read_model(ModelFacts(id="wrapped", config=wrapped), DEFAULT)
    outer = read_model(ModelFacts(id="plain", config={"architectures": [plain], **text}), DEFAULT)
    assert inner.layers == outer.layers


def test_every_complete_catalogue_entry_is_read_or_refused_by_name() -> None:
    rows = [row for row in list_models(NOWHERE) if row.completeness == "complete"]
    assert len(rows) >= 100
    refused = {}
    for row in rows:
        try:
            model = known(row.id)
        except KvadviseError as error:
            refused[row.id] = str(error)
            continue
        assert model.num_layers > 0
        assert model.max_length.tokens > 0
    assert all("KV plan does not apply" in text for text in refused.values()), refused


def test_the_table_of_architectures_is_reachable() -> None:
    assert not NESTED & ARCHITECTURES.keys()
    assert len(ARCHITECTURES) >= 150


@given(
    key=st.sampled_from(sorted(LLAMA)),
    value=st.one_of(
        st.none(), st.booleans(), st.integers(-5, 1 << 45), st.floats(), st.text(max_size=8), st.lists(st.integers())
    ),
)
def test_a_mutated_config_is_read_or_refused(key: str, value: Any) -> None:
    try:
        model = read({**LLAMA, key: value})
    except KvadviseError:
        return
    assert model.num_layers >= 1
    assert all(isinstance(c, AttentionCache | MlaCache | IndexerCache) for layer in model.layers for c in layer.caches)
