"""Prompts as token ids, made from names: a part of the same name has the same tokens in every process and every run.

Nothing is tokenised, so a prompt's length is exact. Ids come from SHAKE-256 over (seed, key), which is quick in C and
the same everywhere; what must not be shared between requests begins with the request's own number.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from functools import lru_cache

from verify.load.types import PlannedRequest

_OWN = "r"  # keys of a request's own part are "r" and its index
_MOST_NUMBER_TOKENS = 16  # vLLM's usual block
_REQUESTS = 2**31


def own_key(index: int) -> str:
    """The key of the part that no other request has."""
    return f"{_OWN}{index}"


def prompt_ids(request: PlannedRequest, *, seed: int, vocab_size: int, avoid_ids: tuple[int, ...]) -> list[int]:
    """The whole prompt of a request: below `vocab_size`, none of `avoid_ids`, `prompt_tokens` long."""
    ids: list[int] = []
    for part in request.parts:
        if part.key == own_key(request.index):
            ids += own_ids(request.index, part.tokens, seed=seed, vocab_size=vocab_size, avoid_ids=avoid_ids)
        else:
            ids += _shared_ids(part.key, part.tokens, seed, vocab_size, avoid_ids)
    return ids


def token_ids(key: str, tokens: int, *, seed: int, vocab_size: int, avoid_ids: tuple[int, ...]) -> list[int]:
    """The first `tokens` ids of a key; a longer run of the same key begins with a shorter one."""
    allowed = _allowed(vocab_size, avoid_ids)
    n = len(allowed)
    return [allowed[value % n] for value in _numbers(f"{seed}/{key}", tokens)]


def own_ids(index: int, tokens: int, *, seed: int, vocab_size: int, avoid_ids: tuple[int, ...]) -> list[int]:
    """A request's own part: it begins with the request's number, so that no two share a block however small, as far as
    the vocabulary and the part's length allow. Where in the vocabulary the numbers begin is the seed's.
    """
    allowed = _allowed(vocab_size, avoid_ids)
    n = len(allowed)
    ids = token_ids(own_key(index), tokens, seed=seed, vocab_size=vocab_size, avoid_ids=avoid_ids)
    rest = index
    for place, begin in enumerate(_numbers(f"{seed}/numbers", min(_number_tokens(n), tokens))):
        rest, digit = divmod(rest, n)
        ids[place] = allowed[(begin + digit) % n]
    return ids


def _number_tokens(n: int) -> int:
    """Tokens that tell any two requests apart where `n` ids may be used."""
    return next((tokens for tokens in range(1, _MOST_NUMBER_TOKENS) if n**tokens >= _REQUESTS), _MOST_NUMBER_TOKENS)


@lru_cache(maxsize=256)
def _shared_ids(key: str, tokens: int, seed: int, vocab_size: int, avoid_ids: tuple[int, ...]) -> list[int]:
    return token_ids(key, tokens, seed=seed, vocab_size=vocab_size, avoid_ids=avoid_ids)


@lru_cache(maxsize=4)
def _allowed(vocab_size: int, avoid_ids: tuple[int, ...]) -> list[int]:
    avoided = set(avoid_ids)
    allowed = [token for token in range(vocab_size) if token not in avoided]
    if not allowed:
        raise ValueError(f"every one of {vocab_size} ids is to be avoided")
    return allowed


def _numbers(name: str, n: int) -> array[int]:
    numbers = array("I", hashlib.shake_256(name.encode()).digest(4 * n))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
