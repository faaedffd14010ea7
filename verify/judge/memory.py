"""Memory of the GPUs and of the host through the run: room at the worst moment, and whether it only shrinks."""

from __future__ import annotations

from advisor.units import MIB, gib
from verify.judge.evidence import MEASURED, Evidence, fig, finite
from verify.judge.intervals import trend
from verify.judge.thresholds import GPU_FREE_BYTES
from verify.judge.types import Check

CLIMBS_BY_AT_LEAST_BYTES = 32 * MIB
_CLIMBS_SHARE = 0.005  # of what was held at first
_FEWEST = 8
SHORTEST_S = 60.0  # a new engine touches its memory for the first time: before that a climb says nothing


def gpu_memory_headroom(e: Evidence) -> Check:
    """Free memory of the fullest GPU at its fullest moment. What is thin now ends the engine some day (P59)."""
    asked = e.limits.gpu_memory_free_bytes_min
    least = GPU_FREE_BYTES if asked is None else asked
    gpus = [gpu for seen in e.looks for gpu in seen.gpus or ()]
    free = min((gpu.total_bytes - gpu.used_bytes for gpu in gpus), default=None)
    ask = e.ask("gpu_memory_headroom", observed=free, threshold=least, unit="bytes", n=len(gpus))
    if free is None:
        planned = e.run.planned
        if asked is None and not e.run.is_local:
            return ask.does_not_apply("the engine's GPUs are on another machine")
        if planned is not None and planned.gpu_total_bytes is None:
            return ask.does_not_apply("the plan is for no GPU")
        if planned is None and asked is None:
            return ask.does_not_apply("no GPU was seen")
        return ask.unknown("the memory of the GPUs could not be read")
    reason = f"{free / MIB:,.0f} MiB were free on the fullest GPU at the least"
    if free < least:
        return ask.fails(
            f"{reason}, {least / MIB:,.0f} MiB must be: one unusual request more and the engine dies",
            "lower gpu_memory_utilization by 0.02, more for a mixture of experts",
        )
    return ask.passes(reason)


def memory_steady(e: Evidence) -> Check:
    """Memory of the host and of the GPUs does not climb in the later half of the load, when all is warm."""
    ask = e.ask("memory_steady", unit="bytes/s")
    window = _later_half(e)
    if window is None:
        return ask.unknown("no measured phase was played")
    if window[1] - window[0] < SHORTEST_S:
        return ask.does_not_apply(f"the load was too short to see a climb: {fig(window[1] - window[0])} s of it count")
    series = _series(e, *window)
    judged = 0
    for what, points in series.items():
        if len(points) < _FEWEST:
            continue
        judged += 1
        found = trend(points)
        if found is None:
            continue
        seconds, first = points[-1][0] - points[0][0], points[0][1]
        if found.low * seconds >= max(CLIMBS_BY_AT_LEAST_BYTES, _CLIMBS_SHARE * first):
            return e.ask(
                "memory_steady", observed=found.slope, threshold=0.0, unit="bytes/s", n=len(points),
                interval=(finite(found.low), finite(found.high)),
            ).fails(
                f"{what} climbs by {found.slope * 60 / MIB:,.0f} MiB a minute and reached {gib(points[-1][1])} in "
                f"{fig(seconds)} s",
                "let it run longer to see whether it levels off; what never does ends in an out-of-memory",
            )  # fmt: skip
    if not judged:
        return ask.unknown("memory was not read often enough to see a slope")
    return ask.passes(f"{' and '.join(what for what, p in series.items() if len(p) >= _FEWEST)} did not climb")


def _later_half(e: Evidence) -> tuple[float, float] | None:
    marks = [mark for name in MEASURED if (mark := e.marks.get(name)) is not None]
    if not marks:
        return None
    ends = [mark.ended_s if mark.ended_s is not None else (e.looks[-1].at_s if e.looks else 0.0) for mark in marks]
    began, ended = min(mark.began_s for mark in marks), max(ends)
    return (began + ended) / 2, ended


def _series(e: Evidence, began: float, ended: float) -> dict[str, list[tuple[float, float]]]:
    looks = [seen for seen in e.looks if began <= seen.at_s <= ended]
    group = [(seen.at_s, float(seen.resident_bytes)) for seen in looks if seen.resident_bytes is not None]
    own = [
        (seen.at_s, value)
        for seen in looks
        if seen.metrics is not None and (value := finite(seen.metrics.resident_bytes)) is not None
    ]
    gpus = [(seen.at_s, float(sum(gpu.used_bytes for gpu in seen.gpus))) for seen in looks if seen.gpus]
    found = {"the engine's resident memory": group or own, "GPU memory": gpus}
    return {what: points for what, points in found.items() if points}


def report(e: Evidence) -> dict[str, float | None]:
    """The least and the most of both, for the verdict."""
    gpus = [gpu for seen in e.looks for gpu in seen.gpus or ()]
    resident = [seen.resident_bytes for seen in e.looks if seen.resident_bytes is not None]
    return {
        "gpu_free_bytes_min": min((gpu.total_bytes - gpu.used_bytes for gpu in gpus), default=None),
        "resident_bytes_max": max(resident, default=None),
    }
