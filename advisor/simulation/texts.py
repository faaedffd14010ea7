"""Names for prefixes: what vLLM's chained block hashes tell apart, without a single token.

A block is found again by the text before its end. Two requests agree up to a position when all parts before it are the
same texts at the same places, so a prefix is named by (node, position): a node is one text after one exact history.
"""

from __future__ import annotations

from collections.abc import Sequence

POSITION_BITS = 24  # up to 16 Mi tokens a request
GROUP_BITS = 8
POSITION_MAX = (1 << POSITION_BITS) - 1
_STEP = 1 << GROUP_BITS

Segment = tuple[int, int]  # (end position, node); the first begins at 0


class Texts:
    """Gives equal histories equal nodes."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int, str], int] = {}
        self._users: list[int] = [0]  # by node

    def segments(self, parts: Sequence[tuple[str, int]], output_text: str) -> tuple[Segment, ...]:
        """A request's text: its prompt's parts, then what it generates, without an end."""
        at, node = 0, 0
        found = []
        for text, tokens in parts:
            node = self._node(node, at, text)
            at += tokens
            found.append((at, node))
        found.append((POSITION_MAX, self._node(node, at, output_text)))
        return tuple(found)

    def _node(self, before: int, at: int, text: str) -> int:
        node = self._nodes.setdefault((before, at, text), len(self._users))
        if node == len(self._users):
            self._users.append(0)
        self._users[node] += 1
        return node

    def shared_end(self, segments: Sequence[Segment]) -> int:
        """The position up to which some other request may have the same text."""
        end = 0
        for upto, node in segments:
            if self._users[node] < 2:
                break
            end = upto
        return end


def block_keys(segments: Sequence[Segment], first: int, last: int, block_size: int, group: int) -> list[int]:
    """Keys of the blocks first..last-1 of one group's table."""
    keys: list[int] = []
    at, stop = (first + 1) * block_size, last * block_size
    for end, node in segments:
        if at > end:
            continue
        upto = min(end, stop)
        base = (node << (POSITION_BITS + GROUP_BITS)) | group
        keys += range(base | (at << GROUP_BITS), (base | (upto << GROUP_BITS)) + 1, block_size * _STEP)
        at += (upto - at) // block_size * block_size + block_size
        if at > stop:
            break
    return keys


def key_at(segments: Sequence[Segment], position: int, group: int) -> int:
    """The key of the block that ends at this position."""
    for end, node in segments:
        if position <= end:
            return (node << (POSITION_BITS + GROUP_BITS)) | (position << GROUP_BITS) | group
    raise AssertionError(position)  # the last segment has no end
