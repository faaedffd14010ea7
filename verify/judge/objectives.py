"""The objectives under `slo`: a percentile, the range it lies in, and whether that range settles the question.

pass: even the upper end is within the objective. fail: even the lower end is beyond it. Else more requests are needed,
and how many is said. Each end holds with 95 %; requests that ran together are not independent, so this is the least.
"""

from __future__ import annotations

import math

from verify.judge.evidence import FAILURES, Evidence, fig, finite, of
from verify.judge.intervals import (
    bound_ranks,
    nearest_rank,
    percentile_bounds,
    requests_to_pass,
    share_bounds,
)
from verify.judge.latencies import MEASURES, Took, counted, stall, took
from verify.judge.types import Check
from verify.record.types import RequestRow

_NOUNS = {"ttft": "time to first token", "tpot": "time per output token", "e2e": "time to the last token"}
_ENOUGH = 10_000_000


def objectives(e: Evidence) -> list[Check]:
    """One check for each objective given."""
    return [_objective(e, name, limit) for name, limit in e.limits.objectives.items()]


def _objective(e: Evidence, name: str, limit_s: float) -> Check:
    metric, percent, _ = name.split("_")
    share = int(percent[1:]) / 100
    phase, is_harder = _phase(e)
    if phase is None:
        return e.ask(name, threshold=limit_s, unit="s").unknown(_NO_PHASE)
    values = took(e, counted(e, phase), MEASURES[metric])
    most, least = sorted(v.most for v in values), sorted(v.least for v in values)
    n = len(values)
    if not n:
        ask = e.ask(name, threshold=limit_s, unit="s", n=0, phase=phase)
        if not counted(e, phase):
            return ask.unknown(f"no request of the {phase} phase counts: there were no more than places to fill")
        return ask.does_not_apply("no answer had more than its first tokens")
    low, high = percentile_bounds(least, share)[0], percentile_bounds(most, share)[1]
    seen = nearest_rank(most, share)
    ask = e.ask(
        name, observed=seen if math.isfinite(seen) else "unbounded", threshold=limit_s, unit="s", n=n, phase=phase,
        interval=(finite(low), finite(high)),
    )  # fmt: skip
    failed = sum(1 for row in counted(e, phase) if row.outcome in FAILURES)
    reason = (
        f"{percent} of the {_NOUNS[metric]} is {_seconds(seen)} in {phase} (n = {n:,}, between {_seconds(low)} and "
        f"{_seconds(high)})" + (f", with {of(failed, 'failed request')} counted as never answered" if failed else "")
    )
    if high <= limit_s:
        return ask.passes(f"{reason}; {_seconds(limit_s)} is the objective")
    if is_harder:
        return ask.unknown(f"{reason}; that phase is harder than the workload: play the tail phase, too")
    if low > limit_s:
        return ask.fails(f"{reason}; {_seconds(limit_s)} is the objective", _remedy(metric))
    return ask.unknown(f"{reason}; not settled against {_seconds(limit_s)}: {_needed(values, share, limit_s)}")


_NO_PHASE = "the workload's own distribution (the tail phase) was not played"


def _phase(e: Evidence) -> tuple[str | None, bool]:
    """Where objectives hold: the workload's distribution. Without it a closed peak, which is harder, may settle a pass;
    where requests have a rate it may not, since a closed loop slows down with the server.
    """
    if e.rows("tail"):
        return "tail", False
    mark = e.marks.get("peak")
    if e.limits.requests_per_s is None and mark is not None and e.rows("peak"):
        return "peak", True
    return None, False


def _needed(values: list[Took], share: float, limit_s: float) -> str:
    """How many requests would settle it, should as many of them miss the objective as do now."""
    n = len(values)
    missed = sum(1 for v in values if v.most > limit_s)
    if missed == 0:
        return f"{requests_to_pass(share, 0):,} requests within it would"
    rate, size = missed / n, n
    while size < _ENOUGH:
        size = math.ceil(size * 1.25)
        misses = math.ceil(rate * size)
        low, high = bound_ranks(size, share)
        if size - misses >= high or size - misses < low:
            return f"{missed:,} of {n:,} were beyond it; about {size:,} requests at that share would"
    return f"{missed:,} of {n:,} were beyond it, which is the share allowed"


