"""A schedule is decided by (workload, limits, seed), fits what the server takes, and asks each thing it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.workload_yaml import read_workload_bytes
from verify.load.describe import describe
from verify.load.lengths import nearest_rank
from verify.load.prompts import own_key
from verify.load.schedule import PHASES, SHARED_KEY, TURNOVERS, make_schedule
from verify.load.trace_types import Trace, TraceRow
from verify.load.types import Limits, Phase, PhaseName, Schedule

ROOT = Path(__file__).resolve().parents[3]
LOADS = ("", "requests_per_s: 3", "shared_prefix_tokens: 64")
LIMITS = Limits(max_model_len=8192, capacity_tokens=100_000, block_size=16)


def workload(load: str = "", more: str = "") -> Any:
    text = f"""
model: Qwen/Qwen2.5-7B-Instruct
gpu: L40S
workload:
  prompt_tokens: {{p50: 1000, p95: 6000, max: 7000}}
  output_tokens: {{p50: 200, p95: 900, max: 1000}}
  concurrency: 8
  {load}
{more}
"""
    return read_workload_bytes(text.encode(), "w.yaml")


def schedule(load: str = "", more: str = "", limits: Limits = LIMITS, seed: int = 0, **options: Any) -> Schedule:
    return make_schedule(workload(load, more), limits, seed, **options)


def phase(made: Schedule, name: PhaseName) -> Phase:
    return next(p for p in made.phases if p.name == name)


def test_every_phase_is_there_in_order() -> None:
    assert tuple(p.name for p in schedule().phases) == PHASES


def test_phases_can_be_chosen() -> None:
    made = schedule(phases=("peak",))
    assert [p.name for p in made.phases] == ["baseline", "peak", "drain"]


@given(
    st.integers(0, 2**31),
    st.integers(200, 9000),
    st.sampled_from(LOADS),
)
def test_requests_are_what_they_say(seed: int, length: int, load: str) -> None:
    made = schedule(load, limits=msgspec.structs.replace(LIMITS, max_model_len=length), seed=seed)
    requests = [r for p in made.phases for r in p.requests]
    assert [r.index for r in requests] == list(range(len(requests)))
    for r in requests:
        assert sum(part.tokens for part in r.parts) == r.prompt_tokens
        assert all(part.tokens > 0 for part in r.parts)
        assert r.parts[-1].key == own_key(r.index), "what follows a shared prefix is shared by nobody"
        if r.expect == "answer":
            assert r.prompt_tokens + r.output_tokens <= length
    for p in made.phases:
        assert (p.concurrency is not None) == (p.mode == "closed")
        assert all((r.scheduled_s is not None) == (p.mode == "open") for r in p.requests)


def test_the_longest_request_fills_the_context_to_the_token() -> None:
    for request in phase(schedule(), "long").requests:
        assert (request.prompt_tokens, request.output_tokens) == (7192, 1000)


def test_the_peak_is_the_promise_and_writes_the_pool_over() -> None:
    peak = phase(schedule(), "peak")
    assert peak.concurrency == 8
    assert {(r.prompt_tokens, r.output_tokens) for r in peak.requests} == {(6000, 900)}
    assert sum(r.prompt_tokens + r.output_tokens for r in peak.requests) >= TURNOVERS * 100_000
    huge = phase(schedule(limits=msgspec.structs.replace(LIMITS, capacity_tokens=10**9)), "peak")
    assert len(huge.requests) == 2 * 8 * 8, "a pool that the load never fills is not written over for hours"


def test_a_template_is_part_of_the_prompt() -> None:
    assert {r.prompt_tokens for r in phase(schedule("chat_template_tokens: 50"), "peak").requests} == {6050}


def test_the_tail_has_the_percentiles() -> None:
    tail = phase(schedule(more="slo: {ttft_p99_s: 1, tpot_p95_s: 1}"), "tail")
    prompts = [r.prompt_tokens for r in tail.requests]
    assert len(prompts) == 299 + 8, "so many tell of a p99, and the first eight come all at once"
    assert [nearest_rank(prompts, share) for share in (0.5, 0.95, 1.0)] == [1000, 6000, 7000]


def test_arrivals_come_at_the_rate() -> None:
    made = schedule("requests_per_s: 4")
    tail = phase(made, "tail")
    times = [r.scheduled_s for r in tail.requests if r.scheduled_s is not None]
    assert times == sorted(times)
    assert made.figures["rate_per_s"] == pytest.approx(4, rel=0.4)


def test_what_cannot_fit_is_said_and_not_sent() -> None:
    made = schedule(limits=msgspec.structs.replace(LIMITS, max_model_len=5000))
    assert made.unsendable
    assert sum(group.count for group in made.unsendable) > 0
    assert made.unsendable[0].longest_prompt_tokens == 7000
    assert not any(p.name in ("peak", "cancel") for p in made.phases)
    assert any("not sent" in line for line in describe(made))


def test_beyond_the_limit() -> None:
    refused, shortened = phase(schedule(), "over_limit").requests
    assert (refused.expect, refused.prompt_tokens) == ("refusal", 8193)
    assert shortened.expect == "refusal_or_shortened"
    assert shortened.prompt_tokens <= 8192 < shortened.prompt_tokens + shortened.output_tokens


def test_clients_leave_before_and_within_an_answer() -> None:
    leaving = [r.cancel_after_tokens for r in phase(schedule(), "cancel").requests]
    assert 0 in leaving
    assert any(tokens for tokens in leaving)
    assert all(r.expect == "cancel" for r in phase(schedule(), "cancel").requests)


def test_a_shared_prefix_is_shared_exactly() -> None:
    made = schedule("shared_prefix_tokens: 1000")
    for r in phase(made, "peak").requests:
        assert r.parts[0] == msgspec.convert([SHARED_KEY, 1000], type(r.parts[0]))
    answered = [r for p in made.phases for r in p.requests if r.expect == "answer"]
    whole = sum(min(1000, r.prompt_tokens - 1) // 16 * 16 for r in answered)
    assert made.declared_hit_rate == pytest.approx((whole - 992) / sum(r.prompt_tokens for r in answered))
    assert schedule().declared_hit_rate == 0.0


@given(st.integers(0, 2**31))
def test_the_same_seed_is_the_same_schedule(seed: int) -> None:
    assert schedule("requests_per_s: 2", seed=seed) == schedule("requests_per_s: 2", seed=seed)


def test_another_seed_is_another_schedule() -> None:
    one, other = schedule(seed=1), schedule(seed=2)
    assert one.sha256 != other.sha256
    assert [r.prompt_tokens for r in phase(one, "tail").requests] != [
        r.prompt_tokens for r in phase(other, "tail").requests
    ]


def test_the_same_in_every_process() -> None:
    code = "from tests.verify.load.test_schedule import schedule; print(schedule('requests_per_s: 2', seed=3).sha256)"
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": salt, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, check=True,
        ).stdout.strip()
        for salt in ("0", "1", "2")
    }  # fmt: skip
    assert said == {schedule("requests_per_s: 2", seed=3).sha256}


def test_minutes_bound_it_and_say_what_they_cost() -> None:
    slo = "slo: {ttft_p95_s: 1, tpot_p95_s: 0.05}"
    whole, short = schedule(more=slo), schedule(more=slo, minutes=5)
    assert sum(len(p.requests) for p in short.phases) < sum(len(p.requests) for p in whole.phases)
    assert len(phase(short, "peak").requests) >= 8, "the target is still reached"
    assert any("instead of" in note for note in short.notes)
    assert not whole.notes


def test_a_time_nobody_knows_is_no_number() -> None:
    made = schedule()
    assert phase(made, "peak").estimate_s is None
    assert any("not known without objectives" in line for line in describe(made))
    assert any("not known" in note for note in schedule(minutes=5).notes)


def test_a_trace_is_the_tail() -> None:
    rows = tuple(TraceRow(600, 20, i / 2, (1, i + 2), 512) for i in range(10))
    trace = Trace(name="t", rows=(*rows, TraceRow(9000, 10, 9.0)), read=14, dropped={"a row without tokens": 3})
    made = schedule(trace=trace)
    tail = phase(made, "tail")
    assert tail.mode == "open"
    assert [r.scheduled_s for r in tail.requests] == [i / 2 for i in range(10)]
    assert [part.key for part in tail.requests[0].parts] == ["b1", "b2"]
    assert [part.tokens for part in tail.requests[0].parts] == [512, 88]
    assert made.unsendable[0].count == 1
    assert made.dropped == {"a row without tokens": 3}
    assert made.declared_hit_rate is None


def test_a_trace_without_times_runs_at_the_target() -> None:
    tail = phase(schedule(trace=Trace(name="t", rows=(TraceRow(60, 20),) * 12, read=12)), "tail")
    assert (tail.mode, tail.concurrency) == ("closed", 8)
