"""How far an argument is moved: the arithmetic behind remedies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.versions import Version
from launch import levers

GIB = 1024**3


@pytest.mark.parametrize(
    ("failed", "target", "fewer"),
    [(1024, 40, 64), (256, None, 64), (1024, None, 256), (64, 60, 16), (2, None, None), (4, None, 1), (256, 5000, 64)],
)
def test_fewer_sequences_serve_the_target_or_are_a_quarter(failed: int, target: int | None, fewer: int | None) -> None:
    assert levers.fewer_seqs(failed, target) == fewer


@pytest.mark.parametrize(
    ("blocks", "target", "most"),
    [
        (856, None, 684),
        (614, None, 491),
        (161, 24, 32),
        (8, None, 6),
        (1, None, None),
        (856, 900, 684),
        (0, None, None),
    ],
)
def test_mamba_blocks_are_never_used_up(blocks: int, target: int | None, most: int | None) -> None:
    assert levers.within_blocks(blocks, target) == most


@pytest.mark.parametrize(
    ("now", "seqs", "half"),
    [(8192, None, 4096), (2048, 1536, 1536), (600, None, 512), (512, None, None), (None, 8, None), (2048, 4096, None)],
)
def test_half_the_batch_stays_above_the_sequences(now: int | None, seqs: int | None, half: int | None) -> None:
    assert levers.fewer_batched(now, seqs) == half


def test_a_share_falls_by_what_is_missing_and_at_least_a_hundredth() -> None:
    assert levers.lower_share(0.98, round(22.36 * GIB), 15 * 1024**2) == 0.97
    assert levers.lower_share(0.93, round(31.4 * GIB), round(0.38 * GIB)) == 0.91
    assert levers.lower_share(0.02, GIB, 0) == 0.01
    assert levers.lower_share(0.01, GIB, 0) is None


def test_a_share_rises_no_further_than_is_safe_and_free() -> None:
    assert levers.higher_share(0.1, round(14.6 * GIB), round(4.42 * GIB), None) == 0.41
    assert levers.higher_share(0.9, 24 * GIB, 3 * GIB, None) is None
    assert levers.higher_share(0.8, 24 * GIB, 2 * GIB, 20 * GIB) is None


def test_what_was_free_is_not_used_up() -> None:
    assert levers.free_share(round(31.84 * GIB), round(30.12 * GIB)) == 0.93
    assert levers.free_share(round(22.05 * GIB), round(19.77 * GIB)) == 0.88
    assert levers.free_share(GIB, 0) is None


@pytest.mark.parametrize(
    ("heads", "asked", "allowed", "gpus", "fits"),
    [
        (28, 8, (), None, 4),
        (28, 8, (1, 2, 4), 8, 4),
        (52, 8, (), None, 4),
        (64, 3, (), None, 2),
        (28, 8, (1, 2, 4, 7), 8, 7),
        (9, 2, (), None, 1),
        (64, 16, (), 4, 4),
    ],
)
def test_fewer_ranks_divide_the_heads(
    heads: int, asked: int, allowed: tuple[int, ...], gpus: int | None, fits: int
) -> None:
    assert levers.smaller_tp(heads, asked, allowed, gpus) == fits


def test_more_ranks_need_gpus_and_a_size_that_divides() -> None:
    assert levers.next_tp(2, (1, 2, 4, 8), 8) == 4
    assert levers.next_tp(2, (1, 2, 4, 8), 2) is None
    assert levers.next_tp(2, (), 8) is None
    assert levers.next_tp(None, (1, 2), 2) == 2


def test_a_length_is_cut_to_whole_blocks() -> None:
    assert levers.to_block(3968, 128) == 3968
    assert levers.to_block(26047, None) == 26032
    assert levers.to_block(9, 16) == 9


def test_defaults_follow_the_release() -> None:
    assert levers.default_share(Version(0, 19, 1)) == 0.9
    assert levers.default_share(Version(0, 32)) == 0.92
    assert levers.default_share(None) is None
    assert levers.has_argument("max_cudagraph_capture_size", Version(0, 32))
    assert not levers.has_argument("max_cudagraph_capture_size", Version(0, 8, 5))
    assert not levers.has_argument("max_cudagraph_capture_size", None)
    assert not levers.has_argument("swap_space", Version(0, 18))


@given(st.floats(0.01, 1.0), st.integers(GIB, 1 << 38), st.integers(0, 1 << 38))
def test_shares_stay_shares(share: float, total: int, missing: int) -> None:
    lower = levers.lower_share(share, total, missing)
    assert lower is None or 0.01 <= lower <= share
    higher = levers.higher_share(share, total, missing, None)
    assert higher is None or share < higher <= levers.HIGHEST_SHARE
