"""What a prefix cache could serve of a schedule: prompt tokens that an earlier request of it began with, too.

vLLM caches whole blocks and always computes at least one token of a prompt (0.32, v1/core/kv_cache_manager.py,
get_computed_blocks: at most num_tokens - 1). Left out: what a full pool evicts, and answers, which no prompt repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from verify.load.phases import SHARED_KEY
from verify.load.prompts import own_key
from verify.load.types import Part, Phase, PlannedRequest

# Requests whose prompts are served; a prompt that is refused is looked up nowhere.
_SERVED = ("answer", "refusal_or_shortened", "cancel")


class Sharing(msgspec.Struct, frozen=True):
    """Prompt tokens of all served requests, those an endless cache would have, and distinct tokens computed."""

    prompt_tokens: int
    hit_tokens: int
    distinct_tokens: int

    @property
    def rate(self) -> float:
        """Share of prompt tokens that an endless cache serves."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


class _Seen:
    """Prompts so far, as a tree of parts."""

    def __init__(self) -> None:
        self._longest: dict[tuple[int, str], int] = {}  # (place in the tree, key) -> most tokens seen of it there
        self._after: dict[tuple[int, str, int], int] = {}  # the same with its length -> the place behind it

    def common(self, parts: Sequence[Part]) -> int:
        """Tokens that an earlier prompt began with, too; this one is seen from now on."""
        place, common, is_same = 0, 0, True
        for part in parts:
            longest = self._longest.get((place, part.key), 0)
            if is_same:
                common += min(longest, part.tokens)
            self._longest[place, part.key] = max(longest, part.tokens)
            following = self._after.get((place, part.key, part.tokens))
            is_same = is_same and following is not None
            if following is None:
                following = self._after[place, part.key, part.tokens] = len(self._after) + 1
            place = following
        return common


def sharing(phases: Iterable[Phase], block_size: int) -> Sharing:
    """What is shared in whole blocks of `block_size`, in the order of the schedule."""
    seen = _Seen()
    total = hits = distinct = 0
    for request in _served(phases):
        whole = min(seen.common(request.parts), request.prompt_tokens - 1) // block_size * block_size
        total += request.prompt_tokens
        hits += whole
        distinct += request.prompt_tokens - whole + request.output_tokens
    return Sharing(total, hits, distinct)


def declared_hit_rate(phases: Sequence[Phase], *, block_size: int | None, capacity_tokens: int | None) -> float | None:
    """The share of prompt tokens that the prefix cache should serve; None where that cannot be said before the run.

    It can where nothing is shared, where only the one prefix is that all requests keep in use, and where the pool holds
    everything that is sent in a phase that shares more (what earlier phases left in it is older, and evicted first).
    Not for recorded requests, whose text decides, nor without a block size.
    """
    if any(request.body is not None for request in _served(phases)):
        return None
    shares = [phase for phase in phases if any(map(_is_traced, _served([phase])))]
    keys = {part.key for request in _served(phases) for part in request.parts[:-1]}
    if not shares and not keys:
        return 0.0
    if block_size is None:
        return None
    sharing_more = [sharing([phase], block_size).distinct_tokens for phase in shares]
    if sharing_more and (capacity_tokens is None or max(sharing_more) > capacity_tokens):
        return None
    return sharing(phases, block_size).rate


def _is_traced(request: PlannedRequest) -> bool:
    """Whether parts of it come from a trace's blocks, any of which may be another request's, too."""
    own = {own_key(request.index), SHARED_KEY}
    return any(part.key not in own for part in request.parts)


def _served(phases: Iterable[Phase]) -> Iterable[PlannedRequest]:
    return (request for phase in phases for request in phase.requests if request.expect in _SERVED)
