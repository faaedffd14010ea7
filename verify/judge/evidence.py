"""What a run shows, put in order for the checks: rows by phase, readings with their metrics, counters that grew.

Nothing here decides. What a reading does not have is None and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import TypeVar, cast

import msgspec

from advisor.server_metrics import ALIASES, ServerMetrics, restarted
from verify.judge.thresholds import Thresholds
from verify.judge.types import Check, Level, Status
from verify.load.types import PhaseName
from verify.record.types import PhaseMark, RequestRow, Run, Snapshot

MEASURED: tuple[PhaseName, ...] = ("regular", "long", "peak", "tail")
LOADED: tuple[PhaseName, ...] = ("warm_up", *MEASURED, "over_limit", "cancel")
FAILURES = (
    *("connect_error", "rejected", "http_4xx", "http_5xx", "stream_error", "truncated", "wrong_length"),
    *("client_timeout", "abandoned"),
)
# The run was ended by something else than the server: what was open then says nothing about it.
CUT_SHORT = ("time_limit", "interrupted", "load_refused", "harness_error")


class Growth(msgspec.Struct, frozen=True):
    """How much a counter grew: `seen` for certain, `whole` over the whole run; None with `missing` in words."""

    seen: float
    whole: float | None
    missing: str = ""


class Evidence:
    """A run and what it is held against."""

    def __init__(self, run: Run, limits: Thresholds) -> None:
        self.run = run
        self.limits = limits
        self.was_cut_short = run.ended in CUT_SHORT

    @cached_property
    def rows_by_phase(self) -> dict[str, tuple[RequestRow, ...]]:
        """Rows of each phase, in the order of index."""
        phases: dict[str, list[RequestRow]] = {}
        for row in sorted(self.run.rows, key=lambda row: row.index):
            phases.setdefault(row.phase, []).append(row)
        return {name: tuple(rows) for name, rows in phases.items()}

    def rows(self, *phases: str) -> list[RequestRow]:
        """Rows of these phases."""
        return [row for name in phases for row in self.rows_by_phase.get(name, ())]

    @cached_property
    def answerable(self) -> list[RequestRow]:
        """Every row that was to come back as a whole answer."""
        return self.rows("baseline", "warm_up", *MEASURED, "drain")

    @cached_property
    def marks(self) -> dict[str, PhaseMark]:
        """Phases that were played, by name; the last of a name where one came twice."""
        return {mark.name: mark for mark in self.run.marks}

    @cached_property
    def looks(self) -> tuple[Snapshot, ...]:
        """Every look at the server in the order of time."""
        return tuple(sorted(self.run.snapshots, key=lambda seen: seen.at_s))

    @cached_property
    def readings(self) -> list[tuple[Snapshot, ServerMetrics]]:
        """Looks that brought metrics; a figure that is no finite number is not there."""
        return [(seen, _finite(seen.metrics)) for seen in self.looks if seen.metrics is not None]

    def values(self, name: str, phases: Iterable[str] | None = None) -> list[tuple[float, float]]:
        """Time and value of a figure wherever it was read, in these phases or anywhere."""
        wanted = None if phases is None else set(phases)
        found = []
        for seen, metrics in self.readings:
            value = finite(getattr(metrics, name))
            if value is not None and (wanted is None or seen.phase in wanted):
                found.append((seen.at_s, value))
        return found

    def coverage(self, name: str, phases: Iterable[str]) -> float | None:
        """The share of looks in these phases that had the figure; None where nobody looked."""
        wanted = set(phases)
        looks = sum(1 for seen in self.looks if seen.phase in wanted)
        return len(self.values(name, wanted)) / looks if looks else None

    @cached_property
    def first_sent_s(self) -> float:
        """When the first request went out; infinite where none did."""
        return min((row.sent_s for row in self.run.rows if row.sent_s is not None), default=math.inf)

    @cached_property
    def last_ended_s(self) -> float:
        """When the last answer, or what there was of it, had come."""
        return max((row.ended_s for row in self.run.rows if row.ended_s is not None), default=-math.inf)

    def growth(self, name: str) -> Growth:
        """How much a counter grew from before the first request to after the last answer."""
        known = self.values(name)
        steps = [b - a for (_, a), (_, b) in pairwise(known)]
        seen = sum(step for step in steps if step > 0)
        if not known:
            return Growth(seen, None, f"{self.metric(name)} is not among the metrics")
        if known[0][0] > self.first_sent_s:
            return Growth(seen, None, f"{self.metric(name)} was not read before the first request")
        if known[-1][0] < self.last_ended_s:
            return Growth(seen, None, f"{self.metric(name)} was not read after the last answer")
        if any(step < 0 for step in steps):
            return Growth(seen, None, f"{self.metric(name)} fell during the run")
        return Growth(seen, known[-1][1] - known[0][1])

    @staticmethod
    def metric(name: str) -> str:
        """A figure's name on /metrics, for messages."""
        return ALIASES[name][1][0]

    @cached_property
    def restart(self) -> bool | None:
        """Whether another process answered in the course of the run; None where nothing tells."""
        metrics = [m for _, m in self.readings]
        if any(restarted(a, b) or _fell(a, b) for a, b in pairwise(metrics)):
            return True
        counters = ("generation_tokens", "prompt_tokens", "requests_done", "process_start_s")
        is_told = any(finite(getattr(m, name)) is not None for m in metrics[:1] for name in counters)
        return False if is_told and len(metrics) > 1 else None

    @cached_property
    def engines(self) -> int:
        """Data-parallel engines behind the server; 1 where it does not say."""
        return max([self.run.served.engines or 1, *(m.engines for _, m in self.readings)])

    @cached_property
    def num_blocks(self) -> int | None:
        """Blocks of one engine's pool, vLLM's null block included."""
        return self.run.served.num_blocks or next(
            (n for _, m in self.readings if (n := m.cache_int("num_gpu_blocks"))), None
        )

    @cached_property
    def block_size(self) -> int | None:
        """Tokens a block, as the server says."""
        return self.run.served.block_size or next(
            (n for _, m in self.readings if (n := m.cache_int("block_size"))), None
        )  # fmt: skip

    def ask(
        self,
        check: str,
        *,
        observed: float | str | None = None,
        threshold: float | str | None = None,
        unit: str = "",
        n: int | None = None,
        interval: tuple[float | None, float | None] | None = None,
        phase: str | None = None,
        is_validity: bool = False,
        level: Level | None = None,
    ) -> Ask:
        """What a check looks at; the answer is one of its methods."""
        return Ask(
            check=check,
            level=level or self.limits.level(check),
            observed=observed,
            threshold=threshold,
            unit=unit,
            n=n,
            interval=interval,
            phase=phase,
            is_validity=is_validity,
        )


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A check with its figures, to be answered."""

    check: str
    level: Level
    observed: float | str | None
    threshold: float | str | None
    unit: str
    n: int | None
    interval: tuple[float | None, float | None] | None
    phase: str | None
    is_validity: bool

    def passes(self, reason: str) -> Check:
        """It holds."""
        return self._answer("pass", reason, "")

    def fails(self, reason: str, remedy: str = "") -> Check:
        """It does not hold; one of validity is unknown then, for the run says nothing of the server."""
        return self._answer("unknown" if self.is_validity else "fail", reason, remedy)

    def unknown(self, reason: str, remedy: str = "") -> Check:
        """It cannot be told."""
        return self._answer("unknown", reason, remedy)

    def does_not_apply(self, reason: str) -> Check:
        """There is nothing to ask."""
        return self._answer("not_applicable", reason, "")

    def _answer(self, status: Status, reason: str, remedy: str) -> Check:
        return Check(
            id=self.check, phase=self.phase, level=self.level, status=status, observed=tidy(self.observed),
            threshold=tidy(self.threshold), unit=self.unit, n=self.n, reason=reason,
            interval=None if self.interval is None else (tidy(self.interval[0]), tidy(self.interval[1])),
            is_validity=self.is_validity, remedy=remedy,
        )  # fmt: skip


_COUNTERS = tuple(name for name, (kind, _) in ALIASES.items() if kind == "counter")


def _fell(before: ServerMetrics, after: ServerMetrics) -> bool:
    """Whether a counter went back, though the process is the same."""
    pairs = [(getattr(before, name), getattr(after, name)) for name in _COUNTERS]
    return any(old is not None and new is not None and new < old for old, new in pairs)


def _finite(m: ServerMetrics) -> ServerMetrics:
    odd = {name: None for name in ALIASES if (value := getattr(m, name)) is not None and not math.isfinite(value)}
    return msgspec.structs.replace(m, **odd) if odd else m


def finite(value: float | None) -> float | None:
    """The value where it is a number that can be reckoned with."""
    return float(value) if value is not None and math.isfinite(value) else None


_T = TypeVar("_T")


def tidy(value: _T) -> _T:
    """The value without what floating point adds to it: to a billionth."""
    return cast("_T", round(value, 9)) if isinstance(value, float) and math.isfinite(value) else value


def fig(value: float) -> str:
    """A figure in three digits or whole, for sentences."""
    if not math.isfinite(value):
        return "unbounded"
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.3g}"


def of(count: int, noun: str) -> str:
    """A count and its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
