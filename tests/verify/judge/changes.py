"""A case is one thing changed in the healthy run, and how a check and the verdict then are; and ways to change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from advisor.server_metrics import ServerMetrics
from tests.verify.runs import (
    GIB,
    MARKS,
    PLANNED,
    THRESHOLDS,
    answer,
    changed_rows,
    failed,
    gpu,
    healthy,
    healthy_rows,
    set_metric,
)
from verify.judge.thresholds import Thresholds
from verify.judge.types import Result, Status
from verify.record.types import LogEvent, LogWatch, PhaseMark, RequestRow, Run, Snapshot

replace = msgspec.structs.replace


class Case(NamedTuple):
    """A run, what it is held against, and what `check` and the verdict must say; `tells` are parts of the reason."""

    name: str
    check: str
    status: Status
    verdict: Result
    run: Callable[[], Run]
    limits: Mapping[str, Any] = MappingProxyType({})
    tells: tuple[str, ...] = ()

    def held_against(self) -> Thresholds:
        return replace(THRESHOLDS, **self.limits)


def at(since_s: float, until_s: float = 1e9, **values: Any) -> Callable[[ServerMetrics], ServerMetrics]:
    """Readings of this time with these values; a function is given the reading's time."""

    def edit(m: ServerMetrics) -> ServerMetrics:
        at = m.at_s or 0.0
        if not since_s <= at < until_s:
            return m
        return replace(m, **{name: value(at) if callable(value) else value for name, value in values.items()})

    return edit


def more(name: str, amount: float, since_s: float) -> Callable[[ServerMetrics], ServerMetrics]:
    """A counter that is higher by so much from then on."""

    def edit(m: ServerMetrics) -> ServerMetrics:
        return replace(m, **{name: getattr(m, name) + amount}) if (m.at_s or 0.0) >= since_s else m

    return edit


def missing(*names: str) -> Callable[[ServerMetrics], ServerMetrics]:
    return set_metric(**dict.fromkeys(names))


def all_but(phase: str, count: int) -> list[RequestRow]:
    """The healthy rows without the last `count` of a phase."""
    gone = {row.index for row in [row for row in healthy_rows() if row.phase == phase][-count:]}
    return [row for row in healthy_rows() if row.index not in gone]


def without(*phases: str) -> Run:
    """A run in which these phases were not planned."""
    rows = [row for row in healthy_rows() if row.phase not in phases]
    return healthy(rows=rows, marks=tuple(mark for mark in MARKS if mark.name not in phases))


def until(at_s: float, **changes: Any) -> Run:
    """A run that was broken off then: what was in flight is abandoned, later phases were not played."""
    rows = []
    for row in healthy_rows():
        if (row.sent_s or 0.0) > at_s:
            continue
        rows.append(failed(row, "abandoned", ended_s=at_s) if (row.ended_s or 0.0) > at_s else row)
    marks = tuple(
        replace(mark, ended_s=min(mark.ended_s or 0.0, at_s)) for mark in MARKS if mark.began_s < at_s
    )  # fmt: skip
    return healthy(rows=rows, marks=marks, end_s=at_s + 0.5, **changes)


def log(kind: str, line: str, **more: Any) -> LogWatch:
    return LogWatch(path="engine.log", readable=True, events=(LogEvent(kind=kind, line=line, **more),))


def remote(**changes: Any) -> Run:
    return healthy(log=None, is_local=False, **changes)


def fails(phase: str, every: int, outcome: Any, **more: Any) -> list[RequestRow]:
    return changed_rows(phase, lambda n, row: failed(row, outcome, **more) if n % every == 0 else row)


def last_look(**changes: Any) -> Callable[[Snapshot], Snapshot]:
    return lambda seen: replace(seen, **changes) if seen.at_s > 141.5 else seen


