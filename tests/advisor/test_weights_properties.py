"""What must hold for any model: ranks share, stages cover, quantisation shrinks, nonsense is refused."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.errors import KvadviseError
from advisor.weights import weight_bytes
from advisor.weights.blueprint import stage_bounds
from tests.advisor.test_weights_answers import catalogue_facts, layout_rows

KNOWN = [
    "Qwen/Qwen3-30B-A3B",
    "deepseek-ai/DeepSeek-V3",
    "meta-llama/Llama-3.1-8B-Instruct",
    "google/gemma-3-27b-it",
    "openai/gpt-oss-20b",
    "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "Qwen/Qwen3-VL-8B-Instruct",
]


@st.composite
def decoders(draw: st.DrawFn) -> dict[str, Any]:
    """A Llama or a Qwen3 mixture of any size whose heads divide by 8."""
    keys = draw(st.sampled_from([8, 16, 32]))
    config = {
        "hidden_size": 128 * draw(st.integers(1, 64)),
        "intermediate_size": 128 * draw(st.integers(1, 200)),
        "num_hidden_layers": draw(st.integers(1, 80)),
        "num_attention_heads": keys * draw(st.integers(1, 8)),
        "num_key_value_heads": keys,
        "head_dim": draw(st.sampled_from([64, 96, 128, 256])),
        "vocab_size": draw(st.integers(100, 260000)),
        "max_position_embeddings": draw(st.sampled_from([2048, 32768, 131072])),
        "tie_word_embeddings": draw(st.booleans()),
        "torch_dtype": draw(st.sampled_from(["bfloat16", "float16", "float32"])),
    }
    if draw(st.booleans()):
        experts = {
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "num_experts": 8 * draw(st.integers(1, 32)),
            "moe_intermediate_size": 1024 * draw(st.integers(1, 3)),
            "decoder_sparse_step": draw(st.integers(1, 2)),
        }
        return {**config, **experts}
    return {**config, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}


def stages(config: dict[str, Any], **how: Any) -> list[int]:
    return [stage.value for stage in weight_bytes(config, **how).per_stage]


@settings(max_examples=60, deadline=None)
@given(decoders(), st.sampled_from([2, 4, 8]))
def test_a_rank_holds_less_than_the_whole_and_more_than_its_share(config: dict[str, Any], tp: int) -> None:
    (whole,), (part,) = stages(config), stages(config, tp=tp)
    assert whole / tp <= part < whole
    if tp > 2:
        assert part < stages(config, tp=tp // 2)[0]


@settings(max_examples=60, deadline=None)
@given(decoders(), st.integers(2, 8))
def test_stages_cover_the_whole(config: dict[str, Any], pp: int) -> None:
    if pp > config["num_hidden_layers"]:
        with pytest.raises(KvadviseError):
            stages(config, pp=pp)
        return
    (whole,), parts = stages(config), stages(config, pp=pp)
    assert sum(parts) >= whole
    assert max(parts) < whole or config["num_hidden_layers"] < 2 * pp or config["vocab_size"] > 50000


@settings(max_examples=40, deadline=None)
@given(decoders(), st.sampled_from([2, 4, 8]))
def test_expert_parallelism_holds_as_many_experts(config: dict[str, Any], tp: int) -> None:
    """Dealt out or cut, the experts of a rank weigh the same when both divide; only a map of experts is added."""
    cut, dealt = stages(config, tp=tp)[0], stages(config, tp=tp, ep=True)[0]
    maps = 4 * config.get("num_experts", 0) * config["num_hidden_layers"]
    assert cut <= dealt <= cut + maps


@settings(max_examples=40, deadline=None)
@given(decoders(), st.sampled_from(["fp8", "fp8_per_channel", "mxfp8", "bitsandbytes"]))
def test_quantisation_shrinks(config: dict[str, Any], quantization: str) -> None:
    assert stages(config, quantization=quantization)[0] < stages(config)[0]


@settings(max_examples=40, deadline=None)
@given(decoders())
def test_bands_hold_their_value_and_grow_with_layers(config: dict[str, Any]) -> None:
    more = {**config, "num_hidden_layers": config["num_hidden_layers"] + 2}
    for stage in weight_bytes(config).per_stage:
        assert stage.low <= stage.value <= stage.high
    assert stages(more)[0] > stages(config)[0]


@pytest.mark.parametrize("model", KNOWN)
def test_real_models_share_and_cover(model: str) -> None:
    facts = catalogue_facts(model)
    (whole,) = weight_bytes(facts.config, facts.quant_config).per_stage
    previous = whole.value
    for tp in (2, 4, 8):
        (part,) = weight_bytes(facts.config, facts.quant_config, tp=tp).per_stage
        assert whole.value / tp <= part.value < previous
        previous = part.value
    for pp in (2, 3, 4):
        parts = weight_bytes(facts.config, facts.quant_config, pp=pp).per_stage
        assert sum(stage.value for stage in parts) >= whole.value > max(stage.value for stage in parts)


@given(st.integers(1, 200), st.integers(1, 40))
def test_stage_bounds_cover_every_layer_once(layers: int, pp: int) -> None:
    if pp > layers:
        return
    bounds = stage_bounds(layers, pp)
    assert bounds[0][0] == 0
    assert bounds[-1][1] == layers
    assert all(a[1] == b[0] for a, b in pairwise(bounds))
    sizes = [end - start for start, end in bounds]
    assert max(sizes) - min(sizes) <= 1
    assert sizes[-1] == layers // pp or layers % pp == 0


NONSENSE: list[Any] = [None, 0, -1, 1.5, math.inf, "x", [], {}, [None], True, 1 << 60, {"rope_type": []}, "bfloat16"]
CONFIGS = [config for config, row in layout_rows() if "|" not in row["id"]]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_broken_config_is_counted_or_refused_but_never_crashes(data: st.DataObject) -> None:
    config = dict(data.draw(st.sampled_from(CONFIGS)))
    for _ in range(data.draw(st.integers(1, 3))):
        key = data.draw(st.sampled_from(sorted(config)))
        if data.draw(st.booleans()):
            config.pop(key)
        else:
            config[key] = data.draw(st.sampled_from(NONSENSE))
        if not config:
            break
    pp = data.draw(st.sampled_from([1, 2]))
    try:
        count = weight_bytes(config, tp=data.draw(st.sampled_from([1, 2, 3])), pp=pp)
    except KvadviseError:
        return
    assert len(count.per_stage) == pp
    assert all(0 <= stage.low <= stage.value <= stage.high for stage in count.per_stage)
