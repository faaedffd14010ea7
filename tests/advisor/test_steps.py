"""The priority table: order, stopping, and what each row does and leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.kv_quantization import eight_bit_kv
from advisor.plan_types import Plan, Step
from advisor.search import splits
from advisor.sizing import size
from advisor.steps import batches_below, safe_utilization
from advisor.units import GIB
from advisor.workload import Lengths
from tests.advisor import plan_samples as s

TIGHT: dict[str, Any] = {"weights_gib": 14.99, "prompt": 6000, "output": 500}


def step(made: Plan, parameter: str) -> Step:
    return next(step for step in made.steps if step.parameter == parameter)


def test_nothing_more_is_moved_once_the_target_is_met() -> None:
    made = s.plan(s.LLAMA, s.h100())
    assert made.outcome == "fits"
    for parameter in ("gpu_memory_utilization", "kv_cache_dtype", "model_or_gpus"):
        kept = step(made, parameter)
        assert kept.before == kept.after
        assert kept.reason.startswith("Not needed")
    assert step(made, "gpu_memory_utilization").after == 0.92


def test_the_share_is_raised_no_further_than_needed() -> None:
    work: dict[str, Any] = {"weights_gib": 14.99, "prompt": 2000, "output": 200, "policy": "never"}
    made = [s.plan(s.LLAMA, s.gpu(), concurrency=n, **work) for n in range(10, 30)]
    shares = [step(plan, "gpu_memory_utilization").after for plan in made if plan.outcome == "fits"]
    assert shares == sorted(shares)
    assert shares[0] == 0.92
    assert 0.92 < shares[-1] <= 0.95
    assert len(set(shares)) > 2


def test_the_share_is_vllms_default_of_its_release() -> None:
    old = s.plan(s.LLAMA, s.h100(), engine={"vllm_version": "0.19.1"})
    assert step(old, "gpu_memory_utilization").before == 0.9


def test_a_busy_card_gets_a_smaller_share() -> None:
    made = s.plan(s.LLAMA, s.gpu("H100", 79.18, 50, cap=(9, 0)))
    assert 0.6 <= made.flags["gpu_memory_utilization"] <= 0.62
    assert made.starts is True


@pytest.mark.parametrize(("concurrency", "seqs"), [(1, 8), (8, 8), (9, 16), (40, 40), (250, 256), (3000, 3000)])
def test_sequences_are_the_target_in_eights(concurrency: int, seqs: int) -> None:
    made = s.plan(s.LLAMA, s.h100(), prompt=200, output=50, concurrency=concurrency)
    assert made.flags["max_num_seqs"] == seqs
    assert made.flags["max_num_batched_tokens"] >= seqs


def test_a_batch_is_made_smaller_only_for_the_target() -> None:
    roomy, tight = (
        s.plan(s.SLIDING, s.h100(), prompt=7000, output=1000, concurrency=n, weights_gib=w, policy="never")
        for n, w in ((16, 13.1), (100, 60.0))
    )
    assert roomy.flags["max_num_batched_tokens"] == 8192
    assert tight.flags["max_num_batched_tokens"] < 8192
    lowered = step(tight, "max_num_seqs")
    assert lowered.also["max_num_batched_tokens"].before == 8192
    assert lowered.concurrency_at_p95_after > lowered.concurrency_at_p95_before


def test_batches_hold_every_sequence_and_a_states_block() -> None:
    problem = s.problem(s.HYBRID, s.h100(4))
    sized = size(problem, {"tensor_parallel_size": 4, "max_num_seqs": 700})
    assert batches_below(problem, sized) == [4096, 2048, 1024]
    off = s.problem(s.LLAMA, s.h100(), engine={"enable_chunked_prefill": False})
    assert batches_below(off, size(off, {"max_model_len": 2208})) == []
    images = s.problem("Qwen/Qwen3-VL-8B-Instruct", s.h100())
    assert min(batches_below(images, size(images, {"max_num_seqs": 16}))) == 2048


@pytest.mark.parametrize(
    ("policy", "concurrency", "dtype", "outcome"),
    [
        ("ask", 4, "auto", "fits"),
        ("ask", 9, "fp8", "fits_with_loss"),
        ("ask", 200, "auto", "does_not_fit"),
        ("never", 9, "auto", "does_not_fit"),
        ("prefer", 4, "fp8", "fits_with_loss"),
    ],
)
def test_precision_by_policy(policy: str, concurrency: int, dtype: str, outcome: str) -> None:
    made = s.plan(s.LLAMA, s.gpu(), policy=policy, concurrency=concurrency, **TIGHT)
    assert (made.flags["kv_cache_dtype"], made.outcome) == (dtype, outcome)


def test_a_fragile_family_is_quantised_only_in_need() -> None:
    preferred = s.plan(s.QWEN, s.gpu(), weights_gib=14.25, concurrency=4, policy="prefer")
    assert preferred.flags["kv_cache_dtype"] == "auto"
    assert "no scales" in step(preferred, "kv_cache_dtype").reason
    needed = s.plan(s.QWEN, s.gpu(), weights_gib=14.25, prompt=6000, output=500, concurrency=20)
    assert needed.outcome == "fits_with_loss"
    assert "kv-fp8-fragile-family" in s.codes(needed)


def test_a_backend_without_the_dtype_is_found_by_trying() -> None:
    made = s.plan("bigscience/bloom", s.h100(), weights_gib=60.0, prompt=1500, output=400, concurrency=40)
    assert made.flags["kv_cache_dtype"] == "auto"
    assert "ALiBi" in step(made, "kv_cache_dtype").reason


def test_a_batch_given_up_in_vain_comes_back() -> None:
    made = s.plan(s.LLAMA, s.gpu(), concurrency=9, **TIGHT)
    assert made.flags["kv_cache_dtype"] == "fp8"
    assert made.flags["max_num_batched_tokens"] == 2048


def test_no_loss_for_a_pinned_length_that_no_request_has() -> None:
    pins = {"max_model_len": 100_000, "kv_cache_memory_bytes": 8 * GIB}
    made = s.plan(s.LLAMA, s.h100(), weights_gib=14.99, concurrency=4, engine=pins)
    assert made.flags["kv_cache_dtype"] == "auto"
    assert made.starts is False
    assert made.outcome == "does_not_fit"
    assert "100000" in step(made, "kv_cache_dtype").reason
    assert any(way.kind == "unpin" and way.outcome == "fits" for way in made.alternatives)


def test_more_gpus_before_a_loss() -> None:
    one, two = (s.plan(s.LLAMA, s.gpu(count=n), prompt=6000, output=500, concurrency=8) for n in (1, 2))
    assert one.flags["kv_cache_dtype"] == "fp8"
    assert (two.outcome, two.flags["tensor_parallel_size"], two.flags["kv_cache_dtype"]) == ("fits", 2, "auto")
    last = two.steps[-1]
    assert (last.before, last.after) == (1, 2)
    assert last.also["tensor_parallel_size"].after == 2


def test_all_gpus_and_a_loss_where_nothing_less_does() -> None:
    made = {n: s.plan(s.LLAMA, s.gpu(count=2), prompt=6000, output=500, concurrency=n) for n in (20, 40, 10_000)}
    assert [plan.outcome for plan in made.values()] == ["fits", "fits_with_loss", "does_not_fit"]
    assert [plan.flags["tensor_parallel_size"] for plan in made.values()] == [2, 2, 2]
    assert made[10_000].flags["kv_cache_dtype"] == "auto"


@pytest.mark.parametrize(
    ("model", "count", "pins", "expected"),
    [
        (s.QWEN, 8, {}, [(1, 1), (2, 1), (4, 1), (4, 2)]),
        (s.LLAMA_70B, 4, {}, [(1, 1), (2, 1), (4, 1)]),
        (s.LLAMA_70B, 3, {}, [(1, 1), (2, 1), (1, 3)]),
        (s.LLAMA_70B, 8, {"tensor_parallel_size": 2}, [(2, 1)]),
        (s.LLAMA_70B, 8, {"pipeline_parallel_size": 2}, [(1, 2), (2, 2), (4, 2)]),
        (s.LLAMA_70B, 1, {"pipeline_parallel_size": 2}, [(1, 2)]),
        (s.LLAMA_70B, 8, {"data_parallel_size": 4}, [(1, 1), (2, 1)]),
    ],
)
def test_which_splits_are_tried(model: str, count: int, pins: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    found = [(split.ranks, split.stages) for split in splits(s.problem(model, s.h100(count), engine=pins))]
    assert [pair for pair in found if pair in expected] == expected
    assert found[: len(expected) - 1] == expected[:-1]


def test_the_smallest_split_that_starts_is_the_baseline() -> None:
    made = s.plan("Qwen/Qwen2.5-32B-Instruct", s.h100(4), concurrency=150)
    assert made.outcome == "fits"
    assert made.steps[-1].before == 1
    assert made.steps[-1].after > 1
    assert made.steps[-1].starts_before is True


@pytest.mark.parametrize(
    ("model", "device", "dtype"),
    [
        (s.LLAMA, s.h100(), "fp8"),
        (s.LLAMA, s.gpu(), "fp8"),
        (s.LLAMA, s.a100(), None),
        (s.LLAMA, s.rtx_3090(), None),
        (s.MLA, s.a100(), None),
        ("Qwen/Qwen3-32B-FP8", s.a100(), None),
        (s.LLAMA, s.t4(), None),
        (s.LLAMA, s.cpu(), None),
        (s.LLAMA, s.gpu("MI300X", 192, cap=None, vendor="amd", arch="gfx942"), "fp8"),
        (s.LLAMA, s.gpu("RX 7900 XTX", 24, cap=None, vendor="amd", arch="gfx1100"), None),
        (s.LLAMA, s.gpu("Arc", 16, cap=None, vendor="intel"), None),
    ],
)
def test_which_8_bit_cache(model: str, device: Any, dtype: str | None) -> None:
    problem = s.problem(model, device)
    choice = eight_bit_kv(problem.model, device, problem.version, "auto")
    assert choice.dtype == dtype
    assert choice.reason
    assert eight_bit_kv(problem.model, device, problem.version, "fp8").dtype is None


@pytest.mark.parametrize("device", [s.a100(), s.rtx_3090()])
@pytest.mark.parametrize(("version", "dtype"), [("0.23.0", "fp8_e5m2"), ("0.24.0", None)])
def test_e5m2_ran_on_ampere_up_to_0_23(device: Any, version: str, dtype: str | None) -> None:
    problem = s.problem(s.LLAMA, device, engine={"vllm_version": version})
    assert eight_bit_kv(problem.model, device, problem.version, "auto").dtype == dtype


def test_the_safe_share_leaves_what_lies_outside() -> None:
    problem = s.problem(s.LLAMA, s.gpu(total=23.52, free=23.5), engine={"vllm_version": "0.19.1"}, weights_gib=14.99)
    sized = size(problem, {})
    share = safe_utilization(sized)
    ledger = sized.ledger
    assert share <= 0.95
    assert ledger.total_bytes.low * (1 - share) >= ledger.outside_budget_bytes.high - 1


@pytest.mark.parametrize(
    ("pins", "parameter", "said"),
    [
        ({"max_model_len": 1000}, "max_model_len", "Longer requests are refused"),
        ({"max_model_len": 2200}, "max_model_len", "exactly what the load needs"),
        ({"max_model_len": 9000}, "max_model_len", "one request may use it"),
        ({"max_model_len": "auto"}, "max_model_len", "longest that starts"),
        ({"gpu_memory_utilization": 0.5}, "gpu_memory_utilization", "Pinned: 0.5 of"),
        ({"max_num_seqs": 7}, "max_num_seqs", "pinned to 7"),
        ({"max_num_batched_tokens": 512}, "max_num_seqs", "pinned to 512"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype", "Pinned to fp8"),
        ({"kv_cache_memory_bytes": 4 * GIB}, "gpu_memory_utilization", "decides only the start check"),
    ],
)
def test_a_pinned_row_says_so(pins: dict[str, Any], parameter: str, said: str) -> None:
    kept = step(s.plan(s.LLAMA, s.h100(), concurrency=4, engine=pins), parameter)
    assert kept.before == kept.after or parameter == "max_num_seqs"
    assert said in kept.reason


def test_a_default_length_beside_a_small_pinned_batch() -> None:
    pins = {"enable_chunked_prefill": False, "max_num_batched_tokens": 4096}
    made = s.plan(s.LLAMA, s.h100(), engine=pins)
    assert made.outcome == "fits"
    assert made.flags["max_model_len"] <= 4096


def test_percentiles_are_named_in_the_reason() -> None:
    made = s.plan(s.LLAMA, prompt=Lengths(p90=100, p95=200), output=Lengths(p50=10, p95=20))
    assert "5 %" in made.steps[0].reason
