"""What a prefix cache could serve is worked out as vLLM does it: in whole blocks, never the whole prompt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.load.hits import Sharing, declared_hit_rate, sharing
from verify.load.types import Expect, Part, Phase, PlannedRequest


def request(index: int, *parts: tuple[str, int], output: int = 10, expect: Expect = "answer") -> PlannedRequest:
    return PlannedRequest(
        index=index, phase="tail", prompt_tokens=sum(n for _, n in parts), output_tokens=output, expect=expect,
        parts=tuple(Part(key, n) for key, n in parts),
    )  # fmt: skip


def phase(*requests: PlannedRequest) -> Phase:
    return Phase(name="tail", mode="open", requests=requests)


@pytest.mark.parametrize(
    ("prompts", "hits"),
    [
        ([[("r0", 100)], [("r1", 100)]], 0),
        ([[("shared", 40), ("r0", 60)], [("shared", 40), ("r1", 60)]], 32),  # whole blocks of 16
        ([[("b1", 64)], [("b1", 64)]], 48),  # the last token is always computed
        ([[("b1", 64), ("b2", 64)], [("b1", 64), ("b2", 30)]], 80),  # 94 tokens of prompt: five blocks at most
        ([[("b1", 64), ("b2", 30)], [("b1", 64), ("b2", 64)]], 80),  # 94 are known of the longer one
        ([[("b1", 64), ("b2", 64)], [("b2", 64), ("b1", 64)]], 0),  # a block counts where it stands
        ([[("b1", 30), ("r0", 40)], [("b1", 64), ("b2", 6)]], 16),
        ([[("b1", 64)], [("b1", 64), ("r1", 64)], [("b1", 64), ("r2", 1)]], 128),
    ],
)
def test_whole_blocks_that_were_there_before(prompts: list[list[tuple[str, int]]], hits: int) -> None:
    made = phase(*(request(i, *parts) for i, parts in enumerate(prompts)))
    assert sharing([made], 16).hit_tokens == hits


def test_only_what_is_served_counts() -> None:
    refused = request(0, ("shared", 160), ("r0", 40), expect="refusal")
    left = request(1, ("shared", 160), ("r1", 40), expect="cancel")
    found = sharing([phase(refused, left, request(2, ("shared", 160), ("r2", 40)))], 16)
    assert found == Sharing(prompt_tokens=400, hit_tokens=160, distinct_tokens=260)
    assert found.rate == 0.4


def rate(*requests: PlannedRequest, block_size: int | None = 16, capacity: int | None = 10**6) -> float | None:
    return declared_hit_rate(
        [phase(*requests)], block_size=block_size, capacity_tokens=capacity
    )  # fmt: skip


def test_it_is_declared_where_it_can_be() -> None:
    own = [request(i, (f"r{i}", 100)) for i in range(3)]
    assert rate(*own, block_size=None) == 0.0, "nothing is shared, whatever the block"
    prefix = [request(i, ("shared", 32), (f"r{i}", 68)) for i in range(4)]
    assert rate(*prefix, capacity=150) == pytest.approx(0.24), "a prefix that all requests use stays in the pool"
    assert rate(*prefix, block_size=None) is None
    blocks = [request(i, ("b1", 64), (f"r{i}", 36)) for i in range(4)]
    assert rate(*blocks) == pytest.approx(0.48)
    assert rate(*blocks, capacity=200) is None, "a pool that cannot hold it all evicts what would have been found"
    assert rate(*blocks, capacity=None) is None
    repeated = [request(i, ("b1", 64)) for i in range(2)]
    assert rate(*repeated) == pytest.approx(48 / 128), "a last block may be another's, too"
    recorded = PlannedRequest(
        index=0, phase="tail", prompt_tokens=9, output_tokens=1, parts=(Part("r0", 9),), body=b"{}"
    )  # fmt: skip
    assert rate(recorded) is None
    assert rate() == 0.0


@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40)), min_size=1, max_size=4), max_size=12))
def test_it_is_what_comparing_tokens_gives(prompts: list[list[tuple[str, int]]]) -> None:
    """Against every earlier prompt, token by token: a key's tokens are its name and their place in the part."""
    made = phase(*(request(i, *parts) for i, parts in enumerate(prompts)))
    spelled = [[f"{key}{place}" for key, n in parts for place in range(n)] for parts in prompts]
    expected = 0
    for number, mine in enumerate(spelled):
        common = max((_common(mine, other) for other in spelled[:number]), default=0)
        expected += min(common, len(mine) - 1) // 8 * 8
    assert sharing([made], 8).hit_tokens <= expected
    if all(n == 40 for parts in prompts for _, n in parts):
        assert sharing([made], 8).hit_tokens == expected


def _common(one: list[str], other: list[str]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
