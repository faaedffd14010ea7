"""Percentiles that were measured, how sure they are, and whether a row of values rises.

Bounds are one-sided: each holds with 95 %. So "p95 within T" needs 59 requests without one above T, or 93 with one, or
124 with two; p99 needs 299, 473, 628 (binomial tail; the same as Clopper-Pearson's bound on the share within T).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

import msgspec

ERROR = 0.05  # the risk at each end


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all values do not exceed; of values in order, at least one."""
    return ordered[max(1, math.ceil(share * len(ordered) - 1e-9)) - 1]


def percentile_bounds(ordered: Sequence[float], share: float) -> tuple[float, float]:
    """Between which of the values the true percentile lies; infinite where there are too few to say."""
    low, high = bound_ranks(len(ordered), share)
    return (ordered[low - 1] if low >= 1 else 0.0, ordered[high - 1] if high <= len(ordered) else math.inf)


def bound_ranks(n: int, share: float) -> tuple[int, int]:
    """Ranks (from 1) of the values that bound the percentile of `n` values; 0 and n + 1 where there is none.

    With X of Binomial(n, share) values below the percentile, the value of rank k is above it with P(X < k).
    """
    return _last(lambda k: at_least(k, n, share) >= 1 - ERROR, n), _first(lambda k: at_least(k, n, share) <= ERROR, n)


def share_bounds(met: int, n: int) -> tuple[float, float]:
    """Clopper and Pearson's bounds on a share of which `met` of `n` were seen."""
    low = 0.0 if met == 0 else _root(lambda p: at_least(met, n, p) - ERROR)
    high = 1.0 if met == n else _root(lambda p: at_least(met + 1, n, p) - (1 - ERROR))
    return low, high


def requests_to_pass(share: float, missed: int) -> int:
    """How many requests it takes to show that `share` of them meet an objective when `missed` do not."""
    n = max(1, missed)
    while at_least(n - missed, n, share) > ERROR:  # as many met, or more, were the share only just `share`
        n *= 2
    low, high = n // 2, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if at_least(middle - missed, middle, share) <= ERROR else (middle, high)
    return high


def at_least(k: int, n: int, p: float) -> float:
    """P(X >= k) for X of Binomial(n, p)."""
    if k <= 0:
        return 1.0
    if k > n:
        return 0.0
    return _beta_share(p, k, n - k + 1)


class Trend(msgspec.Struct, frozen=True):
    """A slope per unit of time, and the bounds it lies in (95 % at each end; infinite where too few values say so)."""

    slope: float
    low: float
    high: float


BLOCKS_AT_MOST = 12


def trend(points: Sequence[tuple[float, float]]) -> Trend | None:
    """Theil's and Sen's slope of values over time, bounded by Kendall's exact distribution; None for less than two.

    Values of one second and the next belong together, so of many the means of twelve stretches are taken.
    """
    means = _blocks(sorted(points))
    slopes = sorted((b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(means, 2) if b[0] > a[0])
    if not slopes:
        return None
    rank = _kendall_rank(len(means))
    low, high = (slopes[rank - 1], slopes[-rank]) if 1 <= rank <= len(slopes) else (-math.inf, math.inf)
    return Trend(nearest_rank(slopes, 0.5), low, high)


def _blocks(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    count = len(points)
    if count <= BLOCKS_AT_MOST:
        return points
    edges = [count * i // BLOCKS_AT_MOST for i in range(BLOCKS_AT_MOST + 1)]
    parts = [points[a:b] for a, b in pairwise(edges)]
    return [(sum(t for t, _ in part) / len(part), sum(v for _, v in part) / len(part)) for part in parts]


def _kendall_rank(n: int) -> int:
    """The largest r for which fewer than r of all pairs are out of order with 5 % or less, were there no slope."""
    ways = [1]  # orders of n values by their number of inversions
    for size in range(2, n + 1):
        longer = [0] * (len(ways) + size - 1)
        for at, count in enumerate(ways):
            for more in range(size):
                longer[at + more] += count
        ways = longer
    limit, seen, rank = ERROR * math.factorial(n), 0, 0
    for count in ways:
        seen += count
        if seen > limit:
            return rank
        rank += 1
    return rank


def _last(holds: Callable[[int], bool], n: int) -> int:
    """The largest k in 1..n for which `holds`, which is true up to some k; 0 for none."""
    low, high = 0, n + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _first(holds: Callable[[int], bool], n: int) -> int:
    """The smallest k in 1..n for which `holds`, which is true from some k on; n + 1 for none."""
    return _last(lambda k: not holds(k), n) + 1


def _root(rises: Callable[[float], float]) -> float:
    """Where a rising function of a share is 0."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) < 0 else (low, middle)
    return (low + high) / 2


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (Lentz)."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _beta_share(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )  # fmt: skip
    tiny = 1e-300
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or tiny)
    total = d
    for m in range(1, 10_000):
        for term in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                     -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):  # fmt: skip
            d = 1 / (1 + term * d or tiny)
            c = 1 + term / c or tiny
            total *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return front * total / a
