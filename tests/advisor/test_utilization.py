from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.units import GIB, bytes_from_gib
from advisor.utilization import (
    graph_utilization,
    largest_utilization,
    proposed_utilization,
    smallest_utilization,
    utilization_for_reserve,
)


@pytest.mark.parametrize(
    ("total_gib", "free_gib", "ceiling"),
    [(31.84, 30.12, 0.94), (22.05, 19.77, 0.89), (79.19, 79.19, 1.0), (24.0, 0.0, 0.0)],
)
def test_the_ceiling_is_what_free_memory_allows(total_gib: float, free_gib: float, ceiling: float) -> None:
    """130 MB short at 0.95 on a 31.84 GiB card (cognithor#318), 0.9 on 22.05 (pytorch#175666)."""
    assert largest_utilization(bytes_from_gib(total_gib), bytes_from_gib(free_gib)) == ceiling


def test_the_proposal_stays_below_the_limit() -> None:
    assert proposed_utilization(bytes_from_gib(31.84), bytes_from_gib(30.12)) == 0.93
    assert proposed_utilization(bytes_from_gib(24), 0) == 0.0


def test_a_reserve_is_a_share_of_the_whole_card() -> None:
    """10 GiB of 24 kept for others (gpustack#611)."""
    assert utilization_for_reserve(24 * GIB, 10 * GIB) == 0.58
    assert utilization_for_reserve(24 * GIB, 30 * GIB) == 0.0


def test_what_cannot_fit_has_no_share() -> None:
    assert smallest_utilization(24 * GIB, 25 * GIB) is None
    assert smallest_utilization(24 * GIB, 12 * GIB) == 0.5
    assert smallest_utilization(24 * GIB, 12 * GIB + 1) == 0.51


def test_graphs_as_a_share_as_vllm_prints_it() -> None:
    """0.36 GiB made 0.8200 equivalent to 0.8048 (gpustack/runner#251): a card of 23.7 GiB."""
    assert graph_utilization(bytes_from_gib(0.36), bytes_from_gib(23.7)) == 0.0152
    assert round(0.82 - graph_utilization(bytes_from_gib(0.36), bytes_from_gib(23.7)), 4) == 0.8048


@given(st.integers(GIB, 300 * GIB), st.integers(0, 300 * GIB))
def test_the_ceiling_passes_the_check_and_one_step_more_does_not(total: int, free: int) -> None:
    share = largest_utilization(total, free)
    assert math.ceil(total * share) <= free or share == 0.0
    assert share == 1.0 or math.ceil(total * (round(share * 100) + 1) / 100) > free


@given(st.integers(GIB, 300 * GIB), st.integers(1, 300 * GIB))
def test_the_smallest_share_is_enough_and_one_step_less_is_not(total: int, needed: int) -> None:
    share = smallest_utilization(total, needed)
    if share is None:
        assert needed > total
        return
    assert round(share * 100) * total >= needed * 100
    assert share == 0.01 or (round(share * 100) - 1) * total < needed * 100
