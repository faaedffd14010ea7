"""The catalogue: equal to its sources, quick to look up, and open to what the user adds."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.facts import ModelFacts, WeightFacts
from kvadvise.catalogue import add_model, bundled_models, find_facts, list_models, model_ids, nearest_ids
from kvadvise.catalogue_entry import Entry, entry_text, key_patterns, make_entry, parse_entry, read_entry, reduce_config
from kvadvise.compact import NAME_LISTS, expand_names, name_patterns, pack, unpack
from tests.kvadvise.model_fixtures import LLAMA, surroundings, write_json, write_safetensors
from tests.kvadvise.published_shapes import PUBLISHED

SHARED = Path(os.environ.get("KVADVISE_SHARED", Path(__file__).parents[3] / "shared"))
FILES = sorted(bundled_models().glob("*/*.yaml"))
MINIMAL = "id: me/mine\nsource: my own\ncompleteness: complete\nconfig: {model_type: llama}\n"


def ids_of(files: list[Path]) -> list[str]:
    return [f"{file.parent.name}/{file.stem}" for file in files]


def comparable(value: Any, key: str = "") -> Any:
    """The value with lists of module names in a fixed order: only membership has a meaning there."""
    if isinstance(value, dict):
        return {k: comparable(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return sorted(value) if key in NAME_LISTS else [comparable(item) for item in value]
    return value


def as_json(value: Any) -> str:
    """Text in which 1, 1.0 and true differ."""
    return json.dumps(comparable(value), sort_keys=True)


# --- what is bundled


def test_there_are_enough_models() -> None:
    assert len(FILES) >= 250
    assert sum(path.stat().st_size for path in bundled_models().rglob("*.yaml")) < 1_500_000


@pytest.mark.parametrize("file", FILES, ids=ids_of(FILES))
def test_every_entry_is_sound(file: Path) -> None:
    entry = read_entry(file)
    assert entry.id == f"{file.parent.name}/{file.stem}"
    assert entry.config.get("model_type") or entry.completeness == "partial"
    assert 10 <= len(entry.source) <= 200
    weights = entry.weights
    assert (weights.total_bytes is None) == (weights.source == "")
    assert weights.total_bytes is None or 10**7 < weights.total_bytes < 10**13
    assert bool(entry.base_model) == bool(entry.base_config)
    assert not set(entry.base_config) & set(entry.config) - {"text_config"}
    assert reduce_config(entry.config) == entry.config


def test_no_entry_tells_where_it_was_made() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in FILES)
    assert not re.search(r"(?<![\w.*])/\w+/|https?:|\bid \d{5}", text)


def test_published_totals_are_kept(tmp_path: Path) -> None:
    for model_id, (total, n_parameters) in PUBLISHED.items():
        facts = find_facts(model_id, surroundings(tmp_path))
        assert facts is not None
        assert facts.weights is not None
        assert facts.weights.total_bytes == total
        assert facts.weights.basis == "catalogue"
        if n_parameters is not None:
            assert facts.weights.num_parameters == n_parameters


def test_packed_weights_are_not_multiplied(tmp_path: Path) -> None:
    """A parameter count of a 4-bit checkpoint may count packed elements: no total is made of it."""
    for row in list_models(surroundings(tmp_path)):
        if re.search(r"AWQ|GPTQ|NVFP4|FP4", row.id) and row.total_bytes and row.num_parameters:
            assert row.total_bytes < row.num_parameters, row.id


@pytest.mark.parametrize(
    ("model_id", "intermediate_size"),
    [
        ("Qwen/Qwen2.5-32B-Instruct-AWQ", 27648),
        ("meta-llama/Llama-3.1-8B-Instruct", 14336),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 6144),
    ],
)
def test_missing_sizes_come_from_the_same_sizes(tmp_path: Path, model_id: str, intermediate_size: int) -> None:
    facts = find_facts(model_id, surroundings(tmp_path))
    assert facts is not None
    assert facts.config["intermediate_size"] == intermediate_size
    assert facts.notes[0].startswith("partial config: ")
    assert "intermediate_size" in facts.notes[1]
    assert "same sizes and number of parameters" in facts.notes[1]


def test_another_parameter_count_lends_nothing(tmp_path: Path) -> None:
    """The 72B's quantised sibling has padded matrices, so its 257 million more parameters are its own."""
    entry = read_entry(bundled_models() / "Qwen" / "Qwen2.5-72B-Instruct-AWQ.yaml")
    assert entry.base_model == ""
    assert "intermediate_size" not in entry.config


