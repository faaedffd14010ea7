"""What holds for every run: no traceback, no verdict that gets better because less is known or more has failed."""

from __future__ import annotations

import math
import random
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.server_metrics import ALIASES, ServerMetrics
from tests.verify.judge import cases_engine, cases_load, cases_objectives, cases_pool
from tests.verify.judge.changes import Case
from tests.verify.runs import MARKS, PLANNED, SERVED, THRESHOLDS, answer, failed, healthy
from verify.client.types import ClientFacts
from verify.judge.evidence import FAILURES
from verify.judge.thresholds import Thresholds
from verify.judge.types import Verdict
from verify.judge.verdict import decide, judge
from verify.load.types import PhaseName
from verify.record.types import Ending, GpuMemory, LogEvent, LogWatch, Outcome, PhaseMark, RequestRow, Run, Snapshot
from verify.reports.writer import report_files

CASES = [*cases_load.CASES, *cases_engine.CASES, *cases_pool.CASES, *cases_objectives.CASES]
NO_PASS = [case for case in CASES if case.verdict != "pass"]
PHASES, OUTCOMES, ENDINGS = get_args(PhaseName), get_args(Outcome), get_args(Ending)
METRICS = sorted(ALIASES)
few = settings(max_examples=1500, deadline=None, derandomize=False, suppress_health_check=list(HealthCheck))

odd = st.one_of(st.none(), st.sampled_from([0.0, -1.0, math.nan, math.inf, -math.inf, 1e18]), st.floats(0, 200))
number = st.one_of(st.none(), st.integers(0, 3000))
phase = st.sampled_from(PHASES)
rows = st.builds(
    RequestRow, index=st.integers(0, 50), phase=phase, prompt_tokens=st.integers(0, 3000),
    output_tokens=st.integers(0, 3000), outcome=st.sampled_from(OUTCOMES), scheduled_s=odd, sent_s=odd,
    first_token_s=odd, last_token_s=odd, ended_s=odd, first_chunk_tokens=number, max_stall_s=odd,
    chunk_gaps_s=st.none(), served_prompt_tokens=number, served_output_tokens=number, served_cached_tokens=number,
    streamed_tokens=st.integers(0, 3000), chunks=st.integers(0, 5), status=number, finish_reason=st.none(),
    error=st.one_of(st.none(), st.text(max_size=20)), retries=st.integers(0, 2), process=st.just(0),
    is_recorded=st.booleans(),
)  # fmt: skip
metrics = st.builds(
    ServerMetrics, at_s=odd, **dict.fromkeys(METRICS, odd), engines=st.integers(0, 3),
    cache=st.dictionaries(st.sampled_from(["num_gpu_blocks", "block_size"]), st.text("0123456789x", max_size=4)),
    by_reason=st.dictionaries(st.text(max_size=3), st.floats()),
    waiting_by_reason=st.just({}),
)  # fmt: skip
looks = st.builds(
    Snapshot, at_s=st.floats(0, 200), phase=st.one_of(st.none(), phase), metrics=st.one_of(st.none(), metrics),
    error=st.one_of(st.none(), st.text(max_size=5)), scrape_s=odd, is_healthy=st.one_of(st.none(), st.booleans()),
    resident_bytes=st.one_of(st.none(), st.integers(0, 10**12)),
    gpus=st.one_of(st.none(), st.just(()), st.just((GpuMemory("g", 5, 10),))),
)  # fmt: skip
marks = st.builds(
    PhaseMark, name=phase, began_s=st.floats(0, 200), ended_s=st.one_of(st.none(), st.floats(0, 200)),
    concurrency=st.one_of(st.none(), st.integers(0, 9)), mode=st.sampled_from(["open", "closed", "idle"]),
    planned_requests=st.integers(0, 9),
)  # fmt: skip
facts = st.builds(
    ClientFacts, phase=phase, processes=st.just(1), loop=st.just("asyncio"), wall_s=st.just(1.0), cpu_s=st.just(1.0),
    cpu_fraction=st.floats(0, 2), loop_lag_p99_s=odd, max_in_flight=st.integers(0, 9), connections=st.just(1),
    coalesced_fraction=odd, stopped_early=st.booleans(),
)  # fmt: skip
logs = st.one_of(
    st.none(),
    st.builds(
        LogWatch, path=st.just("x"), readable=st.booleans(),
        events=st.lists(st.builds(LogEvent, kind=st.sampled_from(["jit", "oom", "engine_dead", "x"]), line=st.text(),
                                  at_s=odd, message=st.text(), remedy=st.text()), max_size=2).map(tuple),
    ),
)  # fmt: skip
runs = st.builds(
    Run, schema=st.just("kvadvise.run/1"), kvadvise_version=st.just("0"), started_at=st.text(max_size=10),
    schedule_sha256=st.just(""), seed=st.just(0), workload_name=st.one_of(st.none(), st.text(max_size=9)),
    planned=st.sampled_from([None, PLANNED, msgspec.structs.replace(PLANNED, num_blocks=0, blocks_per_request=0)]),
    served=st.sampled_from([SERVED, msgspec.structs.replace(SERVED, num_blocks=None, block_size=None)]),
    rows=st.lists(rows, max_size=12).map(tuple), snapshots=st.lists(looks, max_size=12).map(tuple),
    marks=st.lists(marks, max_size=9).map(tuple), client=st.lists(facts, max_size=3).map(tuple), log=logs,
    engine_exit=st.one_of(st.none(), st.text(max_size=9)), is_local=st.booleans(), ended=st.sampled_from(ENDINGS),
    ending_text=st.text(max_size=9), declared_hit_rate=st.one_of(st.none(), st.floats(0, 1)),
    unsendable_requests=st.integers(0, 2), dropped=st.just({}), load_figures=st.just({}), environment=st.just({}),
)  # fmt: skip
limits = st.builds(
    Thresholds, concurrency=st.integers(1, 9), requests_per_s=st.one_of(st.none(), st.just(2.0)),
    shared_prefix_tokens=st.integers(0, 40), load=st.just({}),
    objectives=st.dictionaries(st.sampled_from(["ttft_p95_s", "tpot_p99_s", "e2e_p95_s"]), st.floats(0.001, 9)),
    levels=st.just({}), over_limit=st.sampled_from(["error", "warn", "allow"]),
    stall_s_max=st.one_of(st.none(), st.just(1.0)), slo_attainment_min=st.one_of(st.none(), st.floats(0.01, 1)),
    success_rate_min=st.one_of(st.none(), st.floats(0.01, 1)), drain_s_max=st.one_of(st.none(), st.just(2.0)),
    kv_full_s_max=st.one_of(st.none(), st.just(2.0)), gpu_memory_free_bytes_min=st.one_of(st.none(), st.just(4)),
)  # fmt: skip


