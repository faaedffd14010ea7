"""Prompts are made of ids that mean text and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import NotUnderstood
from verify.vocabulary import vocabulary_of

SHARED = Path(os.environ.get("KVADVISE_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))


def left_over(config: dict[str, Any]) -> int:
    made = vocabulary_of(config)
    return made.size - len(made.avoid)


@pytest.mark.parametrize(
    ("config", "special"),
    [
        ({"vocab_size": 128256, "bos_token_id": 128000, "eos_token_id": [128001, 128009]}, (128000, 128001, 128009)),
        ({"vocab_size": 32000, "bos_token_id": 1, "eos_token_id": 2}, (0, 1, 2, 31999)),
        ({"vocab_size": 152064, "image_token_id": 5000, "text_config": {"vocab_size": 152064}}, (5000,)),
        ({"vocab_size": 262208, "image_token_index": 262144, "boi_token_index": 255999}, (262144, 255999)),
    ],
)
def test_special_tokens_are_never_drawn(config: dict[str, Any], special: tuple[int, ...]) -> None:
    made = vocabulary_of(config)
    for token in special:
        assert token >= made.size or token in made.avoid
    assert left_over(config) > 10_000


@given(
    st.integers(16, 300_000),
    st.lists(st.integers(-5, 400_000), max_size=6),
)
def test_there_is_always_something_to_draw_from(size: int, named: list[int]) -> None:
    config = {"vocab_size": size, "eos_token_id": named}
    made = vocabulary_of(config)
    assert made.size <= size
    assert left_over(config) >= 2
    assert list(made.avoid) == sorted(set(made.avoid))
    assert all(0 <= token < made.size for token in made.avoid)


@pytest.mark.parametrize("config", [{}, {"vocab_size": 3}])
def test_without_a_vocabulary_no_prompt_is_made(config: dict[str, Any]) -> None:
    with pytest.raises(NotUnderstood):
        vocabulary_of(config)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the configs of real models are not beside the checkout")
def test_real_configs_that_state_a_vocabulary_have_one() -> None:
    seen = 0
    for path in sorted((SHARED / "configs").glob("*/config.json")):
        config = json.loads(path.read_text(encoding="utf-8"))
        try:
            assert left_over(config) > 1000, path
            seen += 1
        except NotUnderstood:
            continue
    assert seen > 100
