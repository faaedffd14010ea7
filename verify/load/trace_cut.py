"""The part of a trace that is replayed, and when: its window, a share of it, its time scale. All is counted."""

from __future__ import annotations

from collections import Counter

import msgspec

from advisor.errors import InvalidInput
from advisor.workload import TraceCut, WorkloadFile
from verify.load.randomness import stream
from verify.load.serve_gen import drawn
from verify.load.trace_types import Trace, TraceRow

MOST_REQUESTS = 2000  # unless the workload says otherwise
_FULL = TraceCut()


class Cut(msgspec.Struct, frozen=True):
    """The rows to replay, their times from the window's begin. Rows read = rows + the sum of `dropped`."""

    rows: tuple[TraceRow, ...]
    read: int
    dropped: dict[str, int]
    notes: tuple[str, ...]


def cut(trace: Trace, workload: WorkloadFile, seed: int) -> Cut:
    """What the workload wants of a trace. Raises InvalidInput where that is nothing, or where times are missing."""
    wanted = workload.workload.trace_cut or _FULL
    most = wanted.requests_max or MOST_REQUESTS
    dropped, notes = Counter(trace.dropped), list(trace.notes)
    read = trace.read
    if trace.clients:
        rows = drawn(trace.clients, seed, from_s=wanted.from_s, until_s=wanted.until_s, most=most)
        read, wanted = len(rows), msgspec.structs.replace(wanted, from_s=0.0, until_s=None)
    else:
        rows = _spread(trace, seed, notes)
    if rows and rows[0].at_s is None:
        _needs_no_times(wanted, trace, workload)
    rows = _window(rows, wanted, dropped)
    rows = _thinned(rows, wanted, seed, dropped, notes)
    rows = _scaled(rows, wanted, notes)
    if len(rows) > most:
        dropped[f"after the first {most:,}"] += len(rows) - most
        if wanted.requests_max is None:
            notes.append(f"the first {most:,} of {len(rows):,} requests are replayed: trace.requests_max takes more")
        rows = rows[:most]
    if not rows:
        raise InvalidInput(
            f"no request of {trace.name} is left", where=_where(workload, "workload.trace"),
            hint="; ".join(f"{count:,} {reason}" for reason, count in sorted(dropped.items())) or "a longer window",
        )  # fmt: skip
    return Cut(tuple(rows), read, dict(dropped), tuple(notes))


def _spread(trace: Trace, seed: int, notes: list[str]) -> list[TraceRow]:
    """Rows that share a time because the clock was coarse, at random times within its step, their order kept."""
    rows, step_s = list(trace.rows), trace.step_s
    if step_s is None:
        return rows
    rng = stream(seed, "trace times")
    groups: dict[float, list[TraceRow]] = {}
    for row in rows:
        groups.setdefault(row.at_s or 0.0, []).append(row)
    starts = list(groups)
    out = []
    for start, following in zip(starts, [*starts[1:], starts[-1] + step_s], strict=True):
        room = min(step_s, following - start)
        offsets = sorted(rng.random() * room for _ in groups[start]) if len(groups[start]) > 1 else [0.0]
        out += [msgspec.structs.replace(r, at_s=start + at) for r, at in zip(groups[start], offsets, strict=True)]
    notes.append(
        f"its clock has steps of about {step_s:g} s ({len(rows):,} requests at {len(starts):,} times): what shares a "
        "time is spread uniformly over its step"
    )
    return out


def _window(rows: list[TraceRow], wanted: TraceCut, dropped: Counter[str]) -> list[TraceRow]:
    if wanted.from_s <= 0 and wanted.until_s is None:
        return rows
    early = sum(1 for row in rows if (row.at_s or 0.0) < wanted.from_s)
    late = sum(1 for row in rows if wanted.until_s is not None and (row.at_s or 0.0) >= wanted.until_s)
    if early:
        dropped[f"before second {wanted.from_s:g}"] += early
    if late:
        dropped[f"from second {wanted.until_s:g} on"] += late
    inside = rows[early : len(rows) - late]
    return [msgspec.structs.replace(row, at_s=(row.at_s or 0.0) - wanted.from_s) for row in inside]


def _thinned(
    rows: list[TraceRow], wanted: TraceCut, seed: int, dropped: Counter[str], notes: list[str]
) -> list[TraceRow]:
    """A lower rate of the same shape."""
    share = wanted.keep_fraction
    if share >= 1:
        return rows
    rng = stream(seed, "trace thinning")
    kept = [row for row in rows if rng.random() < share]
    dropped[f"thinned to {share:.0%}"] += len(rows) - len(kept)
    notes.append(f"{share:g} of its requests are kept, at random: the rate is lower, its shape the same")
    return kept


def _scaled(rows: list[TraceRow], wanted: TraceCut, notes: list[str]) -> list[TraceRow]:
    scale = wanted.time_scale
    if scale == 1:
        return rows
    what = "pauses and sessions are shorter, too" if scale < 1 else "pauses and sessions are longer, too"
    notes.append(f"its times are multiplied by {scale:g}: {1 / scale:g} times the rate, and {what}")
    return [msgspec.structs.replace(row, at_s=(row.at_s or 0.0) * scale) for row in rows]


def _needs_no_times(wanted: TraceCut, trace: Trace, workload: WorkloadFile) -> None:
    for name in ("from_s", "until_s", "time_scale"):
        if getattr(wanted, name) != getattr(_FULL, name):
            raise InvalidInput(
                f"{trace.name} has no times", where=_where(workload, f"workload.trace.{name}"),
                hint="requests_max and keep_fraction need none",
            )  # fmt: skip


def _where(workload: WorkloadFile, key: str) -> str:
    line = workload.lines.get(key)
    return f"{workload.file}:{line}: {key}" if line is not None else f"{workload.file}: {key}"