@settings(max_examples=3000, deadline=None, derandomize=False, suppress_health_check=list(HealthCheck))
@given(runs, limits)
def test_every_run_has_a_verdict_and_reports(run: Run, held: Thresholds) -> None:
    verdict = judge(run, held)
    assert verdict.verdict in ("pass", "fail", "inconclusive")
    assert all(check.reason for check in verdict.checks)
    assert len(report_files(verdict)) == 5
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict).summary == verdict.summary


@few
@given(st.sampled_from(NO_PASS), st.sets(st.sampled_from(METRICS), min_size=1, max_size=3))
def test_a_metric_less_is_never_a_pass(case: Case, names: set[str]) -> None:
    run = case.run()
    gone: dict[str, Any] = dict.fromkeys(names)
    seen = tuple(
        msgspec.structs.replace(
            s, metrics=msgspec.structs.replace(s.metrics, **gone) if s.metrics is not None else None
        )
        for s in run.snapshots
    )
    assert judge(msgspec.structs.replace(run, snapshots=seen), case.held_against()).verdict != "pass"


@few
@given(st.sampled_from(NO_PASS), st.integers(0, 2**32))
def test_looks_that_bring_nothing_are_never_a_pass(case: Case, seed: int) -> None:
    """Half of all looks fail, wherever they are."""
    run, rng = case.run(), random.Random(seed)  # noqa: S311
    seen = tuple(
        msgspec.structs.replace(s, metrics=None, error="x", is_healthy=True) if rng.random() < 0.6 else s
        for s in run.snapshots
    )
    assert judge(msgspec.structs.replace(run, snapshots=seen), case.held_against()).verdict != "pass"


_RANK = {"fail": 0, "unknown": 1, "not_applicable": 2, "pass": 2}


