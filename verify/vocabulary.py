"""Which token ids a made prompt may hold: none that means something to the model beside text.

A prompt is given as ids, so nothing is tokenised and its length is exact. Special tokens stand at either end of a
vocabulary (Mistral and Gemma keep theirs among the first thousand, Llama and Qwen among the last), and a multimodal
model's placeholder for an image would be taken for one; so the first and last part of it are left out, and whatever the
config names as a token.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from advisor.errors import NotUnderstood
from advisor.model.config_view import ConfigView

_HEAD, _TAIL_FRACTION = 1000, 0.1
_SMALL = 4000  # a vocabulary this small is a test model's: a tenth at either end is enough
_SUFFIXES = ("token_id", "token_index", "token_ids")


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """Ids are drawn from 0 up to `size`, none of `avoid`."""

    size: int
    avoid: tuple[int, ...]


def vocabulary_of(config: dict[str, Any]) -> Vocabulary:
    """The ids for prompts of a model with this config.json. Raises NotUnderstood where it states no vocabulary."""
    view = ConfigView(config)
    whole = view.size("vocab_size", required=False)
    if not whole or whole < 16:
        raise NotUnderstood("the config states no vocab_size, so no prompt can be made", where="vocab_size")
    head = _HEAD if whole > _SMALL else whole // 10
    size = max(head + 8, int(whole * (1 - _TAIL_FRACTION)))
    named = {token for part in (config, view.text) for token in _named(part)}
    return Vocabulary(size=size, avoid=tuple(sorted({*range(head), *(t for t in named if t < size)})))


def _named(config: Mapping[str, Any]) -> Iterator[int]:
    for key, value in config.items():
        if key.endswith(_SUFFIXES):
            for token in value if isinstance(value, list) else [value]:
                if isinstance(token, int) and not isinstance(token, bool) and token >= 0:
                    yield token
