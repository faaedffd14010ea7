"""Equal names give equal tokens everywhere; what is a request's own is shared by nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.load.prompts import own_ids, own_key, prompt_ids, token_ids
from verify.load.types import Part, PlannedRequest

ROOT = Path(__file__).resolve().parents[3]


def request(index: int, *parts: Part) -> PlannedRequest:
    return PlannedRequest(
        index=index, phase="peak", prompt_tokens=sum(p.tokens for p in parts), output_tokens=1, parts=parts
    )  # fmt: skip


@given(
    st.text(min_size=1, max_size=8), st.integers(0, 2000), st.integers(0, 2**31), st.integers(20, 200_000),
    st.sets(st.integers(0, 9)),
)  # fmt: skip
def test_ids_are_in_the_vocabulary_and_none_is_special(key: str, n: int, seed: int, size: int, avoid: set[int]) -> None:
    ids = token_ids(key, n, seed=seed, vocab_size=size, avoid_ids=tuple(avoid))
    assert len(ids) == n
    assert all(0 <= token < size and token not in avoid for token in ids)
    assert ids[: n // 2] == token_ids(key, n // 2, seed=seed, vocab_size=size, avoid_ids=tuple(avoid))


def test_a_prompt_is_its_parts_in_order() -> None:
    made = request(7, Part("shared", 40), Part(own_key(7), 24))
    ids = prompt_ids(made, seed=1, vocab_size=5000, avoid_ids=())
    assert ids[:40] == token_ids("shared", 40, seed=1, vocab_size=5000, avoid_ids=())
    assert ids[40:] == own_ids(7, 24, seed=1, vocab_size=5000, avoid_ids=())
    assert len(ids) == 64


def test_no_two_requests_begin_alike() -> None:
    """P83: of a thousand prompts no two share their first block, however small a block and a vocabulary are."""
    for size, block in ((2100, 1), (64, 6), (9, 16)):
        starts = {tuple(own_ids(i, 16, seed=3, vocab_size=size, avoid_ids=(0, 1))[:block]) for i in range(1000)}
        assert len(starts) == 1000


@given(st.integers(0, 2**31), st.lists(st.integers(0, 10**6), min_size=2, max_size=40, unique=True))
def test_own_parts_differ_within_a_block(seed: int, indices: list[int]) -> None:
    starts = {tuple(own_ids(i, 16, seed=seed, vocab_size=4, avoid_ids=())) for i in indices}
    assert len(starts) == len(indices)


def test_seeds_differ() -> None:
    one, other = (token_ids("shared", 64, seed=seed, vocab_size=5000, avoid_ids=()) for seed in (1, 2))
    assert one != other
    assert (
        own_ids(7, 64, seed=1, vocab_size=5000, avoid_ids=())[0]
        != own_ids(7, 64, seed=2, vocab_size=5000, avoid_ids=())[0]
    )


def test_nothing_but_avoided_ids_is_an_error() -> None:
    with pytest.raises(ValueError, match="every one of 2 ids"):
        token_ids("x", 1, seed=0, vocab_size=2, avoid_ids=(0, 1))


def test_a_million_ids_take_seconds_at_most() -> None:
    """A generous bound, for slow machines: it is 0.1 s on a laptop."""
    began = time.process_time()
    for index in range(125):
        own_ids(index, 8000, seed=1, vocab_size=150_000, avoid_ids=(0, 1, 2))
    assert time.process_time() - began < 5


def test_the_same_in_every_process() -> None:
    code = (
        "from verify.load.prompts import token_ids;"
        "print(token_ids('b12', 20, seed=5, vocab_size=9999, avoid_ids=(3,)))"
    )  # fmt: skip
    said = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": salt, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, check=True,
        ).stdout
        for salt in ("0", "1", "random")
    }  # fmt: skip
    assert len(said) == 1
    assert token_ids("b12", 20, seed=5, vocab_size=9999, avoid_ids=(3,)) == eval(said.pop())  # noqa: S307
