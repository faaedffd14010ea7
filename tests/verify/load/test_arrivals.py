"""Arrivals have the rate and the burstiness asked for, and say what they really have."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.load.arrivals import constant, figures, gamma, piecewise, poisson
from verify.load.randomness import stream


def test_constant_is_constant() -> None:
    assert constant(4, 2.0) == [0.0, 0.5, 1.0, 1.5]
    assert figures(constant(1000, 2.0))["gap_cv"] == pytest.approx(0, abs=1e-9)


@given(st.integers(0, 2**32), st.sampled_from([0.5, 2.0, 30.0]), st.sampled_from([0.5, 1.0, 2.0, 3.0]))
def test_gamma_has_its_rate_and_its_cv(seed: int, rate: float, cv: float) -> None:
    n = 8000
    found = figures(gamma(n, rate, cv, stream(seed, "x")))
    assert found["rate_per_s"] == pytest.approx(rate, rel=6 * cv / math.sqrt(n))
    assert found["gap_cv"] == pytest.approx(cv, rel=0.35)


@given(st.integers(0, 2**32))
def test_poisson_is_not_dispersed(seed: int) -> None:
    found = figures(poisson(20_000, 5.0, stream(seed, "x")))
    assert found["dispersion_1s"] == pytest.approx(1, abs=0.2)
    assert found["dispersion_10s"] == pytest.approx(1, abs=0.45)


def test_bursts_are_dispersed() -> None:
    assert figures(gamma(20_000, 5.0, 3.0, stream(1, "x")))["dispersion_10s"] > 4


@given(st.integers(0, 2**32))
def test_pieces_have_their_own_rates(seed: int) -> None:
    times = piecewise(5000, [(0, 10), (100, 0), (200, 40)], stream(seed, "x"))
    assert len(times) == 5000
    assert times == sorted(times)
    assert sum(at < 100 for at in times) == pytest.approx(1000, abs=160)
    assert not any(100 <= at < 200 for at in times)


@pytest.mark.parametrize("times", [[], [1.0], [2.0, 2.0, 2.0]])
def test_too_few_say_nothing(times: list[float]) -> None:
    assert figures(times) == {}
