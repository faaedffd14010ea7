"""The part of a trace that is replayed is the one asked for, and what was changed or left out is said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.workload import TraceCut, WorkloadFile
from advisor.workload_yaml import read_workload
from verify.load.arrivals import figures
from verify.load.hits import sharing
from verify.load.schedule import make_schedule
from verify.load.trace_cut import cut
from verify.load.trace_file import read_trace
from verify.load.trace_types import Trace, TraceRow
from verify.load.types import Limits

SHARED = Path(os.environ.get("KVADVISE_SHARED", Path(__file__).resolve().parents[4] / "shared"))
WORKLOAD = """\
model: Qwen/Qwen2.5-7B-Instruct
gpu: L40S
workload:
  prompt_tokens: {p95: 6000}
  output_tokens: {p95: 900}
  concurrency: 8
  trace: {file: t.csv, from_s: 1}
"""


def workload(**wanted: Any) -> WorkloadFile:
    made = read_workload(WORKLOAD, "w.yaml")
    load = msgspec.structs.replace(made.workload, trace_cut=TraceCut(**wanted) if wanted else None)
    return msgspec.structs.replace(made, workload=load)


def every_second(n: int, **more: Any) -> Trace:
    return Trace(name="t.csv", rows=tuple(TraceRow(i + 1, 5, float(i)) for i in range(n)), read=n, **more)


def test_all_of_a_short_trace_is_replayed_as_it_is() -> None:
    found = cut(every_second(50), workload(), 1)
    assert (found.rows, found.dropped, found.notes) == (every_second(50).rows, {}, ())


def test_a_window_counts_from_its_begin() -> None:
    found = cut(every_second(100), workload(from_s=10.0, until_s=40.0), 1)
    assert [(row.prompt_tokens, row.at_s) for row in found.rows[:2]] == [(11, 0.0), (12, 1.0)]
    assert len(found.rows) == 30
    assert found.dropped == {"before second 10": 10, "from second 40 on": 60}


def test_thinning_keeps_the_shape_and_scaling_does_not() -> None:
    thin = cut(every_second(1000), workload(keep_fraction=0.25), 1)
    assert len(thin.rows) == pytest.approx(250, abs=50)
    assert {row.at_s for row in thin.rows} <= {float(i) for i in range(1000)}
    fast = cut(every_second(100), workload(time_scale=0.5), 1)
    assert [row.at_s for row in fast.rows[:3]] == [0.0, 0.5, 1.0]
    assert any("2 times the rate, and pauses and sessions are shorter" in note for note in fast.notes)
    assert any("0.25 of its requests" in note for note in thin.notes)
    assert [row.prompt_tokens for row in thin.rows] != [
        row.prompt_tokens for row in cut(every_second(1000), workload(keep_fraction=0.25), 2).rows
    ]


@given(
    st.integers(0, 300), st.floats(0, 200), st.floats(1, 400), st.floats(0.05, 1), st.integers(1, 100),
    st.integers(0, 2**31),
)  # fmt: skip
def test_rows_are_kept_or_counted(n: int, start: float, length: float, share: float, most: int, seed: int) -> None:
    wanted = workload(from_s=start, until_s=start + length, keep_fraction=share, requests_max=most)
    trace = every_second(n, dropped={"no time": 2})
    try:
        found = cut(msgspec.structs.replace(trace, read=n + 2), wanted, seed)
    except InvalidInput as error:
        assert "no request of t.csv is left" in str(error)  # noqa: PT017 (it may raise, and then says why)
        return
    assert found.read == n + 2 == len(found.rows) + sum(found.dropped.values())
    assert 0 < len(found.rows) <= most
    assert all(0 <= (row.at_s or 0.0) < length for row in found.rows)


@given(st.integers(0, 2**31))
def test_a_coarse_clock_s_steps_are_filled(seed: int) -> None:
    rows = tuple(TraceRow(i + 1, 5, 3.0 * (i // 4)) for i in range(12))
    found = cut(Trace(name="t", rows=rows, read=12, step_s=3.0), workload(), seed)
    times = [row.at_s or 0.0 for row in found.rows]
    assert times == sorted(times)
    assert [int(at // 3) for at in times] == [0] * 4 + [1] * 4 + [2] * 4
    assert [row.prompt_tokens for row in found.rows] == list(range(1, 13)), "what shares a time keeps its order"
    assert "12 requests at 3 times" in found.notes[0]


@pytest.mark.parametrize("name", ["from_s", "until_s", "time_scale"])
def test_what_needs_times_is_refused_without_them(name: str) -> None:
    untimed = Trace(name="t.csv", rows=(TraceRow(5, 5),), read=1)
    with pytest.raises(InvalidInput, match=rf"w.yaml.*{name}: t.csv has no times"):
        cut(untimed, workload(**{name: 3.0}), 1)
    assert len(cut(untimed, workload(requests_max=5), 1).rows) == 1


def test_a_window_without_requests_names_the_key() -> None:
    with pytest.raises(InvalidInput, match=r"w.yaml:7: workload.trace: no request of t.csv is left"):
        cut(every_second(5), workload(from_s=100.0), 1)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published traces are not beside the checkout")
def test_azure_within_a_minute_is_poisson_and_over_minutes_is_not() -> None:
    trace = read_trace(SHARED / "traces" / "AzureLLMInferenceTrace_conv.csv")
    found = figures([row.at_s or 0.0 for row in trace.rows])
    assert found["rate_per_s"] == pytest.approx(5.53, abs=0.01)
    assert found["dispersion_60s"] > 10


@pytest.mark.skipif(not SHARED.is_dir(), reason="the published traces are not beside the checkout")
def test_mooncake_shares_what_its_ids_say() -> None:
    """A third of the blocks in the first 25 minutes, counted apart; 0.37 over the whole hour."""
    trace = read_trace(SHARED / "traces" / "mooncake_conversation_first25min.jsonl")
    seen: set[int | str] = set()
    blocks = hits = 0
    for row in trace.rows:
        known = next((n for n, block in enumerate(row.blocks) if block not in seen), len(row.blocks))
        blocks, hits = blocks + len(row.blocks), hits + known
        seen |= set(row.blocks)
    assert hits / blocks == pytest.approx(0.3336, abs=0.0001)
    limits = Limits(max_model_len=200_000, capacity_tokens=10**9, block_size=512)
    made = make_schedule(workload(requests_max=5000), limits, 0, phases=("tail",), trace=trace)
    assert len(made.phases[1].requests) == 4665
    assert sharing(made.phases, 512).rate == pytest.approx(0.3336, abs=0.02)
    assert made.declared_hit_rate == made.figures["ideal_hit_rate"]
    assert made.figures["gap_cv"] == pytest.approx(1, abs=0.05), "spread over its steps, not ten at once every 3 s"