def slo_attainment(e: Evidence) -> Check:
    """Requests that met every objective at once, of all in the workload's distribution."""
    limits = _strictest_last(e.limits.objectives)
    wanted = e.limits.slo_attainment_min
    phase, _ = _phase(e)
    rows = counted(e, phase) if phase is not None else []
    met, open_ = _met(e, rows, limits)
    n = len(rows)
    bounds = share_bounds(met, n) if n else None
    ask = e.ask(
        "slo_attainment", observed=met / n if n and limits else None, threshold=wanted, unit="share", n=n,
        interval=bounds if limits else None, phase=phase,
    )  # fmt: skip
    if wanted is None or not limits:
        return ask.does_not_apply("no objective is given" if not limits else "slo_attainment_min is not given")
    if not n or bounds is None:
        return ask.unknown(_NO_PHASE)
    upper = share_bounds(met + open_, n)[1]
    reason = f"{met:,} of {of(n, 'request')} met every objective ({bounds[0]:.2%} to {upper:.2%}), {wanted:.2%} must"
    if bounds[0] >= wanted or (wanted == 1.0 and met == n):
        return ask.passes(reason)
    if upper < wanted or (wanted == 1.0 and met + open_ < n):
        return ask.fails(reason, "see the objectives that fail")
    more = requests_to_pass(wanted, n - met) if wanted < 1 else n
    return ask.unknown(f"{reason}: not settled; {more:,} requests without another miss would")


def _strictest_last(objectives: dict[str, float]) -> dict[str, float]:
    """One limit for each metric: that of its highest percentile, which is meant for nearly every request."""
    found: dict[str, float] = {}
    for name, limit in objectives.items():
        metric = name.split("_")[0]
        found[metric] = max(limit, found.get(metric, 0.0))
    return found


def _met(e: Evidence, rows: list[RequestRow], limits: dict[str, float]) -> tuple[int, int]:
    """Rows that surely met every limit, and those that may have."""
    met = may = 0
    for row in rows:
        pairs = [(MEASURES[metric](row, e.was_cut_short), limit) for metric, limit in limits.items()]
        if all(one is None or one.most <= limit for one, limit in pairs):
            met += 1
        elif all(one is None or one.least <= limit for one, limit in pairs):
            may += 1
    return met, may


def stalls(e: Evidence) -> Check:
    """The longest silence in the middle of an answer."""
    limit = e.limits.stall_s_max
    rows = [row for row in e.rows("regular", "long", "peak", "tail") if row.outcome not in FAILURES]
    values = took(e, rows, stall)
    worst = max((v.most for v in values), default=None)
    ask = e.ask(
        "stalls", observed=finite(worst), threshold=limit, unit="s", n=len(values)
    )  # fmt: skip
    if limit is None:
        return ask.does_not_apply("stall_s_max is not given")
    if worst is None:
        return ask.unknown("no answer came in more than one piece")
    longest = max(v.least for v in values)
    if longest > limit:
        return ask.fails(f"an answer was silent for {_seconds(longest)}, {_seconds(limit)} may be", _remedy("tpot"))
    if worst > limit:
        return ask.unknown("the gaps of some answers were not measured")
    return ask.passes(f"no answer was silent for more than {_seconds(worst)}")


def _remedy(metric: str) -> str:
    if metric == "tpot":
        return "lower max_num_batched_tokens (shorter steps) or max_num_seqs, or add replicas"
    return "lower the rate or add replicas; a larger max_num_batched_tokens lets prompts through faster"


def _seconds(value: float) -> str:
    if math.isinf(value):
        return "unbounded"
    return f"{value * 1000:.3g} ms" if value < 0.9995 else f"{fig(value)} s"