def shared_configs() -> Iterator[Path]:
    if not (SHARED / "configs").is_dir():
        pytest.skip(f"no configs to compare with: {SHARED / 'configs'} is not there (KVADVISE_SHARED)")
    yield from sorted((SHARED / "configs").glob("*__*/config.json"))


def test_equal_to_the_sources() -> None:
    """Every kept key of every config has the value it has in the source, at every depth."""
    n_compared = 0
    for file in shared_configs():
        org, name = file.parent.name.split("__", 1)
        entry = read_entry(bundled_models() / org / f"{name}.yaml")
        original = json.loads(file.read_text(encoding="utf-8"))
        assert as_json(entry.config) == as_json(reduce_config(original)), file
        quant_file = file.parent / "hf_quant_config.json"
        quant = json.loads(quant_file.read_text(encoding="utf-8")) if quant_file.exists() else None
        assert as_json(entry.quant_config) == as_json(quant), file
        n_compared += 1
    assert n_compared >= 250


def test_dropped_keys_carry_no_size() -> None:
    """A pattern that would drop a size, a length, a layer kind or a quantisation is a mistake."""
    needed = [
        "architectures",
        "model_type",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
        "intermediate_size",
        "moe_intermediate_size",
        "num_experts",
        "n_routed_experts",
        "n_shared_experts",
        "layer_types",
        "layers_block_type",
        "hybrid_override_pattern",
        "attn_type_list",
        "block_configs",
        "sliding_window",
        "sliding_window_pattern",
        "max_window_layers",
        "use_sliding_window",
        "attention_chunk_size",
        "max_position_embeddings",
        "rope_scaling",
        "rope_parameters",
        "rope_theta",
        "kv_lora_rank",
        "q_lora_rank",
        "qk_rope_head_dim",
        "v_head_dim",
        "index_head_dim",
        "index_topk",
        "compress_ratios",
        "conv_L_cache",
        "conv_kernel",
        "ssm_state_size",
        "mamba_num_heads",
        "mamba_head_dim",
        "n_groups",
        "time_step_rank",
        "expand",
        "chunk_size",
        "linear_num_key_heads",
        "linear_conv_kernel_dim",
        "mamba_ssm_dtype",
        "tie_word_embeddings",
        "attention_bias",
        "mlp_bias",
        "torch_dtype",
        "dtype",
        "quantization_config",
        "kv_cache_scheme",
        "quant_method",
        "bits",
        "group_size",
        "ignore",
        "exclude_modules",
        "targets",
        "modules_to_not_convert",
        "quantized_layers",
        "text_config",
        "vision_config",
        "audio_config",
        "auto_map",
        "model_max_length",
        "num_nextn_predict_layers",
        "num_kv_shared_layers",
        "attn_logit_softcapping",
        "is_encoder_decoder",
        "multi_query",
        "alibi",
        "parallel_attn",
        "new_decoder_architecture",
        "position_embedding_type",
        "hidden_act",
        "id2label",
        "attn_config",
        "multi_query_group_num",
        "seq_length",
        "n_positions",
    ]
    patterns = key_patterns("dropped")
    assert [key for key in needed if any(fnmatchcase(key, pattern) for pattern in patterns)] == []


# --- looking up


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "qwen/qwen3-8b", "Qwen3-8B", "qwen3-8b"])
def test_names_are_forgiving(tmp_path: Path, name: str) -> None:
    facts = find_facts(name, surroundings(tmp_path))
    assert facts is not None
    assert (facts.id, facts.resolved_from) == ("Qwen/Qwen3-8B", "catalogue")


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B-Instruct"),
        ("meta-llama/llama-3.1-8B", "meta-llama/llama-3.1-8B"),
        ("gpt2-medium", "openai-community/gpt2-medium"),
    ],
)
def test_renamed_repositories(tmp_path: Path, name: str, called: str) -> None:
    """vLLM is given the name that was asked for; the hub knows it under both."""
    facts = find_facts(name, surroundings(tmp_path))
    assert facts is not None
    assert facts.id == called


