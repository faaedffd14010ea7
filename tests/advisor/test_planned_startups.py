"""Whole plans beside public start-up logs: what issue reports call accuracy, with the log's own weights."""

from __future__ import annotations

from statistics import median

from tools.planned_startups import Planned, planned_startups


def _graded() -> list[Planned]:
    return [p for p in planned_startups() if p.row.grade == "A"]


def test_pools_lie_where_the_plan_says() -> None:
    errors = sorted(abs(p.pool_error) for p in _graded() if p.pool_error is not None)
    held = [p.pool_held for p in _graded() if p.pool_held is not None]
    assert len(errors) >= 30
    assert median(errors) < 0.01
    assert errors[int(0.9 * (len(errors) - 1))] < 0.05
    assert sum(held) >= 0.9 * len(held)


def test_hybrids_hold_as_many_requests_as_vllm_prints() -> None:
    errors = [p.concurrency_error for p in _graded() if p.row.family == "hybrid" and p.concurrency_error is not None]
    assert len(errors) >= 6
    assert max(map(abs, errors)) < 0.02


def test_no_start_that_worked_is_foretold_to_fail_and_none_that_failed_to_work() -> None:
    worked = [p for p in _graded() if p.row.outcome == "started"]
    failed = [p for p in _graded() if p.row.outcome == "kv_insufficient"]
    assert len(worked) >= 28
    assert [p.logged.id for p in worked if p.plan.starts is False] == []
    assert sum(p.plan.starts is None for p in worked) <= 0.15 * len(worked)
    assert failed
    assert [p.logged.id for p in failed if p.plan.starts is True] == []


def test_weights_from_the_config_are_those_the_log_prints() -> None:
    plans = planned_startups(weights_stated=False)
    errors = sorted(abs(p.weights_error) for p in plans if p.weights_error is not None)
    assert len(errors) >= 28
    assert median(errors) < 0.005
    assert errors[int(0.9 * (len(errors) - 1))] < 0.03
