"""The load as it comes: a trace, arrivals at the workload's rate, or its own lengths at the target concurrency."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from verify.load import arrivals, lengths
from verify.load.phases import SHARED_KEY, Maker, Pair, closed, resolving
from verify.load.prompts import own_key
from verify.load.randomness import stream
from verify.load.trace_cut import Cut
from verify.load.trace_types import TraceRow
from verify.load.types import Part, Phase, PlannedRequest

FEWEST = 100  # with fewer the p99 and the longest are one request
MOST = 20_000
_OPEN_S, _FEWEST_OPEN = 60.0, 200  # a queue that grows is seen growing over a minute, or over so many requests


def tail(maker: Maker, seed: int) -> Phase | None:
    """Lengths drawn from the percentiles."""
    rate = maker.load.requests_per_s
    if rate is None:
        return _closed(maker, seed)
    times, how, notes = arrivals.times(
        maker.load.arrivals, rate, stream(seed, "arrivals"), fewest=_open_count(maker, rate), most=_most(maker)
    )
    maker.notes += notes
    pairs = _pairs(maker, seed, len(times))
    sendable = [
        (request, at) for pair, at in zip(pairs, times, strict=True) for request in maker.requests("tail", [pair])
    ]
    return _open(sendable, f"the load's own lengths, arriving {how}, whatever the server does")


def traced(maker: Maker, cut: Cut, name: str, seed: int) -> Phase | None:
    """The requests of a trace, when they came; without times at the workload's rate, or at the target concurrency."""
    extra = maker.load.chat_template_tokens
    rows = cut.rows[: maker.count("tail", len(cut.rows))]
    if extra and any(row.body is None for row in rows):
        maker.notes.append(f"{extra} template tokens are added to the trace's prompts, as workload says")
    sendable = [row for row in rows if maker.fits("tail", _prompt(row, extra), row.output_tokens)]
    requests = [_request(maker, row, extra) for row in sendable]
    of = f"{len(requests):,} of {cut.read:,} requests of {name}"
    rate, concurrency = maker.load.requests_per_s, maker.load.concurrency
    if rows and rows[0].at_s is not None:
        if rate is not None:
            maker.notes.append("requests_per_s is not used: the trace has times of its own")
        timed = zip(requests, (row.at_s or 0.0 for row in sendable), strict=True)
        return _open(list(timed), f"{of}, as they came")
    if rate is None:
        return closed("tail", requests, concurrency, f"{of}, {concurrency} at once")
    times, how, notes = arrivals.times(
        maker.load.arrivals, rate, stream(seed, "arrivals"), fewest=len(requests), most=len(requests)
    )
    maker.notes += notes
    return _open(list(zip(requests, times, strict=False)), f"{of}, arriving {how}")


def figures(phase: Phase | None) -> dict[str, float]:
    """What was really drawn: percentiles of lengths by nearest rank, and arrivals."""
    if phase is None:
        return {}
    found: dict[str, float] = {"requests": len(phase.requests)}
    for name in ("prompt_tokens", "output_tokens"):
        values = [getattr(request, name) for request in phase.requests]
        for percent in (50, 90, 95, 99):
            found[f"{name}_p{percent}"] = lengths.nearest_rank(values, percent / 100)
        found[f"{name}_max"] = max(values)
    if phase.mode == "open":
        found |= arrivals.figures(sorted(r.scheduled_s for r in phase.requests if r.scheduled_s is not None))
    return found


def wanted_count(maker: Maker) -> int:
    """Requests that show the strictest objective; in a closed loop the first come all at once and do not count."""
    herd = maker.load.concurrency if maker.load.requests_per_s is None else 0
    return max(FEWEST, 2 * herd, resolving(maker.workload) + herd)


def _closed(maker: Maker, seed: int) -> Phase | None:
    n = min(_most(maker), wanted_count(maker))
    concurrency = maker.load.concurrency
    return closed(
        "tail", maker.requests("tail", _pairs(maker, seed, n)), concurrency,
        f"the load's own lengths, {concurrency} at once",
    )  # fmt: skip


def _open_count(maker: Maker, rate: float) -> int:
    if maker.load.arrivals is not None and maker.load.arrivals.rates is not None:
        return wanted_count(maker)  # the pieces say how long it lasts
    return max(wanted_count(maker), min(_FEWEST_OPEN, int(rate * _OPEN_S)))


def _most(maker: Maker) -> int:
    return maker.count("tail", MOST)


def _pairs(maker: Maker, seed: int, n: int) -> list[Pair]:
    load = maker.load
    if not n:
        return []
    prompts = lengths.sample(load.prompt_tokens, n, stream(seed, "prompt lengths"), extra=load.chat_template_tokens)
    outputs = lengths.sample(load.output_tokens, n, stream(seed, "output lengths"))
    return list(zip(prompts, outputs, strict=True))


def _open(sendable: Sequence[tuple[PlannedRequest, float]], reason: str) -> Phase | None:
    if not sendable:
        return None
    requests = tuple(msgspec.structs.replace(request, scheduled_s=at) for request, at in sendable)
    return Phase(name="tail", mode="open", requests=requests, reason=reason)


def _prompt(row: TraceRow, extra: int) -> int:
    """Its length after the template; a recorded request's was counted after it."""
    return row.prompt_tokens + (extra if row.body is None else 0)


def _request(maker: Maker, row: TraceRow, extra: int) -> PlannedRequest:
    """A recorded request: its blocks as parts, so that what was shared is shared again."""
    index, prompt = maker.next_index(), _prompt(row, extra)
    parts, left = [], prompt
    for block in row.blocks:
        size = min(row.block_tokens, row.prompt_tokens - (prompt - left))
        parts.append(Part(f"b{block}", size))
        left -= size
    shared = min(maker.load.shared_prefix_tokens, left - 1) if not row.blocks and row.body is None else 0
    if shared > 0:
        parts.append(Part(SHARED_KEY, shared))
        left -= shared
    if left:
        parts.append(Part(own_key(index), left))
    return PlannedRequest(
        index=index, phase="tail", prompt_tokens=prompt, output_tokens=row.output_tokens, parts=tuple(parts),
        body=row.body,
    )  # fmt: skip
