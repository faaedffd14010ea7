"""Does the queue stand still while the load does, and is it gone when the load is?

A queue that grows through a steady phase means more arrives than is served: every later user waits longer, though each
answer is a 200 (P60). Two things show it: requests waiting at each reading, and the time to the first token of requests
by when they were due. A closed loop cannot show it, since its clients wait.
"""

from __future__ import annotations

import math

import msgspec

from verify.judge.evidence import FAILURES, LOADED, MEASURED, Ask, Evidence, fig, of
from verify.judge.intervals import Trend, trend
from verify.judge.latencies import due_s, ttft
from verify.judge.types import Check
from verify.record.types import PhaseMark

# Lower bounds from which growth is no chance. Simulated queues of 1, 8 and 32 places and 100 to 300 requests at 0.8 of
# what can be served fail in 1 % of runs at the most and are unsettled in 5 %; at 0.9 in 10 % and 20 %; at twice that
# they fail in 93 % or more, at ten times always.
GROWS, MAY_GROW = 0.1, 0.05  # of the phase's requests, left waiting over it
SLOWS, MAY_SLOW = 0.15, 0.05  # seconds of waiting that each second of arrivals adds
GROWS_BY_AT_LEAST = 2.0  # requests
SLOWS_BY_AT_LEAST_S = 1.0
_FEWEST_ANSWERS = 8
_SEEN_ENOUGH = 0.5


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """How the queue went in one open phase: requests waiting, per second, and waiting time, in seconds per second.

    `requests` arrived within `seconds`, of which readings cover `read_s`. None where there was too little to see it by.
    """

    phase: str
    queue: Trend | None
    wait: Trend | None
    seconds: float
    read_s: float
    requests: int
    offered_per_s: float
    sustained_per_s: float

    def reaches(self, share: float, slowing: float, most_per_s: float) -> bool:
        """Whether the lower bounds say that it grew by this share of requests, or slowed by so much; and by more than
        `most_per_s` requests a second.
        """
        if self.queue is not None and self.queue.low > most_per_s:
            left = self.queue.low * self.read_s
            if left >= max(GROWS_BY_AT_LEAST, share * self.requests):
                return True
        if self.wait is None or self.wait.low < slowing or self.wait.low * self.seconds < SLOWS_BY_AT_LEAST_S:
            return False
        return self.offered_per_s * self.wait.low / (1 + self.wait.low) > most_per_s


def growths(e: Evidence) -> list[Growth]:
    """Growth of the queue in every open phase, while requests still arrived."""
    return [found for name in MEASURED if (mark := e.marks.get(name)) is not None and (found := _growth(e, mark))]


def _growth(e: Evidence, mark: PhaseMark) -> Growth | None:
    rows = [row for row in e.rows(mark.name) if row.sent_s is not None]
    if mark.mode != "open" or len(rows) < 2:
        return None
    sent = [row.sent_s or 0.0 for row in rows]
    first, last = min(sent), max(sent)
    seconds = last - first
    if not (math.isfinite(seconds) and seconds > 0):
        return None
    readings = [(at, value) for at, value in e.values("waiting") if first <= at <= last]
    answers = []
    for row in rows:
        due, took = due_s(row), ttft(row, e.was_cut_short)
        if due is not None and took is not None and took.least == took.most and math.isfinite(took.most):
            answers.append((due, took.most))
    done = sum(1 for row in rows if row.outcome == "ok" and row.ended_s is not None and row.ended_s <= last)
    return Growth(
        phase=mark.name,
        queue=trend(readings),
        wait=trend(answers) if len(answers) >= _FEWEST_ANSWERS else None,
        seconds=seconds,
        read_s=readings[-1][0] - readings[0][0] if readings else 0.0,
        requests=len(rows),
        offered_per_s=(len(rows) - 1) / seconds,
        sustained_per_s=done / seconds,
    )


def steepest(e: Evidence) -> Growth | None:
    """The phase in which the queue grew fastest by its readings."""
    seen = [(one.queue, one) for one in growths(e) if one.queue is not None]
    return max(seen, key=lambda pair: (pair[0].slope, pair[0].low))[1] if seen else None


def queue_drains(e: Evidence) -> Check:
    """The queue does not grow through an open phase, and is empty once the load is over."""
    limits = e.limits
    found = growths(e)
    waiting = e.values("waiting", LOADED)
    for one in found:
        if one.reaches(GROWS, SLOWS, limits.waiting_slope_per_s_max):
            return _grows(e, one, is_sure=True)
    grew = steepest(e)
    ask = _ask(e, grew, len(waiting))
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
    for one in found:
        if one.reaches(MAY_GROW, MAY_SLOW, limits.waiting_slope_per_s_max):
            return _grows(e, one, is_sure=False)
    return ask.passes(f"at most {of(int(longest), 'request')} waited, none once the load was over")


_REMEDY = "lower the arrival rate or add replicas; bound the queue with max_num_queued_reqs, else at the gateway"


def _ask(e: Evidence, grew: Growth | None, n: int) -> Ask:
    seen = grew.queue if grew is not None else None
    return e.ask(
        "queue_drains", observed=seen.slope if seen is not None else None,
        threshold=e.limits.waiting_slope_per_s_max, unit="1/s", n=n,
        interval=(_end(seen.low), _end(seen.high)) if seen is not None else None,
        phase=grew.phase if grew is not None else None,
    )  # fmt: skip


def _grows(e: Evidence, grew: Growth, *, is_sure: bool) -> Check:
    ask = _ask(e, grew, grew.requests)
    parts = []
    if grew.queue is not None and grew.queue.low > 0:
        parts.append(f"the queue grew by {grew.queue.slope:.3g} requests per second, at least {grew.queue.low:.3g}")
    if grew.wait is not None and grew.wait.low >= MAY_SLOW:
        added = f"{grew.wait.slope:.2g} s to the time to the first token, at least {grew.wait.low:.2g} s"
        parts.append(f"each second of arrivals added {added}")
    rates = f"offered {grew.offered_per_s:.3g} requests per second, sustained {grew.sustained_per_s:.3g}"
    failed = sum(1 for row in e.rows(grew.phase) if row.outcome in FAILURES)
    answers = "" if failed else ", though every answer was a 200"
    reason = f"in {grew.phase}, {fig(grew.seconds)} s long, {' and '.join(parts)}{answers}: {rates}"
    if is_sure:
        return ask.fails(reason, _REMEDY)
    return ask.unknown(f"{reason}; whether it would go on is not settled", "let the phase last longer")


def _left(e: Evidence) -> float | None:
    """Requests still running or waiting at the last reading after the load; None where there is none."""
    drain = e.marks.get("drain")
    if drain is None and (e.was_cut_short or any(row.outcome == "abandoned" for row in e.run.rows)):
        return None  # what was broken off is still being taken back, or nobody is there to do it
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
