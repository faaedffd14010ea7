"""Arrivals have the rate and the burstiness asked for, and say what they really have."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.workload import Arrivals
from verify.load.arrivals import evenly, figures, in_bursts, in_pieces, times
from verify.load.randomness import stream

SEEDS = st.integers(0, 2**32)


def test_constant_is_constant() -> None:
    assert evenly(4, 2.0) == [0.0, 0.5, 1.0, 1.5]
    assert figures(evenly(1000, 2.0))["gap_cv"] == pytest.approx(0, abs=1e-9)


@given(SEEDS, st.floats(0.01, 1000), st.floats(0, 5), st.integers(2, 400))
def test_the_rate_is_the_one_stated_however_few_come(seed: int, rate: float, cv: float, n: int) -> None:
    found = in_bursts(n, rate, cv, stream(seed, "x"))
    assert len(found) == n
    assert found[0] == 0.0
    assert found == sorted(found)
    assert found[-1] == pytest.approx((n - 1) / rate)


@settings(deadline=None, max_examples=40)
@given(SEEDS, st.sampled_from([0.5, 2.0, 30.0]), st.sampled_from([0.3, 0.5, 1.0, 2.0, 3.0]))
def test_gamma_has_its_cv(seed: int, rate: float, cv: float) -> None:
    n = 8000
    found = figures(in_bursts(n, rate, cv, stream(seed, "x")))
    assert found["gap_cv"] == pytest.approx(cv, rel=6 * max(1.0, cv) ** 1.2 / math.sqrt(n) + 0.06)


@settings(deadline=None, max_examples=40)
@given(SEEDS)
def test_poisson_is_not_dispersed(seed: int) -> None:
    found = figures(in_bursts(20_000, 5.0, 1.0, stream(seed, "x")))
    assert found["dispersion_1s"] == pytest.approx(1, abs=0.2)
    assert found["dispersion_10s"] == pytest.approx(1, abs=0.45)


def test_bursts_are_dispersed() -> None:
    assert figures(in_bursts(20_000, 5.0, 3.0, stream(1, "x")))["dispersion_10s"] > 4


@settings(deadline=None, max_examples=40)
@given(SEEDS)
def test_pieces_have_their_own_rates(seed: int) -> None:
    found, end_s = in_pieces([(0, 10), (100, 0), (200, 40)], stream(seed, "x"), fewest=3000, most=9000)
    assert (len(found), end_s) == (1000 + 4000, 300.0), "the last piece is as long as the longest before it"
    assert found == sorted(found)
    assert sum(at < 100 for at in found) == 1000
    assert not any(100 <= at < 200 for at in found)
    assert figures([at for at in found if at < 100])["gap_cv"] == pytest.approx(1, abs=0.2), "Poisson inside"


def test_a_last_piece_goes_on_until_enough_have_come() -> None:
    found, end_s = in_pieces([(0, 2)], stream(1, "x"), fewest=300, most=9000)
    assert (len(found), end_s) == (300, 150.0)
    found, end_s = in_pieces([(0, 2), (30, 0)], stream(1, "x"), fewest=300, most=9000)
    assert (len(found), end_s) == (60, 30), "a last rate of 0 ends it"


@pytest.mark.parametrize(
    ("arrivals", "how", "note"),
    [
        (None, "at random at 4 a second", ""),
        (Arrivals(process="poisson"), "at random at 4 a second", ""),
        (Arrivals(process="constant"), "evenly at 4 a second", ""),
        (Arrivals(process="gamma", cv=2.0), "in bursts (CV 2) at 4 a second", ""),
        (Arrivals(process="gamma", cv=40.0), "in bursts (CV 40) at 4 a second", "so few show it no better"),
        (Arrivals(process="piecewise", rates=((0, 4), (30, 0))), "at random at 2 rates over 30 s", "would tell more"),
        (Arrivals(process="piecewise", rates=((0, 40), (30, 50))), "at random at 2 rates", "only 1,000 requests"),
    ],
)
def test_what_is_drawn_is_said(arrivals: Arrivals | None, how: str, note: str) -> None:
    found, words, notes = times(arrivals, 4.0, stream(1, "x"), fewest=500, most=1000)
    assert words.startswith(how)
    assert note in " ".join(notes)
    assert bool(notes) == bool(note)
    assert len(found) <= 1000


@pytest.mark.parametrize("found", [[], [1.0], [2.0, 2.0, 2.0]])
def test_too_few_say_nothing(found: list[float]) -> None:
    assert figures(found) == {}


def test_nothing_and_one_arrive_at_once() -> None:
    assert in_bursts(0, 2.0, 1.0, stream(1, "x")) == []
    assert in_bursts(1, 2.0, 1.0, stream(1, "x")) == [0.0]
