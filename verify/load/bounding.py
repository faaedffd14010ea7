"""How long a schedule may take, and what is left out where that is longer than is allowed.

Nobody knows before the run how fast the server is. Where the workload has objectives a phase is reckoned at them, which
is how long it takes a server that just meets them; without objectives its time is not known.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from advisor.workload import Slo
from verify.load.types import Phase

_SHRINKS = ("tail", "peak")  # in this order; the others are short and each asks something of its own
_FEWEST = {"tail": 20, "peak": 1}  # and the peak's places, once each


def bounded(phases: Sequence[Phase], slo: Slo, minutes: float | None) -> tuple[list[Phase], tuple[str, ...]]:
    """The phases with their times, cut to `minutes` where that is possible, and what was cut, in words."""
    timed = [msgspec.structs.replace(phase, estimate_s=estimate_s(phase, slo)) for phase in phases]
    if minutes is None:
        return timed, ()
    if not any(value is not None for value in msgspec.structs.asdict(slo).values()):
        return timed, (
            f"how long it takes is not known without objectives under slo: it ends after {minutes:g} minutes",
        )
    notes: list[str] = []
    for name in _SHRINKS:
        over_s = sum(phase.estimate_s or 0.0 for phase in timed) - 60 * minutes
        for place, phase in enumerate(timed):
            if over_s > 0 and phase.name == name:
                timed[place], note = _cut(phase, over_s, slo)
                notes += [note] if note else []
    return timed, tuple(notes)


def estimate_s(phase: Phase, slo: Slo) -> float | None:
    """Seconds a phase takes a server that just meets the objectives; None where there are none."""
    if phase.mode == "idle":
        return phase.estimate_s
    first = next((s for s in (slo.ttft_p50_s, slo.ttft_p95_s, slo.ttft_p99_s) if s is not None), None)
    each = next((s for s in (slo.tpot_p50_s, slo.tpot_p95_s, slo.tpot_p99_s) if s is not None), None)
    whole = next((s for s in (slo.e2e_p95_s, slo.e2e_p99_s) if s is not None), None)
    if whole is None and (first is None or each is None):
        return None
    took = [whole if whole is not None else (first or 0) + (each or 0) * r.output_tokens for r in phase.requests]
    if phase.mode == "open":
        return max((r.scheduled_s or 0.0) + t for r, t in zip(phase.requests, took, strict=True))
    return sum(took) / (phase.concurrency or 1)


def _cut(phase: Phase, over_s: float, slo: Slo) -> tuple[Phase, str]:
    n, total = len(phase.requests), phase.estimate_s or 0.0
    fewest = min(n, max(_FEWEST[phase.name], phase.concurrency or 1))
    kept = max(fewest, int(n * max(0.0, total - over_s) / total)) if total else n
    if kept >= n:
        return phase, ""
    cut = msgspec.structs.replace(phase, requests=phase.requests[:kept])
    cut = msgspec.structs.replace(cut, estimate_s=estimate_s(cut, slo))
    return cut, f"{phase.name} has {kept:,} requests instead of {n:,}, to end in time; what they cannot show stays open"