def burst(count: int, bad: int, outcome: Any) -> Run:
    """A tail of `count` requests at 20 a second, `bad` of which fail at once."""
    rows = [
        answer(n, "tail", 4.0 + n / 20, scheduled=4.0 + n / 20, prompt=100, output=10) for n in range(count)
    ]  # fmt: skip
    rows = [failed(row, outcome, status=503, ended_s=row.sent_s) if row.index < bad else row for row in rows]
    end = 4.0 + count / 20 + 2.0
    marks = (
        PhaseMark(name="baseline", began_s=0.0, ended_s=4.0, mode="idle"),
        PhaseMark(name="tail", began_s=4.0, ended_s=end, mode="open", planned_requests=count),
        PhaseMark(name="drain", began_s=end, ended_s=end + 4, mode="idle"),
    )
    return healthy(rows=rows, marks=marks, end_s=end + 4)


def held_back(running: float, **more: Any) -> Callable[[ServerMetrics], ServerMetrics]:
    """In the peak phase no more than so many run at once, the others wait."""

    def edit(m: ServerMetrics) -> ServerMetrics:
        now = m.running or 0.0
        if not 26 <= (m.at_s or 0.0) < 66 or now <= running:
            return m
        return replace(m, running=running, waiting=now - running, **more)

    return edit


def queue(points: dict[float, float]) -> Callable[[ServerMetrics], ServerMetrics]:
    """P60: these many waiting at these times, and nothing known in between."""
    return lambda m: replace(m, waiting=points.get(m.at_s or 0.0) if 66 <= (m.at_s or 0.0) < 132 else m.waiting)


def old_pool(m: ServerMetrics) -> ServerMetrics:
    """A release that divides by num_blocks: the null block counts as used."""
    held = round((m.kv_usage or 0.0) * 1000)
    return replace(m, kv_usage=(held + 1) / 1001)


def climbing(per_s: float) -> Callable[[Snapshot], Snapshot]:
    return lambda seen: replace(seen, resident_bytes=int(3 * GIB + per_s * seen.at_s))


def with_gpu(free: Callable[[float], int]) -> Callable[[Snapshot], Snapshot]:
    return lambda seen: replace(seen, gpus=gpu(free(seen.at_s)))


CARD = replace(PLANNED, gpu_total_bytes=24 * GIB, gpu_memory_utilization=0.9)
LATE = changed_rows("tail", lambda n, row: answer(row.index, "tail", (row.scheduled_s or 0) + 0.15, prompt=400,
                                                   scheduled=row.scheduled_s) if n % 20 == 0 else row)  # fmt: skip
SHORTENED = changed_rows(
    "over_limit",
    lambda n, row: answer(row.index, "over_limit", 134.1, prompt=1000, output=2000, outcome="shortened",
                          served_output_tokens=24, streamed_tokens=24, last_token_s=134.5, ended_s=134.6)
    if n else row,
)  # fmt: skip


def slow(share: float, ttft: float) -> list[RequestRow]:
    """The tail with this share of first tokens later than the objective of 1 s."""
    late = round(130 * share)
    return changed_rows(
        "tail",
        lambda n, row: answer(row.index, "tail", row.sent_s or 0.0, prompt=400, scheduled=row.scheduled_s,
                              ttft=ttft if n < late else 0.2),
    )  # fmt: skip


def one_fails(outcome: Any) -> Case:
    """A single request of the tail that ends so."""
    return Case(
        f"one-{outcome}",
        "requests_completed",
        "fail",
        "fail",
        lambda: healthy(rows=fails("tail", 200, outcome)),
        tells=(f"1 {outcome}",),
    )


def ramp(more_s: float, until: int = 10**9) -> Run:
    """A tail of 200 requests at 20 a second, each of which waits by `more_s` longer than the one before."""
    rows = [
        answer(
            n,
            "tail",
            4.0 + n / 20,
            scheduled=4.0 + n / 20,
            prompt=100,
            output=10,
            ttft=0.1 + more_s * min(n, until),
        )
        for n in range(200)
    ]
    end = max(row.ended_s or 0.0 for row in rows) + 1.0
    marks = (
        PhaseMark(name="baseline", began_s=0.0, ended_s=4.0, mode="idle"),
        PhaseMark(name="tail", began_s=4.0, ended_s=end, mode="open", planned_requests=200),
        PhaseMark(name="drain", began_s=end, ended_s=end + 4, mode="idle"),
    )
    quiet = set_metric(kv_usage=0.0, running=0.0)
    return healthy(rows=rows, marks=marks, end_s=end + 4, metric=quiet)
