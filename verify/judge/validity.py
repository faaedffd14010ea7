"""Did the run measure what it should have? A check that fails here says nothing of the server: inconclusive."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from verify.client.types import ClientFacts
from verify.judge.evidence import FAILURES, MEASURED, Evidence, finite, of
from verify.judge.intervals import nearest_rank
from verify.judge.latencies import send_lag_s
from verify.judge.reproduction import problems
from verify.judge.thresholds import HIT_RATE_MARGIN, HIT_RATE_SHORT
from verify.judge.types import Check
from verify.record.types import RequestRow

_TOKENS_OFF = 0.001  # of all tokens: a probe of somebody else's is no load
_COUNTED = ("ok", "shortened", "wrong_length")
_UNCOUNTED = ("refused", "http_4xx")


def workload_reproduced(e: Evidence) -> Check:
    """The load that was meant reached the server: lengths, counts, rate, concurrency."""
    compared = [row for row in e.answerable if row.outcome in ("ok", "wrong_length")]
    found, off = problems(e)
    ask = e.ask(
        "workload_reproduced", observed=off, threshold=e.limits.length_difference_fraction_max, unit="share",
        n=len(compared), is_validity=True,
    )  # fmt: skip
    if found:
        return ask.fails("; ".join(found), "the load was not what the workload says, so nothing follows for it")
    if not e.run.rows:
        return ask.unknown("no request was sent")
    return ask.passes(f"lengths, counts, rate and concurrency of {of(len(e.run.rows), 'request')} are the schedule's")


def cache_hits_as_declared(e: Evidence) -> Check:
    """Prompts came from the prefix cache as much as the workload declares: no more, no less (P76)."""
    bounds = _hit_bounds(e)
    rate, n, missing = hit_rate(e)
    said = f"{bounds[0]:.3f} to {bounds[1]:.3f}" if bounds is not None else None
    ask = e.ask("cache_hits_as_declared", observed=rate, threshold=said, unit="share", n=n, is_validity=True)
    if bounds is None:
        return ask.does_not_apply("the load declares no hit rate and the workload bounds none")
    if rate is None and not any(row.outcome == "ok" for row in e.run.rows) and e.run.rows:
        return ask.does_not_apply("no prompt was served")
    if rate is None:
        is_nothing = missing == _NOTHING_SERVED and not any(row.streamed_tokens for row in e.run.rows)
        return ask.does_not_apply(missing) if is_nothing else ask.unknown(missing)
    came = f"{rate:.1%} of prompt tokens came from the prefix cache"
    if rate > bounds[1]:
        return ask.fails(
            f"{came}, {bounds[1]:.1%} at most are declared",
            "what was measured is the cache: restart the server and keep other traffic off it; a prefix that is shared "
            "belongs in shared_prefix_tokens",
        )
    if rate < bounds[0]:
        return ask.fails(
            f"{came}, {bounds[0]:.1%} at least are declared",
            "set enable_prefix_caching, or give the pool room to keep what is shared: it held more than was meant",
        )
    return ask.passes(came)


def _hit_bounds(e: Evidence) -> tuple[float, float] | None:
    declared, limits = e.run.declared_hit_rate, e.limits
    least, most = limits.prefix_cache_hit_rate_min, limits.prefix_cache_hit_rate_max
    if declared is None and least is None and most is None:
        return None
    if declared is not None:
        least = max(0.0, declared * (1 - HIT_RATE_SHORT) - HIT_RATE_MARGIN) if least is None else least
        most = min(1.0, declared + HIT_RATE_MARGIN) if most is None else most
    return (least if least is not None else 0.0), (most if most is not None else 1.0)


def hit_rate(e: Evidence) -> tuple[float | None, int | None, str]:
    """Hits over queried tokens, how many were queried, and what is missing where that is not known."""
    queries, hits = e.growth("prefix_queries"), e.growth("prefix_hits")
    if queries.whole is not None and hits.whole is not None:
        if queries.whole > 0:
            return hits.whole / queries.whole, int(queries.whole), ""
        prompts = e.growth("prompt_tokens")
        if prompts.whole:
            return 0.0, 0, ""  # served without the cache being asked: prefix caching is off
        return None, None, prompts.missing or _NOTHING_SERVED
    return None, None, queries.missing or hits.missing


_NOTHING_SERVED = "no prompt was looked up in the prefix cache, and none was served"


def client_kept_up(e: Evidence) -> Check:
    """The client sent when it should have, and read when bytes came."""
    rows = [row for row in e.rows(*MEASURED) if row.sent_s is not None]
    lags = sorted(lag for row in rows if (lag := send_lag_s(row)) is not None)
    limit = e.limits.lag_limit_s
    lag = nearest_rank(lags, 0.99) if lags else None
    facts = [facts for facts in e.run.client if facts.phase in MEASURED]
    found = _backwards(e.run.rows)
    if lag is not None and lag > limit:
        found.append(
            f"p99 of the time requests were sent late is {lag * 1000:.0f} ms, {limit * 1000:.0f} ms are allowed"
        )
    timed = _timed_phases(e)
    found += [
        text
        for one in facts
        for text in _busy(one, limit if one.phase in timed else None, e.limits.client_cpu_fraction_max)
    ]
    ask = e.ask("client_kept_up", observed=lag, threshold=limit, unit="s", n=len(lags), is_validity=True)
    if found:
        return ask.fails(
            "; ".join(found),
            "give the client a machine of its own or more processes (--processes): what it measured is itself",
        )
    if not rows:
        return ask.unknown("no request of a measured phase was sent")
    if not facts:
        return ask.unknown("the client did not say how busy it was")
    late = f"sent at most {lag * 1000:.1f} ms late (p99)" if lag is not None else "nothing was due at a time"
    return ask.passes(f"{late}, {max(one.cpu_fraction for one in facts):.0%} of a core used")


def _timed_phases(e: Evidence) -> set[str]:
    """Phases in which a moment counts: requests are due at one, or an objective is judged. In any other a client that
    is late only sends later what it sends next, and whether it sent enough is seen at the server.
    """
    timed = {name for name, mark in e.marks.items() if mark.mode == "open"}
    if e.limits.objectives or e.limits.stall_s_max is not None:
        timed.add("tail" if e.rows("tail") else "peak")
    return timed


def _busy(one: ClientFacts, lag_s: float | None, cpu: float) -> list[str]:
    found = []
    if one.cpu_fraction > cpu:
        found.append(f"the client used {one.cpu_fraction:.0%} of a core in {one.phase}, {cpu:.0%} are allowed")
    if lag_s is not None and one.loop_lag_p99_s is not None and one.loop_lag_p99_s > lag_s:
        found.append(f"the client's own timers were {one.loop_lag_p99_s * 1000:.0f} ms late in {one.phase}")
    return found


def _backwards(rows: Sequence[RequestRow]) -> list[str]:
    wrong = 0
    for row in rows:
        times = [t for t in (row.sent_s, row.first_token_s, row.last_token_s, row.ended_s) if t is not None]
        wrong += any(finite(t) is None for t in times) or times != sorted(times)
    return [f"times run backwards in {of(wrong, 'request')}"] if wrong else []


Bounds = Callable[[RequestRow], tuple[int, int]]


def counters_agree(e: Evidence) -> Check:
    """What clients got is what the server says it made: nobody else asks, and it is one server (replay.md 8)."""
    figures: tuple[tuple[str, str, Bounds], ...] = (
        ("generation_tokens", "answer tokens", _output_bounds),
        ("prompt_tokens", "prompt tokens", _prompt_bounds),
        ("requests_done", "requests", _request_bounds),
    )
    wrong, missing, seen = [], [], []
    off = 0.0
    for name, noun, bounds in figures:
        sums = [bounds(row) for row in e.run.rows]
        low, high = sum(a for a, _ in sums), sum(b for _, b in sums)
        grew = e.growth(name)
        if grew.whole is None:
            missing.append(grew.missing)
            continue
        slack = int(_TOKENS_OFF * high)
        counted = f"{grew.whole:,.0f} {noun}"
        expected = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        off = max(off, (grew.whole - high) / max(1, high), (low - grew.whole) / max(1, low))
        seen.append(counted)
        if grew.whole > high + slack:
            wrong.append(f"the server counted {counted}, clients account for {expected}: somebody else asks it too")
        elif grew.whole < low - slack:
            wrong.append(f"the server counted {counted}, clients got {expected}: {_STANDS_STILL}")
    ask = e.ask(
        "counters_agree", observed=off if seen else None, threshold=_TOKENS_OFF, unit="share", n=len(e.run.rows),
        is_validity=True,
    )  # fmt: skip
    if wrong:
        return ask.fails("; ".join(wrong), "keep other traffic off the server, and verify each replica by itself")
    if missing:
        return ask.unknown("; ".join(missing))
    return ask.passes(f"the server counted {', '.join(seen)}, as the clients did")


_STANDS_STILL = "its counters stand still, or several servers answer at this address"


def _output_bounds(row: RequestRow) -> tuple[int, int]:
    if row.outcome in _COUNTED and row.served_output_tokens is not None:
        both = (row.served_output_tokens, row.streamed_tokens or row.served_output_tokens)
        return min(both), max(both)
    if row.outcome in _UNCOUNTED:
        return 0, 0
    return row.streamed_tokens, max(row.streamed_tokens, row.output_tokens)


def _prompt_bounds(row: RequestRow) -> tuple[int, int]:
    if row.outcome in _COUNTED and row.served_prompt_tokens is not None:
        return row.served_prompt_tokens, row.served_prompt_tokens
    if row.outcome in _UNCOUNTED:
        return 0, 0
    is_certain = row.streamed_tokens > 0 and not row.is_recorded
    return (row.prompt_tokens if is_certain else 0), row.prompt_tokens


def _request_bounds(row: RequestRow) -> tuple[int, int]:
    if row.outcome in _COUNTED:
        return 1, 1
    return (0, 0) if row.outcome in _UNCOUNTED else (0, 1)


def no_restart(e: Evidence) -> Check:
    """One process answered from the first to the last reading."""
    ask = e.ask("no_restart", n=len(e.readings), is_validity=True)
    if e.restart:
        failed = sum(1 for row in e.run.rows if row.outcome in FAILURES)
        reason = "the server was started anew, or its counters were reset, during the run"
        return ask.fails(
            reason + (f"; {of(failed, 'request')} failed" if failed else ""),
            "read the log of the process before: kvadvise diagnose --log",
        )
    if e.restart is None:
        return ask.unknown("neither a start time nor counters were read twice")
    return ask.passes("one process answered throughout: no counter fell")
