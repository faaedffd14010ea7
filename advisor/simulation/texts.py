"""Names for prefixes: what vLLM's chained block hashes tell apart, without a single token.

A block is found again by the text before its end. Two requests agree up to a position when all parts before it are the
same texts at the same places, so a prefix is named by (node, position): a node is one text after one exact history.
"""

from __future__ import annotations

from collections.abc import Sequence

POSITION_BITS = 24  # up to 16 Mi tokens a request
GROUP_BITS = 8
_STEP = 1 << GROUP_BITS

Segment = tuple[int, int]  # (end position, node); the first begins at 0


class Texts:
    """Gives equal histories equal nodes."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int, str], int] = {}

    def segments(self, parts: Sequence[tuple[str, int]], output_text: str) -> tuple[Segment, ...]:
        """A request's text: its prompt's parts, then what it generates, without an end."""
        nodes, at, node = self._nodes, 0, 0
        found = []
        for text, tokens in parts:
            node = nodes.setdefault((node, at, text), len(nodes) + 1)
            at += tokens
            found.append((at, node))
        node = nodes.setdefault((node, at, output_text), len(nodes) + 1)
        found.append(((1 << POSITION_BITS) - 1, node))
        return tuple(found)


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
