"""Sums of uncertain figures.

Adding two Estimates with `+` adds their bands end to end: right for two figures that err together. The parts
of a start-up err for different reasons, so here the largest distance from the middle counts in full and the
others in quadrature: a part that is either one thing or another (a sampler that sorts or does not) is covered
whole, and many small parts do not pile up. The low and the high side are kept apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from advisor.estimate import Basis, Estimate, estimated

_RANK: dict[Basis, int] = {"exact": 0, "measured": 1, "estimated": 2}


def total_of(parts: Iterable[Estimate]) -> Estimate:
    """The sum of parts that err independently of one another."""
    return _combine(list(parts), [])


def remainder(whole: Iterable[Estimate], parts: Iterable[Estimate]) -> Estimate:
    """What is left of `whole` after `parts`, all independent; may be negative."""
    return _combine(list(whole), list(parts))


def largest_of(parts: Iterable[Estimate]) -> Estimate:
    """The largest of several: memory that is used one after the other, not at once."""
    items = list(parts)
    return Estimate(
        max(item.value for item in items),
        max(item.low for item in items),
        max(item.high for item in items),
        _basis(items),
    )


def scaled(value: float, low: float, high: float, quantity: float) -> Estimate:
    """An estimated factor (with its ends) times a quantity known exactly, in whole bytes."""
    return estimated(round(value * quantity), math.floor(low * quantity), math.ceil(high * quantity))


def _combine(plus: list[Estimate], minus: list[Estimate]) -> Estimate:
    value = sum(p.value for p in plus) - sum(m.value for m in minus)
    basis = _basis(plus + minus)
    if basis == "exact":
        return Estimate(value, value, value, basis)
    below = _distance([p.value - p.low for p in plus] + [m.high - m.value for m in minus])
    above = _distance([p.high - p.value for p in plus] + [m.value - m.low for m in minus])
    return Estimate(value, value - below, value + above, basis)


def _distance(distances: list[int]) -> int:
    """The largest in full, the rest in quadrature."""
    largest = max(distances)
    rest = sum(d * d for d in distances) - largest * largest
    return largest + math.ceil(math.sqrt(rest))


def _basis(items: list[Estimate]) -> Basis:
    return max((item.basis for item in items), key=_RANK.__getitem__, default="exact")
