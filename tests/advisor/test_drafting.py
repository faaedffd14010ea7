"""MTP layers against public logs, and drafters that nothing is known of."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.units import GIB
from tests.advisor import plan_samples as s

MODEL = "Qwen/Qwen3.6-27B"


@pytest.mark.parametrize(
    ("version", "dtype", "tokens", "gib", "printed", "concurrency"),
    [
        pytest.param("0.20.2", "int8_per_token_head", 4, 11.1, 605_495, 2.31, id="club-3090-benchmarks"),
        pytest.param("0.23.0", "fp8_e5m2", 3, 11.05, 622_408, 2.37, id="club-3090-294"),
    ],
)
def test_mtp_layers_join_the_groups(
    version: str, dtype: str, tokens: int, gib: float, printed: int, concurrency: float
) -> None:
    pins: dict[str, Any] = {
        "vllm_version": version,
        "max_model_len": 262_144,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 2,
        "kv_cache_dtype": dtype,
        "tensor_parallel_size": 2,
        "enable_prefix_caching": True,
        "speculative_config": {"method": "mtp", "num_speculative_tokens": tokens},
        "kv_cache_memory_bytes": round(gib * GIB),
    }
    made = s.plan(MODEL, s.rtx_3090(2), weights_gib=9, concurrency=1, engine=pins)
    assert made.kv is not None
    assert made.kv.capacity_tokens == printed
    assert round(s.known(made.kv.max_concurrency), 2) == concurrency
    assert sorted(group.layers for group in made.kv.groups) == [16, 16, 16, 17]
    assert "1 MTP layer(s)" in s.messages(made, "speculation")


@pytest.mark.parametrize(
    ("model", "config", "code"),
    [
        (s.LLAMA, {"method": "ngram", "num_speculative_tokens": 3}, "speculation"),
        (MODEL, {"method": "mtp", "num_speculative_tokens": 1}, "speculation"),
        (s.LLAMA, {"method": "mtp", "num_speculative_tokens": 1}, "draft-model-unknown"),
        (s.LLAMA, {"model": "org/draft", "num_speculative_tokens": 3}, "draft-model-unknown"),
        (s.LLAMA, {"method": "eagle3", "model": "org/draft", "num_speculative_tokens": 3}, "draft-model-unknown"),
    ],
)
def test_which_drafters_are_known(model: str, config: dict[str, Any], code: str) -> None:
    made = s.plan(model, s.h100(), engine={"speculative_config": config})
    assert code in s.codes(made)
    assert (made.outcome == "does_not_fit") is (code == "draft-model-unknown")


def test_mtp_weights_and_lora_slots_take_from_the_pool() -> None:
    plain = s.plan(MODEL, s.h100()).memory
    mtp = s.plan(MODEL, s.h100(), engine={"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}).memory
    lora = s.plan(MODEL, s.h100(), engine={"enable_lora": True, "max_lora_rank": 64, "max_loras": 4}).memory
    assert plain is not None
    assert mtp is not None
    assert lora is not None
    assert mtp.kv_cache_bytes.value < plain.kv_cache_bytes.value
    assert lora.kv_cache_bytes.value < plain.kv_cache_bytes.value


def test_a_stated_loading_figure_holds_the_slots_already() -> None:
    plain, lora = (s.plan(s.LLAMA, weights_gib=15.5, engine=pins).memory for pins in ({}, {"enable_lora": True}))
    assert plain is not None
    assert lora is not None
    assert lora.kv_cache_bytes == plain.kv_cache_bytes
