"""Does the queue stand still while the load does, and is it gone when the load is?

A queue that grows through a steady phase means more arrives than is served: every later user waits longer, though each
answer is a 200 (P60). A closed loop cannot show it, since its clients wait.
"""

from __future__ import annotations

import math

import msgspec

from verify.judge.evidence import FAILURES, LOADED, MEASURED, Evidence, fig, of
from verify.judge.intervals import Trend, trend
from verify.judge.types import Check
from verify.record.types import PhaseMark

GROWS_BY_AT_LEAST = 2.0  # requests over the phase: less is chance
_SHARE_OF_LOAD = 0.02  # and of the phase's requests
_SEEN_ENOUGH = 0.5


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """How the queue went in one open phase; per second."""

    phase: str
    trend: Trend
    seconds: float
    samples: int
    requests: int
    offered_per_s: float | None
    sustained_per_s: float | None

    def is_material(self, most_per_s: float) -> bool:
        """Whether it surely grew by more than allowed, and by more than chance or a moment's burst."""
        least = max(GROWS_BY_AT_LEAST, _SHARE_OF_LOAD * self.requests)
        return self.trend.low > most_per_s and self.trend.low * self.seconds >= least


def growths(e: Evidence) -> list[Growth]:
    """Growth of the queue in every open phase with readings, while requests still arrived."""
    return [found for name in MEASURED if (mark := e.marks.get(name)) is not None and (found := _growth(e, mark))]


def _growth(e: Evidence, mark: PhaseMark) -> Growth | None:
    rows = [row for row in e.rows(mark.name) if row.sent_s is not None]
    if mark.mode != "open" or len(rows) < 2:
        return None
    sent = [row.sent_s or 0.0 for row in rows]
    first, last = min(sent), max(sent)
    points = [(at, value) for at, value in e.values("waiting") if first <= at <= last]
    found = trend(points)
    if found is None:
        return None
    seconds = last - first
    done = sum(1 for row in rows if row.outcome == "ok" and row.ended_s is not None and row.ended_s <= last)
    return Growth(
        phase=mark.name,
        trend=found,
        seconds=points[-1][0] - points[0][0],
        samples=len(points),
        requests=len(rows),
        offered_per_s=(len(rows) - 1) / seconds if seconds > 0 else None,
        sustained_per_s=done / seconds if seconds > 0 else None,
    )


def steepest(e: Evidence) -> Growth | None:
    """The phase in which the queue grew fastest."""
    return max(growths(e), key=lambda one: (one.trend.slope, one.trend.low), default=None)


def queue_drains(e: Evidence) -> Check:
    """The queue does not grow through an open phase, and is empty once the load is over."""
    limits = e.limits
    grew = steepest(e)
    waiting = e.values("waiting", LOADED)
    bounds = (_end(grew.trend.low), _end(grew.trend.high)) if grew is not None else None
    ask = e.ask(
        "queue_drains", observed=grew.trend.slope if grew is not None else None,
        threshold=limits.waiting_slope_per_s_max, unit="1/s", n=len(waiting), interval=bounds,
        phase=grew.phase if grew is not None else None,
    )  # fmt: skip
    worst = next((one for one in growths(e) if one.is_material(limits.waiting_slope_per_s_max)), None)
    if worst is not None:
        return _grows(e, worst)
    longest = max((value for _, value in waiting), default=None)
    if limits.waiting_max is not None and longest is not None and longest > limits.waiting_max:
        return ask.fails(f"up to {of(int(longest), 'request')} waited, {limits.waiting_max:,} may", _REMEDY)
    drain = drain_s(e)
    left = _left(e)
    if left is not None and left > 0:
        return ask.fails(f"the server still worked on {of(int(left), 'request')} when the load was over", _REMEDY)
    if limits.drain_s_max is not None and drain is not None and drain > limits.drain_s_max:
        return ask.fails(f"it took {fig(drain)} s until the engine was idle, {fig(limits.drain_s_max)} s may", _REMEDY)
    if longest is None:
        return ask.unknown(f"{e.metric('waiting')} was not read under load")
    if left is None:
        return ask.unknown("whether the queue was empty after the load is not known")
    seen = e.coverage("waiting", LOADED)
    if seen is not None and seen < _SEEN_ENOUGH:
        return ask.unknown(f"only {seen:.0%} of the looks under load could read the queue")
    if limits.drain_s_max is not None and drain is None:
        return ask.unknown("no reading shows when the engine became idle")
    return ask.passes(f"at most {of(int(longest), 'request')} waited, none once the load was over{_slope(grew)}")


_REMEDY = "lower the arrival rate or add replicas; bound the queue with max_num_queued_reqs, else at the gateway"


def _grows(e: Evidence, grew: Growth) -> Check:
    limit = e.limits.waiting_slope_per_s_max
    ask = e.ask(
        "queue_drains", observed=grew.trend.slope, threshold=limit, unit="1/s", n=grew.samples, phase=grew.phase,
        interval=(_end(grew.trend.low), _end(grew.trend.high)),
    )  # fmt: skip
    rates = ""
    if grew.offered_per_s is not None and grew.sustained_per_s is not None:
        rates = f": offered {grew.offered_per_s:.3g} requests per second, sustained {grew.sustained_per_s:.3g}"
    failed = sum(1 for row in e.rows(grew.phase) if row.outcome in FAILURES)
    answers = "" if failed else ", though every answer that came was a 200"
    return ask.fails(
        f"in {grew.phase} the queue grew by {grew.trend.slope:.3g} requests per second for {fig(grew.seconds)} s, "
        f"at least {grew.trend.low:.3g}{answers}{rates}",
        _REMEDY,
    )


def _slope(grew: Growth | None) -> str:
    return f"; it grew by {grew.trend.slope:.2g} per second in {grew.phase}" if grew is not None else ""


def _left(e: Evidence) -> float | None:
    """Requests still running or waiting at the last reading after the load; None where there is none."""
    drain = e.marks.get("drain")
    if drain is None and e.was_cut_short:
        return None  # what was broken off is still being taken back
    after = max(e.last_ended_s, drain.began_s if drain is not None else -math.inf)
    for seen, m in reversed(e.readings):
        if seen.at_s < after:
            break
        if m.waiting is not None and m.running is not None:
            return m.waiting + m.running
    return None


def drain_s(e: Evidence) -> float | None:
    """The longest time from a phase's last request to an idle engine; None where no phase shows it."""
    longest: float | None = None
    for name in MEASURED:
        sent = [row.sent_s for row in e.rows(name) if row.sent_s is not None]
        if not sent:
            continue
        idle = next(
            (seen.at_s for seen, m in e.readings if seen.at_s > max(sent) and _is_idle(m.running, m.waiting)), None
        )
        if idle is None:
            return None
        longest = max(longest or 0.0, idle - max(sent))
    return longest


def _is_idle(running: float | None, waiting: float | None) -> bool:
    return running == 0 and waiting == 0


def _end(value: float) -> float | None:
    return value if math.isfinite(value) else None
