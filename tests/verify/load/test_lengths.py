"""A sample has the percentiles it was made from, and nothing above its maximum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.workload import Lengths
from verify.load.lengths import nearest_rank, ordered, rank_of, sample
from verify.load.randomness import stream

_SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "max": 1.0}


@st.composite
def stated(draw: st.DrawFn) -> Lengths:
    """Any percentiles that do not fall, with p95 or max among them."""
    names = draw(st.sets(st.sampled_from(sorted(_SHARES))))
    names |= {draw(st.sampled_from(["p95", "max"]))}
    values = sorted(draw(st.lists(st.integers(1, 200_000), min_size=len(names), max_size=len(names))))
    return Lengths(**dict(zip(sorted(names, key=_SHARES.__getitem__), values, strict=True)))


@given(stated(), st.integers(100, 3000))
def test_every_stated_percentile_is_in_the_sample(lengths: Lengths, n: int) -> None:
    values = ordered(lengths, n)
    assert values == sorted(values)
    assert values[-1] == lengths.longest
    assert values[0] >= 1
    for name, share in _SHARES.items():
        if (value := getattr(lengths, name)) is not None:
            assert nearest_rank(values, share) == value


@given(stated(), st.integers(1, 99))
def test_a_small_sample_has_its_maximum_and_no_more(lengths: Lengths, n: int) -> None:
    values = ordered(lengths, n)
    assert len(values) == n
    assert values == sorted(values)
    assert values[-1] == lengths.longest


@given(stated(), st.integers(0, 500), st.integers(0, 2**32))
def test_extra_tokens_are_added_to_each(lengths: Lengths, extra: int, seed: int) -> None:
    drawn = sample(lengths, 150, stream(seed, "x"), extra=extra)
    assert sorted(drawn) == [value + extra for value in ordered(lengths, 150)]


def test_the_tail_is_long() -> None:
    """Half of a chat's tokens are in its longest fifth or so, not spread evenly."""
    values = ordered(Lengths(p50=400, p95=6000, max=8000), 1000)
    assert sum(values[800:]) > sum(values) / 2


@pytest.mark.parametrize(
    ("share", "n", "rank"),
    [(0.5, 100, 50), (0.95, 100, 95), (0.99, 299, 297), (0.95, 59, 57), (1.0, 7, 7)],
)
def test_nearest_rank_is_the_textbook_one(share: float, n: int, rank: int) -> None:
    assert rank_of(share, n) == rank
