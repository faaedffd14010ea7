"""Explanations hold the plan's own numbers, and say what would change a flag."""

from __future__ import annotations

import pytest

from advisor.errors import InvalidInput
from advisor.explain import explain
from tests.advisor import plan_samples as s


def test_every_flag_of_a_plan_can_be_explained() -> None:
    for made in (s.plan(s.LLAMA, s.gpu(), weights_gib=14.99), s.plan("Qwen/Qwen3-0.6B", s.cpu(), weights_gib=1.2)):
        for flag, value in made.flags.items():
            told = explain(made, flag)
            assert told.value == value
            assert told.sum
            assert told.changes


def test_the_length_is_added_up() -> None:
    made = s.plan(s.LLAMA, prompt=6500, output=900, chat_template_tokens=30)
    told = explain(made, "--max-model-len")
    assert told.sum[0] == "longest prompt 6500 + longest output 900 + chat template 30 = 7430 tokens"
    assert told.sum[1] == "in blocks of 16: 7440"


def test_the_budget_is_taken_apart() -> None:
    made = s.plan(s.LLAMA, s.gpu(total=24, free=23.9), weights_gib=14, engine={"gpu_memory_utilization": 0.9})
    told = explain(made, "gpu-memory-utilization")
    assert told.sum[0] == "0.9 x 24.00 GiB = 21.60 GiB"
    assert told.sum[1] == "- weights 14.00 GiB"
    assert told.changes[0] == "it is pinned in engine.gpu_memory_utilization: the plan never moves it"
    assert any("whole card" in line for line in told.changes)


def test_graphs_outside_the_budget_are_not_taken_off_it() -> None:
    inside, outside = (
        explain(s.plan(s.LLAMA, engine={"vllm_version": v}), "gpu_memory_utilization") for v in ("0.32.0", "0.19.1")
    )
    assert any("CUDA graphs" in line for line in inside.sum)
    assert not any("CUDA graphs" in line for line in outside.sum)


def test_engines_share_the_target() -> None:
    made = s.plan(s.LLAMA, s.h100(2), concurrency=32, engine={"data_parallel_size": 2})
    assert "16 requests at once for each of 2 engines" in explain(made, "max_num_seqs").sum[0]


def test_a_pin_of_another_kind_is_only_told_to_be_one() -> None:
    told = explain(s.plan(s.LLAMA, engine={"seed": 7}), "seed")
    assert told.sum == ()
    assert told.changes == ("it is pinned in engine.seed: the plan never moves it",)


def test_layers_of_several_kinds_have_no_bytes_a_token() -> None:
    told = explain(s.plan(s.SLIDING), "kv_cache_dtype")
    assert not any("a token" in line for line in told.sum)


@pytest.mark.parametrize("flag", ["swap_space", "--nonsense"])
def test_a_flag_that_is_not_set(flag: str) -> None:
    with pytest.raises(InvalidInput, match="max_model_len"):
        explain(s.plan(s.LLAMA), flag)


def test_a_plan_without_flags_says_why() -> None:
    with pytest.raises(InvalidInput, match="no configuration"):
        explain(s.plan("BAAI/bge-m3"), "max_model_len")
