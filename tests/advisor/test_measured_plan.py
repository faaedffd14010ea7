"""A plan with what starts of its key cost: used where the key is the same, in the band that was seen, and said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from advisor.measured import MeasuredKey, Measurement, Span
from advisor.plan import make_plan
from advisor.plan_types import Plan
from kvadvise.constants import load_constants
from tests.advisor import plan_samples as s

GIB = 1024**3
PINS = {"max_num_batched_tokens": 8192, "max_num_seqs": 64, "max_model_len": 8192}


def planned(*measured: Measurement, engine: dict[str, Any] | None = None, gpus: int = 1, concurrency: int = 16) -> Plan:
    return make_plan(
        s.workload(engine=PINS if engine is None else engine, concurrency=concurrency), s.facts_of(s.LLAMA),
        s.h100(gpus), load_constants(), kvadvise_version="0", inputs_sha256="0", measured=measured,
    )  # fmt: skip


def key_of(plan: Plan) -> MeasuredKey:
    assert plan.measured is not None
    return plan.measured.key


def gib(value: float) -> Span:
    middle = round(value * GIB)
    return Span(middle, middle - GIB // 200, middle + GIB // 200)


def start(key: MeasuredKey, **parts: float) -> Measurement:
    known = Measurement(key=key, kept_on="2026-01-02T03:04:05Z", sources=("a log",))
    return msgspec.structs.replace(known, **{name: gib(value) for name, value in parts.items()})


BARE = planned()
KEY = key_of(BARE)


def test_a_plan_says_under_which_key_its_start_is_measured() -> None:
    assert BARE.measured is not None
    assert (BARE.measured.starts, BARE.measured.file) == (0, KEY.file_name)
    assert (KEY.max_num_batched_tokens, KEY.max_num_seqs, KEY.tensor_parallel_size) == (8192, 64, 1)
    assert key_of(planned(engine=PINS | {"enforce_eager": True})).cuda_graphs is False


def test_on_a_cpu_compiled_and_eager_starts_are_two_keys() -> None:
    compiled, eager = (s.plan(device=s.cpu(64.0, 60.0), engine=PINS | {"enforce_eager": on}) for on in (False, True))
    assert key_of(compiled).settings == {}
    assert key_of(eager).settings == {"enforce_eager": True}
    assert key_of(compiled).cuda_graphs is key_of(eager).cuda_graphs is False


def test_costs_are_the_measured_ones_and_the_pool_follows() -> None:
    made = planned(start(KEY, activation=1.89, non_torch=0.25, cuda_graphs=0.9, cuda_graphs_estimated=0.7))
    memory, before = made.memory, BARE.memory
    assert memory is not None
    assert before is not None
    assert [p.basis for p in (memory.activation_bytes, memory.non_torch_bytes, memory.cuda_graph_bytes)] == [
        "measured"
    ] * 3
    taken = sum(round(part * GIB) for part in (1.89, 0.25, 0.7))
    assert memory.kv_cache_bytes.value == memory.budget_bytes.value - memory.weights_bytes.value - taken
    width = memory.kv_cache_bytes.high - memory.kv_cache_bytes.low
    assert 0 < width < before.kv_cache_bytes.high - before.kv_cache_bytes.low
    assert made.measured is not None
    assert made.measured.starts == 1


def test_the_band_holds_what_was_seen_and_a_little_more() -> None:
    wide = Measurement(key=KEY, starts=2, activation=Span(2 * GIB, GIB, 3 * GIB))
    memory = planned(wide).memory
    assert memory is not None
    assert memory.activation_bytes.low < GIB
    assert memory.activation_bytes.high > 3 * GIB


def test_a_larger_cost_than_predicted_is_not_talked_away() -> None:
    made = planned(start(KEY, activation=9.0))
    assert made.concurrency is not None
    assert BARE.concurrency is not None
    assert made.concurrency.at_p95 < BARE.concurrency.at_p95


@pytest.mark.parametrize(
    "change",
    [
        {"vllm_version": "0.31.0"}, {"gpu": "H100 94GB"}, {"architecture": "Other"}, {"shape": "h1"},
        {"dtype": "float32"}, {"quantization": "fp8"}, {"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2},
        {"max_num_batched_tokens": 2048}, {"max_num_seqs": 1024}, {"cuda_graphs": False},
        {"settings": {"enable_lora": True}},
    ],
    ids=str,
)  # fmt: skip
def test_another_key_is_not_used(change: dict[str, Any]) -> None:
    made = planned(start(msgspec.structs.replace(KEY, **change), activation=9.0))
    assert made.memory == BARE.memory
    assert made.flags == BARE.flags
    assert made.measured is not None
    assert made.measured.starts == 0


def test_the_assumptions_say_what_was_measured_when_and_of_what() -> None:
    said = " ".join(planned(start(KEY, activation=1.89, non_torch=0.25)).assumptions)
    assert "activations, memory outside torch: as measured with these very settings, by one start of vLLM" in said
    assert "on H100 80GB, the last kept 2026-01-02T03:04:05Z (a log)" in said
    assert "measured" not in " ".join(BARE.assumptions)


def test_a_release_that_nobody_knows_is_believed_once_it_was_measured() -> None:
    new = {"vllm_version": "0.99.1"}
    before = planned(engine=PINS | new)
    key = key_of(before)
    assert key.vllm_version == "0.99.1"
    after = planned(start(key, activation=1.89, non_torch=0.25, cuda_graphs_estimated=0.7), engine=PINS | new)
    assert before.memory is not None
    assert after.memory is not None
    assert after.memory.activation_bytes.basis == "measured"
    width = after.memory.activation_bytes.high - after.memory.activation_bytes.low
    assert width < 0.1 * (before.memory.activation_bytes.high - before.memory.activation_bytes.low)


def test_a_measured_setting_that_the_plan_left_is_said() -> None:
    """So much is measured for the batch first thought of that a smaller one is taken, which nobody measured."""
    free = planned(engine={}, concurrency=200)
    key = key_of(free)
    moved = planned(start(key, activation=30.0), engine={}, concurrency=200)
    assert key_of(moved) != key
    assert any("the plan moved on" in line for line in moved.assumptions)