def test_every_alias_leads_somewhere() -> None:
    aliases = yaml.safe_load((bundled_models() / "_aliases.yaml").read_text(encoding="utf-8"))
    assert {name for name in aliases.values() if not (bundled_models() / f"{name}.yaml").is_file()} == set()
    assert {name for name in aliases if (bundled_models() / f"{name}.yaml").is_file()} == set()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "a/b/c",
        "../models/Qwen/Qwen3-8B",
        "Qwen/../Qwen/Qwen3-8B",
        "_keys",
        "Qwen/",
        "/Qwen3-8B",
        "x\0y",
        "é" * 300,
    ],
)
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    assert find_facts(name, surroundings(tmp_path)) is None


def test_a_lookup_takes_milliseconds(tmp_path: Path) -> None:
    """The largest entry stands for 6,000 module names."""
    around = surroundings(tmp_path)
    for name, limit_s in (("Qwen/Qwen3-8B", 0.003), ("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4", 0.010)):
        took_s = []
        for _ in range(20):
            started = time.perf_counter()
            assert find_facts(name, around) is not None
            took_s.append(time.perf_counter() - started)
        assert min(took_s) < limit_s


def test_nearest_names(tmp_path: Path) -> None:
    around = surroundings(tmp_path)
    assert nearest_ids("Qwen/Qwen2.5-7B-Instrct", around)[0] == "Qwen/Qwen2.5-7B-Instruct"
    assert nearest_ids("llama-3.1-8b-instuct", around)[0] == "meta-llama/Llama-3.1-8B-Instruct"
    assert nearest_ids("zzzzzz", around) == []


def test_listing(tmp_path: Path) -> None:
    around = surroundings(tmp_path)
    rows = list_models(around)
    assert [row.id for row in rows] == model_ids(around) == sorted((row.id for row in rows), key=str.casefold)
    by_id = {row.id: row for row in rows}
    row = by_id["Qwen/Qwen3-8B"]
    assert (row.architecture, row.completeness, row.origin) == ("Qwen3ForCausalLM", "complete", "bundled")
    assert row.total_bytes == 2 * 8_190_735_360
    assert row.source.startswith("copy in ")


# --- what the user adds


def test_add_a_directory(tmp_path: Path) -> None:
    around = surroundings(tmp_path)
    config = {**LLAMA, "bos_token_id": 1, "torch_dtype": "bfloat16", "layer_types": ["full_attention"] * 12}
    write_json(around.cwd / "mine" / "config.json", config)
    write_json(around.cwd / "mine" / "tokenizer_config.json", {"model_max_length": 4096})
    write_safetensors(around.cwd / "mine" / "model.safetensors", {"w": ("BF16", (10, 10))})
    path = add_model("./mine", around=around)
    assert path == around.home / ".config" / "kvadvise" / "models" / "local" / "mine.yaml"
    facts = find_facts("local/mine", around)
    assert facts is not None
    assert facts.config == {k: v for k, v in config.items() if k != "bos_token_id"}
    assert facts.model_max_length == 4096
    assert facts.weights == WeightFacts(
        total_bytes=200, basis="catalogue", source="safetensors headers of 1 file", num_parameters=100
    )
    assert facts.notes == ()
    assert [row.origin for row in list_models(around) if row.id == "local/mine"] == ["user"]


def test_add_to_a_file(tmp_path: Path) -> None:
    around = surroundings(tmp_path)
    write_json(around.cwd / "mine" / "config.json", LLAMA)
    out = tmp_path / "deep" / "entry.yaml"
    assert add_model("mine", out, around=around) == out
    assert read_entry(out).config == LLAMA
    assert list(out.parent.iterdir()) == [out]


def test_add_where_nothing_can_be_written(tmp_path: Path) -> None:
    around = surroundings(tmp_path)
    write_json(around.cwd / "mine" / "config.json", LLAMA)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot be written"):
        add_model("mine", tmp_path / "file" / "entry.yaml", around=around)


def test_own_entries_come_first(tmp_path: Path) -> None:
    around = surroundings(tmp_path, XDG_CONFIG_HOME=str(tmp_path / "conf"))
    own = tmp_path / "conf" / "kvadvise" / "models" / "Qwen" / "Qwen3-8B.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(MINIMAL.replace("me/mine", "Qwen/Qwen3-8B"))
    facts = find_facts("Qwen/Qwen3-8B", around)
    assert facts is not None
    assert facts.config == {"model_type": "llama"}
    assert len([row for row in list_models(around) if row.id == "Qwen/Qwen3-8B"]) == 1


