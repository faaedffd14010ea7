"""How long answers took: from the time they were due where requests have a rate, else from when they were sent.

A request that failed took forever. One that was open when the run was cut short took at least as long as it had been
open. One of a single token, or whose tokens all came at once, has no time per token.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec

from verify.judge.evidence import FAILURES, LOADED, Evidence, finite, tidy
from verify.judge.intervals import nearest_rank
from verify.record.types import RequestRow

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
REPORTED = tuple(name for name in LOADED if name not in ("over_limit", "cancel"))


class Took(msgspec.Struct, frozen=True):
    """Between these two, in seconds; the same where it was measured, infinite where no answer came."""

    least: float
    most: float


Measure = Callable[[RequestRow, bool], Took | None]
_NEVER = Took(math.inf, math.inf)


def due_s(row: RequestRow) -> float | None:
    """When a user would have begun to wait."""
    return row.scheduled_s if row.scheduled_s is not None else row.sent_s


def ttft(row: RequestRow, cut_short: bool) -> Took | None:
    """To the first token."""
    if row.outcome in FAILURES and not _is_open(row, cut_short):
        return _NEVER
    return _between(due_s(row), row.first_token_s, row)


def ttft_from_send(row: RequestRow, cut_short: bool) -> Took | None:
    """To the first token from when the request was sent: what the server alone took."""
    if row.outcome in FAILURES and not _is_open(row, cut_short):
        return _NEVER
    return _between(row.sent_s, row.first_token_s, row)


def e2e(row: RequestRow, cut_short: bool) -> Took | None:
    """To the last token."""
    if row.outcome in FAILURES:
        return _between(due_s(row), None, row) if _is_open(row, cut_short) else _NEVER
    return _between(due_s(row), row.last_token_s, row)


def tpot(row: RequestRow, cut_short: bool) -> Took | None:
    """From one token to the next, on average: after those that came first, which say nothing of it."""
    if row.outcome in FAILURES:
        return Took(0.0, math.inf) if _is_open(row, cut_short) else _NEVER
    if row.served_output_tokens is None or row.first_chunk_tokens is None:
        return Took(0.0, math.inf)
    steps = row.served_output_tokens - row.first_chunk_tokens
    if steps <= 0:
        return None
    if row.first_token_s is None or row.last_token_s is None:
        return Took(0.0, math.inf)
    return _exact((row.last_token_s - row.first_token_s) / steps)


def stall(row: RequestRow, cut_short: bool) -> Took | None:
    """The longest silence in the middle of an answer; nothing is said of one that failed or had one piece."""
    value = finite(row.max_stall_s)
    if row.outcome in FAILURES and not _is_open(row, cut_short):
        return _NEVER
    if value is None:
        return None if row.chunks <= 1 else Took(0.0, math.inf)
    return _exact(value)


def send_lag_s(row: RequestRow) -> float | None:
    """How late the client was."""
    return None if row.scheduled_s is None or row.sent_s is None else row.sent_s - row.scheduled_s


MEASURES: dict[str, Measure] = {"ttft": ttft, "tpot": tpot, "e2e": e2e}


def counted(evidence: Evidence, phase: str) -> list[RequestRow]:
    """The rows of a phase whose times count.

    In a closed loop the first of each place go out together, and wait for one another as no later ones do: they are
    load and not measured. One that failed counts wherever it stands.
    """
    rows, mark = evidence.rows(phase), evidence.marks.get(phase)
    if mark is None or mark.mode != "closed" or (mark.concurrency or 1) <= 1:
        return rows
    first = mark.concurrency or 0
    return [row for number, row in enumerate(rows) if number >= first or row.outcome in FAILURES]


def took(evidence: Evidence, rows: list[RequestRow], measure: Measure) -> list[Took]:
    """What each row took, without those the measure does not apply to."""
    found = (measure(row, evidence.was_cut_short) for row in rows)
    return [one for one in found if one is not None]


def report(evidence: Evidence) -> dict[str, Any]:
    """The verdict's `latency`: a phase's percentiles, failures counted as unbounded (null)."""
    phases = [name for name in REPORTED if evidence.rows(name)]
    return {name: _phase(evidence, name) for name in phases}


def _phase(evidence: Evidence, phase: str) -> dict[str, Any]:
    rows, everything = counted(evidence, phase), evidence.rows(phase)
    lags = [lag for row in everything if (lag := send_lag_s(row)) is not None]
    return {
        "n": len(rows),
        "failed": sum(1 for row in rows if row.outcome in FAILURES),
        "not_counted": len(everything) - len(rows),
        "from": "scheduled" if any(row.scheduled_s is not None for row in rows) else "sent",
        "ttft_s": _figures(took(evidence, rows, ttft)),
        "ttft_from_send_s": _figures(took(evidence, rows, ttft_from_send)),
        "tpot_s": _figures(took(evidence, rows, tpot)),
        "e2e_s": _figures(took(evidence, rows, e2e)),
        "max_stall_s": _figures(took(evidence, rows, stall)),
        "send_lag_s": _figures([Took(lag, lag) for lag in lags]),
    }


def _figures(values: list[Took]) -> dict[str, float | None]:
    """Percentiles over all, the largest over what was measured."""
    most = sorted(one.most for one in values)
    measured = [value for value in most if math.isfinite(value)]
    figures = {name: tidy(finite(nearest_rank(most, share))) if most else None for name, share in PERCENTILES.items()}
    return {**figures, "max": tidy(measured[-1]) if measured else None}


def _between(start: float | None, end: float | None, row: RequestRow) -> Took | None:
    if start is None:
        return Took(0.0, math.inf)
    if end is not None:
        return _exact(end - start)
    return Took(max(0.0, row.ended_s - start) if row.ended_s is not None else 0.0, math.inf)


def _exact(value: float) -> Took:
    return Took(value, value) if math.isfinite(value) and value >= 0 else Took(0.0, math.inf)


def _is_open(row: RequestRow, cut_short: bool) -> bool:
    return cut_short and row.outcome == "abandoned"
