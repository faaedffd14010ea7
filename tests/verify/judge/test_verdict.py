"""The verdict of whole runs: the healthy one, those that ended early, and the order in which things are decided."""

from __future__ import annotations

from tests.verify.runs import THRESHOLDS, healthy
from verify.judge.verdict import judge


def test_a_healthy_run_passes() -> None:
    verdict = judge(healthy(), THRESHOLDS)
    assert verdict.verdict == "pass", verdict.summary
    assert verdict.summary == "every check holds: 179 answers, 600 of 1,000 KV blocks at the peak (60%), no preemption"


def test_the_same_run_has_the_same_verdict() -> None:
    assert judge(healthy(), THRESHOLDS) == judge(healthy(), THRESHOLDS)