def test_a_made_entry_reads_back() -> None:
    facts = ModelFacts(
        id="a/b",
        config={"model_type": "x", "layer_types": ["a", "b"] * 20, "rope_theta": 1e6, "pad_token_id": 0, "n": 3},
        quant_config={"quantization": {"exclude_modules": [f"model.layers.{i}.mlp.gate" for i in range(40)]}},
        weights=WeightFacts(total_bytes=5, basis="index", source="total_size"),
        source="somewhere",
    )
    text = make_entry(facts)
    assert len(text) < 600
    entry = parse_entry(text.encode(), "x")
    assert entry.config == {k: v for k, v in facts.config.items() if k != "pad_token_id"}
    assert entry.quant_config == facts.quant_config
    assert entry_text(entry) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a catalogue entry"),
        ("[]", "not a catalogue entry"),
        ("id: a/b\n", "missing required field `source`"),
        (MINIMAL + "confg: {}\n", "confg"),
        (MINIMAL.replace("complete\n", "half\n"), "half"),
        (MINIMAL + "weights: {total_bytes: many}\n", "total_bytes"),
        (MINIMAL.replace("{model_type: llama}", "7"), "config"),
        (MINIMAL.replace("llama", "{$runs: 3}"), "broken $runs"),
        (MINIMAL.replace("llama", "{$runs: [[4000000, x]]}"), "longer than any list"),
        (MINIMAL.replace("llama", "{$names: ['{0-99999999}']}"), "longer than any list"),
        (MINIMAL.replace("llama", "{$names: ['{0-99999}.{0-99999}']}"), "longer than any list"),
        (MINIMAL.replace("llama", "{$pick: {of: [], order: [3]}}"), "broken $pick"),
        (MINIMAL.replace("{model_type: llama}", "{a: &x [1], b: *x}"), "alias"),
        ("id: [", "not valid YAML"),
        ("id: a\n  b: c: d\n", "not valid YAML"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("config: " + "[" * 3000, ""),
        ("x" * 1_100_000, "bytes long"),
        ("\x00", "not valid YAML"),
    ],
)
def test_broken_entries(text: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_entry(text.encode(), "mine.yaml")
    assert said in str(caught.value)
    assert caught.value.where.startswith("mine.yaml")


# --- the short spellings


WORDS = st.sampled_from(["lm_head", "model", "q_proj", "k_proj", "up*", "0", "1", "2", "3", "10", "007", "attn"])
NAMES = st.lists(st.lists(WORDS, min_size=1, max_size=4).map(".".join), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=40,
)


@given(names=NAMES)
def test_names_survive(names: list[str]) -> None:
    expanded = [name for pattern in name_patterns(names) for name in expand_names(pattern)]
    assert sorted(expanded) == sorted(names)


@given(names=NAMES, value=JSON)
def test_packing_is_undone(names: list[str], value: Any) -> None:
    config = {"ignore": names, "x": value, "quantized_layers": {name: {"bits": len(name) % 3} for name in names}}
    assert as_json(unpack(pack(config))) == as_json(config)


@given(
    stretch=st.lists(st.sampled_from("ab"), min_size=1, max_size=5),
    times=st.integers(1, 20),
    rest=st.lists(st.sampled_from("abc")),
)
def test_patterns_are_found(stretch: list[str], times: int, rest: list[str]) -> None:
    layers = stretch * times + rest
    packed = pack(layers)
    assert unpack(packed) == layers
    assert len(json.dumps(packed)) <= len(json.dumps(layers))


def test_one_true_and_one_are_three_things() -> None:
    layers = [1, True, 1.0] * 5
    assert as_json(unpack(pack(layers))) == as_json(layers)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a", ["a"]),
        ("a.{0-2}", ["a.0", "a.1", "a.2"]),
        ("{a,b}.{1,3}", ["a.1", "a.3", "b.1", "b.3"]),
        ("re:.*mlp$", ["re:.*mlp$"]),
    ],
)
def test_braces(pattern: str, names: list[str]) -> None:
    assert expand_names(pattern) == names


def test_a_key_with_a_meaning_is_refused() -> None:
    with pytest.raises(ValueError, match="meaning of its own"):
        entry_text(Entry(id="a/b", source="s", completeness="complete", config={"x": {"$runs": 1}}))
