"""What a rule is, what it looks at, and how all of them are asked at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from advisor.plan_types import Finding, Severity
from advisor.sizing import Problem, Sized

Consequence = Literal["invalid", "does_not_fit"]


class Hit(msgspec.Struct, frozen=True):
    """A rule that applies: what is so, and the one change that helps."""

    message: str
    remedy: str = ""


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """One question to the rules about a configuration."""

    problem: Problem
    sized: Sized
    is_met: bool  # it starts and promises the target


class InputRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of model, GPU, version, load and pins. `consequence` is what a plan that breaks it becomes."""

    code: str
    severity: Severity
    check: Callable[[Problem], Hit | None]
    source: str
    consequence: Consequence | None = None


class PlanRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of the configuration chosen, its layout and its memory."""

    code: str
    severity: Severity
    check: Callable[[Planned], Hit | None]
    source: str
    consequence: Consequence | None = None


class Verdicts(msgspec.Struct, frozen=True):
    """Every rule that applies, worst first, and the gravest consequence."""

    findings: tuple[Finding, ...]
    consequence: Consequence | None


_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}
_GRAVITY: dict[Consequence, int] = {"invalid": 2, "does_not_fit": 1}


def judge(
    problem: Problem, planned: Planned | None, inputs: Sequence[InputRule], plans: Sequence[PlanRule]
) -> Verdicts:
    """Ask every rule; without a configuration only those about the inputs."""
    hits: list[tuple[InputRule | PlanRule, Hit | None]] = [(rule, rule.check(problem)) for rule in inputs]
    if planned is not None:
        hits += [(rule, rule.check(planned)) for rule in plans]
    met = [(rule, hit) for rule, hit in hits if hit is not None]
    return Verdicts(in_order(_finding(rule, hit) for rule, hit in met), gravest(rule.consequence for rule, _ in met))


def _finding(rule: InputRule | PlanRule, hit: Hit) -> Finding:
    return Finding(code=rule.code, severity=rule.severity, message=hit.message, remedy=hit.remedy, source=rule.source)


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first, then warnings, then notes; within them as asked, each code and message once."""
    unique = {(finding.code, finding.message): finding for finding in findings}
    return tuple(sorted(unique.values(), key=lambda finding: _ORDER[finding.severity]))


def gravest(consequences: Iterable[Consequence | None]) -> Consequence | None:
    """The consequence that decides: refused before too small."""
    return max((c for c in consequences if c is not None), key=_GRAVITY.__getitem__, default=None)