@few
@given(st.sampled_from(CASES), st.integers(0, 2**32), st.sampled_from([o for o in FAILURES if o != "wrong_length"]))
def test_a_failure_more_is_never_better(case: Case, seed: int, outcome: str) -> None:
    run, rng = case.run(), random.Random(seed)  # noqa: S311
    share = rng.random() ** 3
    worse = tuple(
        failed(row, outcome) if row.outcome == "ok" and rng.random() < share else row for row in run.rows
    )  # fmt: skip
    before = judge(run, case.held_against())
    after = judge(msgspec.structs.replace(run, rows=worse), case.held_against())
    if not {"failures_max", "success_rate_min"} & set(case.limits):
        assert before.verdict == "pass" or after.verdict != "pass"
    for old, new in zip(before.checks, after.checks, strict=True):
        if old.id == "requests_completed" or old.id in THRESHOLDS.objectives:
            assert _RANK[new.status] <= _RANK[old.status], (old, new)


@few
@given(st.sampled_from(CASES), st.randoms(use_true_random=False))
def test_the_order_of_rows_and_looks_says_nothing(case: Case, rng: random.Random) -> None:
    run = case.run()
    shuffled_rows, shuffled_looks = list(run.rows), list(run.snapshots)
    rng.shuffle(shuffled_rows)
    rng.shuffle(shuffled_looks)
    again = msgspec.structs.replace(run, rows=tuple(shuffled_rows), snapshots=tuple(shuffled_looks))
    held = case.held_against()
    assert [c.status for c in judge(again, held).checks] == [c.status for c in judge(run, held).checks]


@few
@given(st.sampled_from(CASES), st.floats(-1e6, 1e6))
def test_where_the_clock_begins_says_nothing(case: Case, shift: float) -> None:
    """Unless the shift is so large that floating point eats the milliseconds."""
    run = case.run()

    def moved(value: Any) -> Any:
        names = [n for n in value.__struct_fields__ if n.endswith("_s") and n not in _LENGTHS]
        given_ = {n: getattr(value, n) + shift for n in names if getattr(value, n) is not None}
        return msgspec.structs.replace(value, **given_)

    again = msgspec.structs.replace(
        run,
        rows=tuple(moved(row) for row in run.rows),
        snapshots=tuple(moved(seen) for seen in run.snapshots),
        marks=tuple(moved(mark) for mark in run.marks),
    )
    held = case.held_against()
    before, after = judge(run, held), judge(again, held)
    close = {"unsettled", "P67-frozen", "full-and-allowed", "full-too-long"}
    if case.name not in close:
        assert [c.status for c in after.checks] == [c.status for c in before.checks]


_LENGTHS = ("max_stall_s", "chunk_gaps_s", "scrape_s")


class TestDecide:
    """The order of contracts section 4, on checks alone."""

    @staticmethod
    def statuses(**changed: str) -> str:
        checks = judge(healthy(), THRESHOLDS).checks
        return decide([msgspec.structs.replace(c, status=changed.get(c.id, c.status)) for c in checks])[0]

    @pytest.mark.parametrize(
        ("changed", "verdict"),
        [
            ({}, "pass"),
            ({"no_oom": "fail", "workload_reproduced": "unknown", "kv_peak": "unknown"}, "fail"),
            ({"engine_alive": "fail", "client_kept_up": "unknown"}, "fail"),
            ({"preemptions": "fail", "client_kept_up": "unknown"}, "inconclusive"),
            ({"preemptions": "fail", "kv_peak": "unknown"}, "fail"),
            ({"kv_peak": "unknown"}, "inconclusive"),
            ({"no_oom": "unknown"}, "inconclusive"),
            ({"memory_steady": "fail", "kv_use_as_planned": "unknown"}, "pass"),
            ({"gpu_memory_headroom": "not_applicable"}, "pass"),
        ],
    )
    def test_order(self, changed: dict[str, str], verdict: str) -> None:
        assert self.statuses(**changed) == verdict


def test_many_requests_are_judged_quickly() -> None:
    """100,000 rows: a run is judged again while one waits for it."""
    import time

    many = [answer(n, "tail", 66.1 + n / 2000, scheduled=66.1 + n / 2000, prompt=400) for n in range(100_000)]
    run = msgspec.structs.replace(healthy(marks=MARKS), rows=tuple(many))
    began = time.perf_counter()
    judge(run, THRESHOLDS)
    assert time.perf_counter() - began < 20.0
