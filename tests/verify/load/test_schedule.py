"""A schedule is decided by (workload, limits, seed), fits what the server takes, and asks each thing it says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.workload import Lengths
from advisor.workload_yaml import read_workload_bytes
from verify.client.bodies import Fields
from verify.client.slices import slices_of
from verify.load.describe import describe
from verify.load.lengths import nearest_rank
from verify.load.prompts import own_key, prompt_ids
from verify.load.schedule import PHASES, SHARED_KEY, TURNOVERS, make_schedule
from verify.load.trace_types import Trace, TraceRow
from verify.load.types import Limits, Pace, Part, Phase, PhaseName, Schedule

ROOT = Path(__file__).resolve().parents[3]
LOADS = ("", "requests_per_s: 3", "shared_prefix_tokens: 64")
LIMITS = Limits(max_model_len=8192, capacity_tokens=100_000, block_size=16)
SLO = "slo: {ttft_p95_s: 1, tpot_p95_s: 0.05}"


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


@settings(deadline=None, max_examples=40)
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


def test_the_longest_prompt_and_the_longest_answer_fill_the_context_to_the_token() -> None:
    made = phase(schedule(), "long")
    assert [(r.prompt_tokens, r.output_tokens) for r in made.requests] == [(8176, 16), (7192, 1000)]
    assert made.concurrency == 1


@settings(deadline=None, max_examples=40)
@given(st.integers(8, 9000))
def test_long_fills_any_context(length: int) -> None:
    made = phase(schedule(limits=msgspec.structs.replace(LIMITS, max_model_len=length)), "long")
    assert {r.prompt_tokens + r.output_tokens for r in made.requests} == {length}
    assert [r.output_tokens for r in made.requests] == [min(16, length // 4), min(1000, length - 1)]


def test_the_peak_is_the_promise_and_writes_the_pool_over() -> None:
    peak = phase(schedule(), "peak")
    assert peak.concurrency == 8
    assert {(r.prompt_tokens, r.output_tokens) for r in peak.requests} == {(6000, 900)}
    assert sum(r.prompt_tokens + r.output_tokens for r in peak.requests) >= TURNOVERS * 100_000
    huge = schedule(limits=msgspec.structs.replace(LIMITS, capacity_tokens=10**9))
    assert len(phase(huge, "peak").requests) == 2 * 8 * 8, "a pool that the load never fills is not written for hours"
    assert any("does not write it over" in note for note in huge.notes)
    unknown = schedule(limits=msgspec.structs.replace(LIMITS, capacity_tokens=None))
    assert len(phase(unknown, "peak").requests) == 3 * 8
    assert any("not known" in note for note in unknown.notes)


def test_the_peak_tells_of_objectives_where_it_is_the_load() -> None:
    limits = msgspec.structs.replace(LIMITS, capacity_tokens=1000)
    slo = "slo: {ttft_p99_s: 1, tpot_p95_s: 1}"
    assert len(phase(schedule(more=slo, limits=limits), "peak").requests) == 299 + 8
    assert len(phase(schedule("requests_per_s: 2", slo, limits=limits), "peak").requests) == 24


def test_more_at_once_than_the_server_runs_is_said() -> None:
    made = schedule(limits=msgspec.structs.replace(LIMITS, max_num_seqs=4))
    assert any("at most 4 requests at once" in note for note in made.notes)


def test_a_template_is_part_of_the_prompt() -> None:
    assert {r.prompt_tokens for r in phase(schedule("chat_template_tokens: 50"), "peak").requests} == {6050}


def test_the_tail_has_the_percentiles() -> None:
    tail = phase(schedule(more="slo: {ttft_p99_s: 1, tpot_p95_s: 1}"), "tail")
    prompts = [r.prompt_tokens for r in tail.requests]
    assert len(prompts) == 299 + 8, "so many tell of a p99, and the first eight come all at once"
    assert [nearest_rank(prompts, share) for share in (0.5, 0.95, 1.0)] == [1000, 6000, 7000]


def test_a_closed_loop_fills_its_places_more_than_once() -> None:
    file = workload()
    file = msgspec.structs.replace(file, workload=msgspec.structs.replace(file.workload, concurrency=128))
    assert len(phase(make_schedule(file, LIMITS, 0), "tail").requests) == 256


def test_arrivals_come_at_the_rate() -> None:
    made = schedule("requests_per_s: 4")
    tail = phase(made, "tail")
    times = [r.scheduled_s for r in tail.requests if r.scheduled_s is not None]
    assert times == sorted(times)
    assert len(times) == 200, "most of a minute: a queue that grows has to be seen growing"
    assert len(phase(schedule("requests_per_s: 2"), "tail").requests) == 120
    assert made.figures["rate_per_s"] == pytest.approx(4)
    assert made.figures["gap_cv"] == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [("{process: constant}", 0.0), ("{process: gamma, cv: 2.5}", 2.5), ("{process: gamma, cv: 0.4}", 0.4)],
)
def test_arrivals_are_as_the_workload_says(arrivals: str, cv: float) -> None:
    figures = schedule(f"requests_per_s: 20\n  arrivals: {arrivals}").figures
    assert figures["rate_per_s"] == pytest.approx(20)
    assert figures["gap_cv"] == pytest.approx(cv, abs=1e-9, rel=0.25)


def test_pieces_are_played_to_their_end() -> None:
    tail = phase(schedule("arrivals: {process: piecewise, rates: [[0, 1], [60, 10], [90, 0]]}"), "tail")
    assert len(tail.requests) == 60 + 300
    assert sum((r.scheduled_s or 0.0) < 60 for r in tail.requests) == 60


def test_the_load_and_when_it_comes_are_drawn_apart() -> None:
    even, bursts = (
        schedule(f"requests_per_s: 3\n  arrivals: {one}") for one in ("{process: constant}", "{process: gamma, cv: 2}")
    )
    lengths = [[(r.prompt_tokens, r.output_tokens) for r in phase(made, "tail").requests] for made in (even, bursts)]
    assert lengths[0] == lengths[1]


def test_what_cannot_fit_is_said_and_not_sent() -> None:
    made = schedule(limits=msgspec.structs.replace(LIMITS, max_model_len=5000))
    assert {group.phase for group in made.unsendable} == {"warm_up", "peak", "tail", "cancel"}
    assert [group.count for group in made.unsendable if group.phase == "peak"] == [29]
    too_long, no_room = (group for group in made.unsendable if group.phase == "tail")
    if "leaves no room" in no_room.reason:
        too_long, no_room = no_room, too_long
    assert (too_long.longest_prompt_tokens, too_long.reason[:10]) == (7000, "the prompt")
    assert "prompt + answer is more than" in no_room.reason
    assert not any(p.name in ("peak", "cancel") for p in made.phases)
    assert any("not sent" in line for line in describe(made))


def test_beyond_the_limit() -> None:
    refused, shortened = phase(schedule(), "over_limit").requests
    assert (refused.expect, refused.prompt_tokens) == ("refusal", 8193)
    assert shortened.expect == "refusal_or_shortened"
    assert shortened.prompt_tokens <= 8192 < shortened.prompt_tokens + shortened.output_tokens


@pytest.mark.parametrize("answer", [1, 2, 9, 40])
def test_clients_leave_an_answer_before_its_end(answer: int) -> None:
    file = workload()
    load = msgspec.structs.replace(file.workload, output_tokens=Lengths(p95=answer))
    made = make_schedule(msgspec.structs.replace(file, workload=load), LIMITS, 0)
    assert all((r.cancel_after_tokens or 0) < answer for r in phase(made, "cancel").requests)


def test_the_plan_of_a_run_says_what_and_why() -> None:
    lines = describe(schedule("requests_per_s: 2", SLO, limits=msgspec.structs.replace(LIMITS, max_model_len=7500)))
    assert lines[0].split()[:4] == ["baseline", "idle", "3", "s"]
    assert "29 by 8  200 k tok" in lines[4]
    assert "2 x the pool's 100,000 tokens / 6900 a request = 29" in lines[4]
    assert any(line.startswith("not sent: ") and "max_model_len 7500" in line for line in lines)
    assert any("for a server that just meets the objectives" in line for line in lines)
    assert any(line.startswith("arrivals as drawn: ") for line in lines)
    assert lines[-1].startswith("seed 0, schedule ")


def test_clients_leave_before_and_within_an_answer() -> None:
    leaving = [r.cancel_after_tokens for r in phase(schedule(), "cancel").requests]
    assert 0 in leaving
    assert any(tokens for tokens in leaving)
    assert all(r.expect == "cancel" for r in phase(schedule(), "cancel").requests)


def test_a_shared_prefix_is_shared_exactly() -> None:
    made = schedule("shared_prefix_tokens: 1000")
    for r in phase(made, "peak").requests:
        assert r.parts[0] == msgspec.convert([SHARED_KEY, 1000], type(r.parts[0]))
    looked_up = [r for p in made.phases for r in p.requests if r.expect != "refusal"]
    whole = sum(sum(part.tokens for part in r.parts if part.key == SHARED_KEY) // 16 * 16 for r in looked_up)
    assert made.declared_hit_rate == pytest.approx((whole - 992) / sum(r.prompt_tokens for r in looked_up))
    assert schedule().declared_hit_rate == 0.0


@settings(deadline=None, max_examples=40)
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


@pytest.mark.parametrize("load", ["", "requests_per_s: 2"])
@pytest.mark.parametrize("minutes", [0.5, 2, 4, 6, 9])
def test_minutes_bound_it_and_say_what_they_cost(load: str, minutes: float) -> None:
    whole, short = schedule(load, SLO), schedule(load, SLO, minutes=minutes)
    counts = [{p.name: len(p.requests) for p in made.phases} for made in (whole, short)]
    fewer = {name for name in counts[0] if counts[1][name] < counts[0][name]}
    assert fewer or sum(p.estimate_s or 0.0 for p in whole.phases) < 60 * minutes
    assert {note.split()[0] for note in short.notes if "instead of" in note} == fewer
    assert counts[1]["peak"] >= 8, "the target is still reached"
    assert counts[1]["over_limit"] == 2
    seconds = sum(p.estimate_s or 0.0 for p in short.phases)
    assert seconds <= 60 * minutes or any("even so" in note for note in short.notes)


def test_a_shorter_tail_has_the_percentiles_still() -> None:
    tail = phase(schedule("", SLO, minutes=6), "tail")
    prompts = [r.prompt_tokens for r in tail.requests]
    assert 20 <= len(prompts) < 100
    assert [nearest_rank(prompts, share) for share in (0.5, 0.95, 1.0)] == [1000, 6000, 7000]


def test_minutes_that_are_enough_change_nothing() -> None:
    assert schedule("", SLO, minutes=60).phases == schedule("", SLO).phases
    assert not schedule("", SLO).notes


def test_times_are_those_of_the_pace_where_one_was_measured() -> None:
    made = schedule(more=SLO, pace=Pace(prefill_tokens_per_s=10_000, tpot_s=0.01))
    assert phase(made, "peak").estimate_s == pytest.approx(67 * 0.6 + 67 * 900 * 0.01 / 8)
    assert any("at the pace measured" in line for line in describe(made))
    assert phase(schedule(more=SLO), "peak").estimate_s == pytest.approx(67 * (1 + 45) / 8)


def test_a_small_load_on_a_slow_engine_takes_minutes() -> None:
    small = workload().workload
    load = msgspec.structs.replace(
        small, prompt_tokens=Lengths(p95=200), output_tokens=Lengths(p95=50), concurrency=4
    )  # fmt: skip
    file = msgspec.structs.replace(workload(), workload=load)
    made = make_schedule(
        file, Limits(max_model_len=512, capacity_tokens=100_000, block_size=16), 0,
        pace=Pace(prefill_tokens_per_s=2000, tpot_s=4 / 60),
    )  # fmt: skip
    assert sum(p.estimate_s or 0.0 for p in made.phases) < 180


def test_ten_thousand_requests_take_a_second() -> None:
    """A generous bound, for slow machines."""
    began = time.process_time()
    made = schedule("arrivals: {process: piecewise, rates: [[0, 160], [60, 0]]}", SLO)
    assert len(phase(made, "tail").requests) == 9600
    assert time.process_time() - began < 3


@pytest.mark.parametrize("processes", [1, 3, 4, 7])
@pytest.mark.parametrize("load", LOADS)
def test_slices_for_processes_are_the_same_schedule(load: str, processes: int) -> None:
    for p in schedule(load).phases:
        if p.requests:
            slices = slices_of(p, processes, Fields(), keeps_alive=True)
            merged = sorted((r for one in slices for r in one.requests), key=lambda r: r.index)
            assert merged == sorted(p.requests, key=lambda r: r.index)
            assert sum(one.places for one in slices) == (p.concurrency or 0)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**31), st.sampled_from(LOADS))
def test_no_two_requests_share_a_first_block_that_is_not_declared(seed: int, load: str) -> None:
    """P83, for the ids that are really sent."""
    seen = set()
    for p in schedule(load, seed=seed, phases=("warm_up", "regular", "peak", "cancel")).phases:
        for r in p.requests:
            own = sum(part.tokens for part in r.parts if part.key == SHARED_KEY)
            ids = prompt_ids(msgspec.structs.replace(r, parts=(*r.parts[:-1], Part(r.parts[-1].key, 16))),
                             seed=seed, vocab_size=999, avoid_ids=(0,))  # fmt: skip
            seen.add(tuple(ids[own : own + 16]))
    assert len(seen) == sum(len(p.requests) for p in schedule(load, seed=seed).phases if p.name in _SHORT)


_SHORT = ("warm_up", "regular", "peak", "cancel")


def test_a_time_nobody_knows_is_no_number() -> None:
    made = schedule()
    assert phase(made, "peak").estimate_s is None
    assert any("not known without objectives" in line for line in describe(made))
    assert any("not known" in note for note in schedule(minutes=5).notes)


def test_arrivals_are_cut_to_the_minutes_even_where_nobody_knows_more() -> None:
    trace = Trace(name="t", rows=tuple(TraceRow(60, 20, float(i)) for i in range(1000)), read=1000)
    made = schedule(trace=trace, minutes=4)
    tail = phase(made, "tail")
    assert 90 <= len(tail.requests) <= 120, "half of the time"
    assert any(note.startswith(f"tail has {len(tail.requests)} requests instead of 1,000") for note in made.notes)
    assert any("not known" in note for note in made.notes)
    assert any("> " in line for line in describe(made) if line.startswith("tail"))


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
    assert made.declared_hit_rate is not None, "the pool holds all of it"
    assert made.figures["ideal_hit_rate"] == made.declared_hit_rate
    small = schedule(trace=trace, limits=msgspec.structs.replace(LIMITS, capacity_tokens=1000))
    assert small.declared_hit_rate is None
    assert small.figures["ideal_hit_rate"] > 0


def test_a_trace_without_times_runs_at_the_target() -> None:
    tail = phase(schedule(trace=Trace(name="t", rows=(TraceRow(60, 20),) * 12, read=12)), "tail")
    assert (tail.mode, tail.concurrency) == ("closed", 8)


def test_a_trace_without_times_comes_at_the_rate_where_there_is_one() -> None:
    trace = Trace(name="t", rows=(TraceRow(60, 20),) * 12, read=12)
    tail = phase(schedule("requests_per_s: 3\n  arrivals: {process: constant}", trace=trace), "tail")
    assert [r.scheduled_s for r in tail.requests] == [i / 3 for i in range(12)]


def test_a_template_and_a_prefix_are_part_of_a_trace_s_prompts() -> None:
    body = b'{"messages": [1]}'
    trace = Trace(name="t", read=3, rows=(TraceRow(60, 20), TraceRow(600, 20, None, (1, 2), 512),
                                          TraceRow(60, 20, None, (), 0, body)))  # fmt: skip
    made = schedule("chat_template_tokens: 9\n  shared_prefix_tokens: 32", trace=trace)
    plain, blocks, recorded = phase(made, "tail").requests
    assert [(p.key, p.tokens) for p in plain.parts] == [("shared", 32), (own_key(plain.index), 37)]
    assert [(p.key, p.tokens) for p in blocks.parts] == [("b1", 512), ("b2", 88), (own_key(blocks.index), 9)]
    assert (recorded.prompt_tokens, recorded.body) == (60, body), "a log counts after the template"
    assert any("9 template tokens are added" in note for note in made.notes)


def test_what_was_read_is_kept_or_counted() -> None:
    rows = tuple(TraceRow(60, 20, float(i)) for i in range(5000))
    made = schedule(trace=Trace(name="t", rows=rows, read=5003, dropped={"no answer tokens": 3}))
    assert len(phase(made, "tail").requests) + sum(made.dropped.values()) == 5003
    assert any("the first 2,000 of 5,000" in note for note in made.notes)


def test_the_trace_is_left_alone_where_the_tail_is_not_played() -> None:
    made = schedule(phases=("peak",), trace=Trace(name="t", rows=(TraceRow(60, 20),), read=1))
    assert (made.dropped, made.figures) == ({}, {})
