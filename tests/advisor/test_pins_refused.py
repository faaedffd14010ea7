"""Pins that vLLM 0.32 refuses while it reads its configuration, asked of the real one: no plan calls them possible."""

from __future__ import annotations

from typing import Any

import pytest

from kvadvise import plan

LOAD = {
    "model": "Qwen/Qwen2.5-7B-Instruct",
    "gpu": "RTX 4090",
    "workload": {
        "prompt_tokens": {"p95": 2000, "max": 2500},
        "output_tokens": {"p95": 300, "max": 400},
        "concurrency": 4,
    },
}


def planned(**engine: Any) -> Any:
    return plan({**LOAD, "engine": engine})


@pytest.mark.parametrize(
    ("engine", "code", "said"),
    [
        ({"quantization": "int3"}, "quantization-unknown", "'int3' is not a quantisation"),
        ({"quantization": "awq"}, "quantization-undescribed", "this one's config describes none"),
        ({"quantization": "gptq_marlin"}, "quantization-undescribed", "describes none"),
        ({"cudagraph_capture_sizes": [0, -1]}, "argument-value", "[0, -1]"),
        ({"cudagraph_capture_sizes": []}, "argument-value", "[]"),
        ({"model": "foo"}, "argument-value", "'foo'"),
        ({"port": 99999}, "argument-value", "99999"),
        ({"hf_overrides": "max_position_embeddings=1"}, "argument-value", "hf_overrides"),
        ({"speculative_config": "eagle"}, "argument-value", "speculative_config"),
        ({"no_enable_prefix_caching": True}, "argument-value", "no_enable_prefix_caching"),
        ({"hf_overrides": {"max_position_embeddings": 100}}, "load-beyond-model", "made for 100"),
    ],
)
def test_is_invalid(engine: dict[str, Any], code: str, said: str) -> None:
    made = planned(**engine)
    assert made.outcome == "invalid"
    assert made.starts is False
    found = [finding for finding in made.findings if finding.code == code]
    assert found, [finding.code for finding in made.findings]
    assert said in found[0].message
    assert found[0].remedy


def test_a_quantisation_of_the_model_key_is_checked_too() -> None:
    made = plan({**LOAD, "model": {"id": LOAD["model"], "quantization": "int3"}})
    assert made.outcome == "invalid"
    assert plan({**LOAD, "model": {"id": LOAD["model"], "quantization": "fp8"}}).outcome == "fits"


def test_overrides_are_what_is_planned() -> None:
    """vLLM writes hf_overrides over the config before it reads anything."""
    whole, one_layer = planned(), planned(hf_overrides={"num_hidden_layers": 1})
    assert one_layer.kv.bytes_per_token * 28 == whole.kv.bytes_per_token
    assert one_layer.memory.weights_bytes.value < whole.memory.weights_bytes.value
    assert any("hf_overrides: num_hidden_layers" in line for line in one_layer.assumptions)
    as_text = planned(hf_overrides='{"num_hidden_layers": 1}')
    assert as_text.kv == one_layer.kv


@pytest.mark.parametrize(
    ("engine", "where"),
    [
        ({"hf_overrides": {"text_config": {"num_hidden_layers": 2}}}, "engine.hf_overrides.text_config"),
        ({"runner": "pooling"}, "engine.runner"),
    ],
)
def test_what_is_not_understood_gets_no_number(engine: dict[str, Any], where: str) -> None:
    made = planned(**engine)
    assert made.outcome == "not_understood"
    assert made.kv is None
    assert made.memory is None
    assert where in made.findings[0].message


def test_a_drafter_written_as_json_is_read() -> None:
    """P54: a drafter of unknown size is no promise, however it is written."""
    drafter = {"method": "eagle", "model": "x", "num_speculative_tokens": 3}
    for written in (drafter, '{"method": "eagle", "model": "x", "num_speculative_tokens": 3}'):
        made = planned(speculative_config=written)
        assert made.outcome == "does_not_fit"
        assert "draft-model-unknown" in [finding.code for finding in made.findings]


@pytest.mark.parametrize("version", ["0.8.0", "0.8.5", "0.9.2", "0.10.2", "0.32.0"])
def test_room_outside_the_budget_is_made_where_nothing_is_pinned(version: str) -> None:
    """Fewer sequences free memory that goes to the pool; what vLLM captures outside the budget still needs its own."""
    made = planned(vllm_version=version)
    assert (made.outcome, made.starts) == ("fits", True)
    assert made.memory.total_bytes.low - made.memory.budget_bytes.high >= 0
    pinned = planned(vllm_version=version, gpu_memory_utilization=made.flags["gpu_memory_utilization"])
    assert pinned.outcome == "fits"


def test_a_block_that_is_pinned_is_named_as_the_cause() -> None:
    waste = next(f for f in planned(block_size=100000, max_model_len=32768).findings if f.code == "block-waste")
    assert "block_size is pinned" in waste.message
    assert "block_size" in waste.remedy
