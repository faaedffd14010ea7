"""A number with its uncertainty: every figure kvadvise shows is one of these."""

from __future__ import annotations

from typing import Literal

import msgspec

Basis = Literal["exact", "measured", "estimated"]
_RANK: dict[Basis, int] = {"exact": 0, "measured": 1, "estimated": 2}


class Estimate(msgspec.Struct, frozen=True, order=False):
    """An integer quantity (bytes unless said otherwise) with the band it may lie in.

    `low` and `high` bound what may really be met; a decision is taken from whichever end is worse for the user.
    `exact` is vLLM's own arithmetic or a file's own count, `measured` was read from a log or a device,
    `estimated` comes from a model of the engine; the band of an exact figure is the figure.
    """

    value: int
    low: int
    high: int
    basis: Basis

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"an estimate's band must hold its value: {self.low} <= {self.value} <= {self.high}")
        if self.basis == "exact" and self.low != self.high:
            raise ValueError("an exact figure has no band")

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.value + other.value, self.low + other.low, self.high + other.high, _worse(self.basis, other.basis)
        )

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.value - other.value, self.low - other.high, self.high - other.low, _worse(self.basis, other.basis)
        )


def exact(value: int) -> Estimate:
    """A figure that is vLLM's own arithmetic or a file's own count."""
    return Estimate(value, value, value, "exact")


def measured(value: int, low: int | None = None, high: int | None = None) -> Estimate:
    """A figure read from a log or a device; the band is its rounding."""
    return Estimate(value, value if low is None else low, value if high is None else high, "measured")


def estimated(value: int, low: int, high: int) -> Estimate:
    """A figure from a model of the engine, with the band seen between the model and public logs."""
    return Estimate(value, low, high, "estimated")


def _worse(a: Basis, b: Basis) -> Basis:
    return a if _RANK[a] >= _RANK[b] else b
