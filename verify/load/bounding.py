"""How long a schedule may take, and how many requests are left out where that is longer than is allowed.

Nobody knows before the run how fast the server is. Where a pace was measured, a phase is reckoned at it; else at the
workload's objectives, which is how long it takes a server that just meets them; else its time is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from advisor.workload import Slo
from verify.load.types import Pace, Phase, PhaseName, PlannedRequest

AT_OBJECTIVES = "for a server that just meets the objectives"
AT_PACE = "at the pace measured"
_ROUNDS = 4  # an open loop does not get shorter in step with its requests
OF_UNKNOWN = 0.5  # for arrivals, where nobody knows how long the server takes
_OF_MINUTES = 0.9  # the rest is for requests that end late, and for the engine to become idle between phases
Estimate = Callable[[Phase], float | None]


class Step(msgspec.Struct, frozen=True):
    """A phase may be cut to so many requests; `cost` is what it then cannot show, in words, empty where nothing."""

    phase: PhaseName
    fewest: int
    cost: str = ""


def steps(concurrency: int, resolve: int, herd: int) -> tuple[Step, ...]:
    """In which order phases are cut: first what only adds to certainty, then what a check is decided by."""
    return (
        Step("tail", max(60, resolve + herd if resolve else 0)),
        Step("peak", 3 * concurrency, "less of the pool is written over"),
        Step("regular", 4),
        Step("tail", 20, "objectives may stay unsettled" if resolve else ""),
        Step("peak", concurrency, "the pool may not be written over once"),
        Step("warm_up", 1, "what the server compiles late is measured with the load"),
        Step("long", 1, "the longest answer is not asked for"),
    )


def estimator(slo: Slo, pace: Pace | None) -> tuple[Estimate, str]:
    """What tells a phase's seconds, and whose they are in words; empty where nobody knows."""
    if pace is not None:
        return (lambda phase: _at_pace(phase, pace)), AT_PACE
    is_known = _took(slo, 1) is not None
    return (lambda phase: _at_objectives(phase, slo)), AT_OBJECTIVES if is_known else ""


def _at_pace(phase: Phase, pace: Pace) -> float | None:
    """Prompts one after another at the pace of prefill, answers side by side."""
    if phase.mode == "idle":
        return phase.estimate_s
    prompts = sum(r.prompt_tokens for r in phase.requests if r.expect != "refusal") / pace.prefill_tokens_per_s
    if phase.mode == "open":
        ends = [(r.scheduled_s or 0.0) + pace.tpot_s * _answered(r) for r in phase.requests]
        return max(prompts, max(ends, default=0.0))
    return prompts + pace.tpot_s * sum(map(_answered, phase.requests)) / (phase.concurrency or 1)


def _answered(request: PlannedRequest) -> int:
    """Tokens it gets: none where it is refused, what its client waits for where that leaves."""
    if request.expect == "cancel":
        return request.cancel_after_tokens or 0
    return request.output_tokens if request.expect == "answer" else 0


def _at_objectives(phase: Phase, slo: Slo) -> float | None:
    if phase.mode == "idle":
        return phase.estimate_s
    took = [_took(slo, _answered(request)) for request in phase.requests]
    known = [seconds for seconds in took if seconds is not None]
    if len(known) < len(took):
        return None
    if phase.mode == "open":
        return max(((r.scheduled_s or 0.0) + t for r, t in zip(phase.requests, known, strict=True)), default=0.0)
    return sum(known) / (phase.concurrency or 1)


def _took(slo: Slo, output_tokens: int) -> float | None:
    """Seconds that the objectives allow an answer; what is tighter of their sum and the whole."""
    first = next((s for s in (slo.ttft_p50_s, slo.ttft_p95_s, slo.ttft_p99_s) if s is not None), None)
    each = next((s for s in (slo.tpot_p50_s, slo.tpot_p95_s, slo.tpot_p99_s) if s is not None), None)
    whole = next((s for s in (slo.e2e_p95_s, slo.e2e_p99_s) if s is not None), None)
    parts = first + each * output_tokens if first is not None and each is not None else None
    return min((s for s in (parts, whole) if s is not None), default=None)


def at_least_s(phase: Phase) -> float:
    """Seconds a phase takes whatever the server does: until its last request is due."""
    if phase.mode == "idle":
        return phase.estimate_s or 0.0
    return max((r.scheduled_s or 0.0 for r in phase.requests), default=0.0)


def caps(
    make: Callable[[Mapping[PhaseName, int]], Sequence[Phase]],
    order: Sequence[Step],
    minutes: float,
    estimate: Estimate,
    share: float = _OF_MINUTES,
) -> tuple[dict[PhaseName, int], tuple[str, ...]]:
    """How many requests phases may have at most for the run to end in time, and what that costs, in words. `make` makes
    the phases with at most so many requests, `share` of the minutes is theirs.
    """
    allowed_s = 60 * minutes * share
    first = phases = make({})
    cut: dict[PhaseName, int] = {}
    costs: dict[PhaseName, str] = {}
    for _ in range(_ROUNDS):
        if _total_s(phases, estimate) <= allowed_s:
            break
        cut |= _shorter(phases, order, allowed_s, estimate, costs)
        phases = make(cut)
    counts = {phase.name: len(phase.requests) for phase in first}
    notes = [
        f"{name} has {kept:,} requests instead of {counts[name]:,}, to end in {minutes:g} minutes"
        + (f": {costs[name]}" if costs[name] else "")
        for name, kept in cut.items()
    ]
    total_s = _total_s(phases, estimate)
    if total_s > 60 * minutes:
        notes.append(f"it needs {total_s / 60:.1f} minutes even so; it is ended after {minutes:g}, whatever is left")
    return cut, tuple(notes)


def _total_s(phases: Sequence[Phase], estimate: Estimate) -> float:
    return sum(estimate(phase) or 0.0 for phase in phases)


def _shorter(
    phases: Sequence[Phase], order: Sequence[Step], allowed_s: float, estimate: Estimate, costs: dict[PhaseName, str]
) -> dict[PhaseName, int]:
    """Phases that must have fewer requests, and how many."""
    times = {phase.name: estimate(phase) or 0.0 for phase in phases}
    counts = {phase.name: len(phase.requests) for phase in phases}
    cut: dict[PhaseName, int] = {}
    for step in order:
        over_s = sum(times.values()) - allowed_s
        n, seconds = counts.get(step.phase, 0), times.get(step.phase, 0.0)
        if over_s <= 0 or n <= step.fewest or not seconds:
            continue
        kept = max(step.fewest, int(n * max(0.0, seconds - over_s) / seconds))
        times[step.phase] *= kept / n
        cut[step.phase] = counts[step.phase] = kept
        costs[step.phase] = step.cost or costs.get(step.phase, "")
    return cut
