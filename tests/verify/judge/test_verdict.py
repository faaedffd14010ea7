"""The verdict of whole runs: the healthy one, those that ended early, and the order in which things are decided."""

from __future__ import annotations

from typing import Any

from tests.verify.runs import PLANNED, THRESHOLDS, healthy
from verify.judge.verdict import engine_did_not_start, judge


def test_a_healthy_run_passes() -> None:
    verdict = judge(healthy(), THRESHOLDS)
    assert verdict.verdict == "pass", verdict.summary
    assert verdict.summary == "every check holds: 179 answers, 600 of 1,000 KV blocks at the peak (60%), no preemption"


def test_the_same_run_has_the_same_verdict() -> None:
    assert judge(healthy(), THRESHOLDS) == judge(healthy(), THRESHOLDS)


def not_started(code: str | None, **more: Any) -> Any:
    diagnosis = {"code": code, "message": "why", "remedy": "what helps", "evidence": None} if code is not None else None
    return engine_did_not_start(
        diagnosis, PLANNED, THRESHOLDS, kvadvise_version="0", started_at="2026-01-02T03:04:05+00:00", **more
    )


def test_an_engine_that_did_not_start() -> None:
    verdict = not_started("unknown-argument", seconds=9.5)
    statuses = {check.id: check.status for check in verdict.checks}
    assert (verdict.verdict, verdict.summary) == ("fail", "the engine did not start: why")
    assert statuses["engine_alive"] == "fail"
    assert set(statuses.values()) <= {"fail", "unknown", "not_applicable"}
    assert [name for name, status in statuses.items() if status == "fail"] == ["engine_alive"]
    assert set(statuses) == {check.id for check in judge(healthy(), THRESHOLDS).checks}
    assert verdict.diagnosis == {"code": "unknown-argument", "message": "why", "remedy": "what helps", "evidence": None}
    assert (verdict.run["seconds"], verdict.run["ended"]) == (9.5, "engine_did_not_start")


def test_memory_that_ran_out_at_the_start_is_said_to_have() -> None:
    for code in ("oom-profiling", "killed-by-host", "sampler-warmup"):
        statuses = {check.id: check.status for check in not_started(code).checks}
        assert (statuses["engine_alive"], statuses["no_oom"]) == ("fail", "fail")


def test_nobody_at_the_address_and_nothing_known() -> None:
    assert not_started("unreachable").summary == "why"
    assert not_started(None).summary == "the engine did not start: no reason was found in its log"
