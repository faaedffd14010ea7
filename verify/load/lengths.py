"""Percentiles as a distribution: lengths that really have them, in the sample and not only in the limit.

Between two known percentiles lengths grow geometrically, which is how long tails look; at a known percentile's own rank
stands that percentile. What is not known is bounded by what is: nothing is longer than the longest that is stated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise

from advisor.workload import Lengths

_SHARES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99))
_SMALLEST_OF_MEDIAN = 8  # the shortest request is an eighth of the median, in the traces between a tenth and a quarter
_MEDIAN_OF_P95 = (
    0.4  # where no median is stated: ShareGPT 0.27, Azure 2023 conversation 0.37, code 0.28, chat here 0.45
)


def sample(lengths: Lengths, n: int, rng: random.Random, *, extra: int = 0) -> list[int]:
    """`n` lengths with these percentiles by nearest rank, in random order; `extra` tokens are added to each.

    With fewer than some 100 lengths several percentiles share a rank, and the highest of them has it.
    """
    values = [value + extra for value in ordered(lengths, n)]
    rng.shuffle(values)
    return values


def ordered(lengths: Lengths, n: int) -> list[int]:
    """`n` lengths, rising."""
    anchors = _anchors(lengths, n)
    values = [0] * n
    for (low_rank, low), (high_rank, high) in pairwise(anchors):
        steps = high_rank - low_rank
        for step in range(steps):
            values[low_rank + step - 1] = max(low, min(high, math.floor(low * (high / low) ** (step / steps) + 1e-9)))
    last_rank, last = anchors[-1]
    for rank in range(last_rank, n + 1):
        values[rank - 1] = last
    return values


def rank_of(share: float, n: int) -> int:
    """The nearest rank of a percentile among `n`, from 1."""
    return max(1, math.ceil(share * n - 1e-9))


def nearest_rank(values: Sequence[int], share: float) -> int:
    """The percentile of these values."""
    return sorted(values)[rank_of(share, len(values)) - 1]


def _anchors(lengths: Lengths, n: int) -> list[tuple[int, int]]:
    """(rank, length), both rising: the ends and every percentile that is known."""
    known = {share: value for name, share in _SHARES if (value := getattr(lengths, name)) is not None}
    longest = lengths.longest
    median = known.get(0.5, math.ceil(lengths.at_p95 * _MEDIAN_OF_P95))
    points: dict[int, int] = {1: max(1, min(median // _SMALLEST_OF_MEDIAN, *known.values(), longest))}
    for share, value in sorted({0.5: min(median, *(v for v in known.values()), longest), **known}.items()):
        points[rank_of(share, n)] = value
    points[n] = longest
    return sorted(points.items())
