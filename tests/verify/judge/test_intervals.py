"""Bounds against published values and against counting."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.judge.intervals import (
    at_least,
    bound_ranks,
    nearest_rank,
    percentile_bounds,
    requests_to_pass,
    share_bounds,
    trend,
)


@pytest.mark.parametrize(
    ("share", "missed", "needed"),
    [
        *((0.99, 0, 299), (0.99, 1, 473), (0.99, 2, 628)),
        *((0.95, 0, 59), (0.95, 1, 93), (0.95, 2, 124)),
        *((0.9, 0, 29), (0.9, 1, 46), (0.9, 2, 61)),
    ],
)
def test_how_many_requests_an_objective_takes(share: float, missed: int, needed: int) -> None:
    assert requests_to_pass(share, missed) == needed
    assert [percentile_bounds([0.0] * (n - missed) + [math.inf] * missed, share)[1] for n in (needed, needed - 1)] == [
        0.0, math.inf,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("met", "n", "low", "high"),
    [  # one-sided 95 % bounds of Clopper and Pearson: those of a two-sided interval of 90 %
        (0, 10, 0.0, 0.2589),
        (10, 10, 0.7411, 1.0),
        (5, 10, 0.2224, 0.7776),
        (95, 100, 0.8977, 0.9801),
        (299, 299, 0.99003, 1.0),
    ],
)
def test_bounds_of_a_share(met: int, n: int, low: float, high: float) -> None:
    assert share_bounds(met, n) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 40), st.integers(0, 41), st.integers(1, 19))
def test_the_binomial_tail_is_counted_right(n: int, k: int, twentieths: int) -> None:
    p = Fraction(twentieths, 20)
    exact = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))
    assert at_least(k, n, twentieths / 20) == pytest.approx(float(exact), abs=1e-12)


def test_the_tail_of_many() -> None:
    assert at_least(99_000, 100_000, 0.99) == pytest.approx(0.5, abs=0.01)
    assert bound_ranks(100_000, 0.99) == (98_948, 99_052)


@given(st.integers(1, 500), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_both_ways_of_deciding_agree(n: int, share: float) -> None:
    """The percentile's bounds are within a limit exactly where the share's bounds are within the share."""
    low, high = bound_ranks(n, share)
    for met in {0, low - 1, low, high - 1, high, n}:
        if not 0 <= met <= n:
            continue
        below, above = share_bounds(met, n)
        assert (met >= high) == (below >= share - 1e-12)
        assert (met < low) == (above < share + 1e-12)


@pytest.mark.parametrize(
    ("n", "share", "rank"),
    [(1, 0.95, 1), (20, 0.95, 19), (100, 0.95, 95), (100, 0.99, 99), (101, 0.99, 100), (2, 0.5, 1)],
)
def test_percentiles_are_values_that_were_measured(n: int, share: float, rank: int) -> None:
    assert nearest_rank([float(i) for i in range(1, n + 1)], share) == rank


def test_a_percentile_with_failures_is_never_a_mean() -> None:
    values = [*[1.0] * 94, *[math.inf] * 6]
    assert nearest_rank(values, 0.95) == math.inf
    assert nearest_rank(values, 0.9) == 1.0


class TestTrend:
    def test_four_readings_that_rise_are_a_rise(self) -> None:
        found = trend([(0, 0), (10, 10), (20, 20), (30, 30)])
        assert found is not None
        assert (found.slope, found.low) == (1.0, 1.0)

    def test_three_are_too_few_to_be_sure(self) -> None:
        found = trend([(0, 0), (1, 10), (2, 20)])
        assert found is not None
        assert (found.low, found.high) == (-math.inf, math.inf)

    def test_one_value_that_is_off_does_not_tip_it(self) -> None:
        found = trend([(float(t), 500.0 if t == 50 else 3.0) for t in range(100)])
        assert found is not None
        assert found.low <= 0 <= found.high

    @given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60))
    def test_the_slope_lies_in_its_bounds(self, values: list[float]) -> None:
        found = trend([(float(t), v) for t, v in enumerate(values)])
        assert found is not None
        assert found.low <= found.slope <= found.high

    def test_nothing_to_say(self) -> None:
        assert trend([]) is None
        assert trend([(1.0, 2.0)]) is None
        assert trend([(1.0, 2.0), (1.0, 5.0)]) is None
