"""Where a run is not the load that was meant: lengths, counts, rate, and the concurrency that reached the server."""

from __future__ import annotations

from verify.judge.evidence import MEASURED, Evidence, finite, of
from verify.record.types import PhaseMark, RequestRow

RATE_OFF = 0.05
REACHED = 0.9  # of the concurrency meant, at the server
RECORDED_OFF = 0.02  # mean of prompt lengths that a log gave, since templates change (vllm#24937)
_FEWEST_READINGS = 3  # one may have been taken before the engine's first step
_TURNED_AWAY = ("rejected", "connect_error", "http_4xx", "http_5xx", "stream_error", "truncated")


def problems(e: Evidence) -> tuple[list[str], float | None]:
    """What is not as it was meant, in words, and by how much the lengths are off (mean, as a share)."""
    found, off = _lengths(e)
    if e.run.ended == "load_refused":
        found.append(e.run.ending_text or "the server refused the load")
    found += _counts(e)
    for name in MEASURED:
        mark = e.marks.get(name)
        if mark is not None:
            found += _rate(e, mark) if mark.mode == "open" else _concurrency(e, mark)
    return found, off


def _lengths(e: Evidence) -> tuple[list[str], float | None]:
    compared = [row for row in e.answerable if row.outcome in ("ok", "wrong_length")]
    forced = [row for row in compared if not row.is_recorded]
    recorded = [row for row in compared if row.is_recorded and row.served_prompt_tokens is not None]
    unmeasured = [row for row in compared if row.served_prompt_tokens is None or row.served_output_tokens is None]
    found = (
        [f"{of(len(unmeasured), 'answer')} came without usage, so their lengths are not known"] if unmeasured else []
    )
    miscounted = [row for row in compared if _is_miscounted(row)]
    if miscounted:
        row = miscounted[0]
        found.append(
            f"usage and stream differ in {of(len(miscounted), 'answer')}: request {row.index} says "
            f"{row.served_output_tokens} tokens and streamed {row.streamed_tokens}"
        )
    offs = [_off(row) for row in forced if row not in unmeasured] if unmeasured else [_off(row) for row in forced]
    limit = e.limits.length_difference_fraction_max
    mean = sum(offs) / len(offs) if offs else None
    if mean is not None and (mean > limit or any(one > max(limit, 0.05 if limit else 0.0) for one in offs)):
        worst = max((row for row in forced if row not in unmeasured), key=_off)
        wrong = sum(1 for one in offs if one > 0)
        found.append(
            f"{of(wrong, 'answer')} of {len(offs):,} had another length than asked for: request {worst.index} asked "
            f"{worst.prompt_tokens} + {worst.output_tokens} tokens, served were {worst.served_prompt_tokens} + "
            f"{worst.served_output_tokens}"
        )
    if recorded:
        meant = sum(row.prompt_tokens for row in recorded)
        served = sum(row.served_prompt_tokens or 0 for row in recorded)
        if meant and abs(served - meant) / meant > max(limit, RECORDED_OFF):
            found.append(f"recorded prompts are {meant:,} tokens by their log, {served:,} were served")
    return found, mean


def _off(row: RequestRow) -> float:
    """The larger of both lengths' differences, as a share of what was asked for."""
    prompt, output = row.served_prompt_tokens or 0, row.served_output_tokens or 0
    return max(
        abs(prompt - row.prompt_tokens) / max(1, row.prompt_tokens),
        abs(output - row.output_tokens) / max(1, row.output_tokens),
    )


def _is_miscounted(row: RequestRow) -> bool:
    return bool(row.streamed_tokens) and row.served_output_tokens not in (None, row.streamed_tokens)


def _counts(e: Evidence) -> list[str]:
    """Every phase has as many requests as were planned; the one in which a run ended need not."""
    found = []
    for number, mark in enumerate(e.run.marks):
        is_last = number == len(e.run.marks) - 1
        there = len(e.rows(mark.name))
        if there < mark.planned_requests and not (is_last and e.run.ended != "finished"):
            found.append(f"{there:,} of {of(mark.planned_requests, 'request')} were sent in {mark.name}")
    return found


def _rate(e: Evidence, mark: PhaseMark) -> list[str]:
    """Requests went out at the rate they were due at."""
    pairs = [(r.scheduled_s, r.sent_s) for r in e.rows(mark.name) if r.scheduled_s is not None and r.sent_s is not None]
    if len(pairs) < 10:
        return []
    due = max(d for d, _ in pairs) - min(d for d, _ in pairs)
    sent = max(s for _, s in pairs) - min(s for _, s in pairs)
    if due <= 0 or abs(sent - due) <= RATE_OFF * due:
        return []
    meant, done = (len(pairs) - 1) / due, (len(pairs) - 1) / sent if sent > 0 else float("inf")
    return [f"{mark.name}: {done:.3g} requests per second were sent, {meant:.3g} were meant"]


def _concurrency(e: Evidence, mark: PhaseMark) -> list[str]:
    """As many requests were at the server as the client held open (P79). What it turned away is no client's fault."""
    rows = e.rows(mark.name)
    meant = min(mark.concurrency or 1, len(rows))
    turned_away = sum(1 for row in rows if row.outcome in _TURNED_AWAY)
    if meant < 2 or turned_away > (1 - REACHED) * len(rows):
        return []
    facts = [one for one in e.run.client if one.phase == mark.name]
    held = max((one.max_in_flight for one in facts), default=None)
    if held is not None and held < REACHED * meant:
        return [f"{mark.name}: the client held {held} requests open, {meant} were meant"]
    seen = at_server(e, mark)
    if len(seen) >= _FEWEST_READINGS and max(seen) * e.engines < REACHED * meant:
        return [
            f"{mark.name}: {meant} requests were meant to be in flight and never more than {max(seen):.0f} were at the "
            "server: the client or something between is the limit"
        ]
    return []


def at_server(e: Evidence, mark: PhaseMark) -> list[float]:
    """Requests running and waiting at each reading while every place of the phase was taken."""
    rows = [row for row in e.rows(mark.name) if row.sent_s is not None]
    places = mark.concurrency or 1
    if len(rows) < places:
        return []
    sent = sorted(row.sent_s or 0.0 for row in rows)
    opened, closed = sent[places - 1], sent[-1]
    found = []
    for seen, m in e.readings:
        running, waiting = finite(m.running), finite(m.waiting)
        if opened <= seen.at_s <= closed and running is not None and waiting is not None:
            found.append(running + waiting)
    return found
