"""Every check in every status it can have, each by one change to a healthy run."""

from __future__ import annotations

import pytest

from advisor.gate_keys import FIXED, GATE, LOWERABLE
from tests.verify.judge import cases_engine, cases_load, cases_objectives, cases_pool
from tests.verify.judge.changes import Case
from tests.verify.runs import THRESHOLDS, healthy
from verify.judge.thresholds import Thresholds
from verify.judge.types import Check
from verify.judge.verdict import judge

CASES = [*cases_load.CASES, *cases_engine.CASES, *cases_pool.CASES, *cases_objectives.CASES]
VALIDITY = {
    *("workload_reproduced", "cache_hits_as_declared", "client_kept_up", "counters_agree", "no_restart"),
    "run_complete",
}
# Statuses a check cannot have, beside a validity's "fail".
NEVER = {
    ("engine_alive", "not_applicable"),
    ("no_oom", "not_applicable"),
    ("requests_completed", "not_applicable"),
    ("preemptions", "not_applicable"),
    ("kv_peak", "not_applicable"),
    ("kv_released", "not_applicable"),
    ("queue_drains", "not_applicable"),
    *((name, "not_applicable") for name in ("workload_reproduced", "client_kept_up", "counters_agree", "no_restart")),
}


def found(case: Case) -> tuple[Check, str, str]:
    verdict = judge(case.run(), case.held_against())
    (check,) = [check for check in verdict.checks if check.id == case.check]
    return check, verdict.verdict, verdict.summary


@pytest.mark.parametrize("case", CASES, ids=[f"{case.check}-{case.name}" for case in CASES])
def test_case(case: Case) -> None:
    check, verdict, summary = found(case)
    assert check.status == case.status, check.reason
    assert verdict == case.verdict, summary
    said = f"{check.reason} -> {check.remedy}"
    assert [part for part in case.tells if part not in said] == [], said


def test_names_are_given_once() -> None:
    names = [(case.check, case.name) for case in CASES]
    assert len(names) == len(set(names))


def test_every_check_is_tried_in_every_status_it_can_have() -> None:
    tried = {(case.check, case.status) for case in CASES}
    ids = {check.id for check in judge(healthy(), THRESHOLDS).checks} - {"tpot_p95_s", "e2e_p95_s"}
    missing = {
        (name, status)
        for name in ids
        for status in ("pass", "fail", "unknown", "not_applicable")
        if (name, status) not in tried
        and (name, status) not in NEVER
        and not (name in VALIDITY and status == "fail")
        and not (name.startswith("ttft") and status == "not_applicable")
    }
    assert missing == set()


def test_validity_never_fails() -> None:
    for case in CASES:
        for check in judge(case.run(), case.held_against()).checks:
            assert not (check.is_validity and check.status == "fail")
            if check.id != "run_complete":
                assert check.is_validity == (check.id in VALIDITY)


def test_ids_are_those_that_a_file_may_name_and_their_order_is_fixed() -> None:
    ids = [check.id for check in judge(healthy(), THRESHOLDS).checks]
    assert set(ids) <= {*LOWERABLE, *FIXED}
    assert [check.id for check in judge(healthy(rows=[], marks=()), THRESHOLDS).checks] == ids
    always = {
        *("engine_alive", "no_oom", "requests_completed", "preemptions", "kv_peak", "queue_drains"),
        *("blocks_as_planned", "workload_reproduced", "cache_hits_as_declared", "client_kept_up", "kv_released"),
        *("over_limit_rejected", "gpu_memory_headroom"),
    }
    assert always <= set(ids)


def test_every_gate_key_has_an_effect() -> None:
    """Some case is judged otherwise under a value of it than under none."""
    used = {name for case in CASES for name in case.limits}
    assert set(GATE) - {"levels", "over_limit"} <= used
    assert set(GATE) <= set(Thresholds.__struct_fields__)
    for case in CASES:
        if not set(case.limits) & set(GATE):
            continue
        run = case.run()
        with_key = {c.id: (c.status, c.level) for c in judge(run, case.held_against()).checks}
        without = {c.id: (c.status, c.level) for c in judge(run, THRESHOLDS).checks}
        assert with_key.keys() ^ without.keys() or with_key != without or case.name in _SAME_BY_DEFAULT, case.name


# The value is the default, or is kept: what it bounds is what holds without it.
_SAME_BY_DEFAULT = {
    *("some-may-fail", "share-met", "every-single-one", "full-and-allowed", "idle-in-time", "no-objective"),
    *("P80-503", "share-and-count", "P77-any-above-5-percent"),
}


def test_what_the_schedule_could_not_do_is_told() -> None:
    verdict = judge(healthy(load_notes=("the pool is not turned over twice",)), THRESHOLDS)
    assert "the pool is not turned over twice" in verdict.notes
    assert verdict.verdict == "pass"
