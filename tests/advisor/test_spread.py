from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.estimate import Estimate, estimated, exact, measured
from advisor.spread import largest_of, remainder, scaled, total_of


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    value = draw(st.integers(-(2**40), 2**40))
    return estimated(value, value - draw(st.integers(0, 2**36)), value + draw(st.integers(0, 2**36)))


def test_the_largest_distance_counts_in_full_and_the_rest_in_quadrature() -> None:
    parts = [estimated(100, 90, 112), estimated(50, 47, 50), estimated(10, 6, 15)]
    assert total_of(parts) == estimated(160, 160 - 10 - 5, 160 + 12 + 5)


def test_a_remainder_takes_the_parts_bad_ends() -> None:
    assert remainder([exact(1000)], [estimated(300, 290, 330)]) == estimated(700, 670, 710)


def test_exact_parts_make_an_exact_sum() -> None:
    assert total_of([exact(3), exact(4)]) == exact(7)
    assert total_of([exact(3), measured(4)]).basis == "measured"
    assert total_of([]) == exact(0)


def test_the_largest_of_moments_is_taken_end_by_end() -> None:
    assert largest_of([estimated(10, 2, 40), estimated(20, 5, 30)]) == estimated(20, 5, 40)


def test_a_factor_is_rounded_to_whole_bytes_outwards() -> None:
    assert scaled(1.5, 1.4, 1.6, 7) == estimated(10, 9, 12)


@given(st.lists(estimates(), min_size=1, max_size=6))
def test_a_sum_is_never_wider_than_end_to_end_nor_narrower_than_its_widest_part(parts: list[Estimate]) -> None:
    total = total_of(parts)
    assert total.value == sum(p.value for p in parts)
    assert sum(p.low for p in parts) - 1 <= total.low <= total.value - max(p.value - p.low for p in parts)
    assert total.value + max(p.high - p.value for p in parts) <= total.high <= sum(p.high for p in parts) + 1


@given(estimates(), estimates(), st.integers(0, 2**30))
def test_more_of_a_part_leaves_less(whole: Estimate, part: Estimate, more: int) -> None:
    larger = estimated(part.value + more, part.low, part.high + more)
    assert remainder([whole], [larger]).value == remainder([whole], [part]).value - more
    assert remainder([whole], [larger]).low <= remainder([whole], [part]).low


def test_a_band_that_does_not_hold_its_value_is_refused() -> None:
    with pytest.raises(ValueError, match="band"):
        scaled(1.0, 1.2, 1.5, 1000)
