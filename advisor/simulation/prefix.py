"""The longest prefix that every group still has.

Source: vLLM 0.32 v1/core/kv_cache_coordinator.py (UnitaryKVCacheCoordinator, HybridKVCacheCoordinator:
find_longest_cache_hit) and the find_longest_cache_hit of each manager. Left out: EAGLE's dropped block and hits that
end inside a block.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.simulation.pool import BlockPool
from advisor.simulation.rules import GroupRule
from advisor.simulation.tables import Table, WindowTable
from advisor.simulation.texts import GROUP_BITS, Segment, key_at

Hits = list[list[int]]


class Finder:
    """Looks requests up in the prefix cache; groups with equal rules are looked up together."""

    def __init__(self, tables: Sequence[Table], pool: BlockPool, alignment: int) -> None:
        self.pool = pool
        self.alignment = alignment
        self.count = len(tables)
        sets: dict[GroupRule, list[int]] = {}
        for table in tables:
            sets.setdefault(table.rule, []).append(table.index)
        full = ("full", "latent")
        self.sets = sorted(sets.items(), key=lambda item: item[0].kind not in full)
        self.simple = len(self.sets) == 2 and self.sets[0][0].kind in full
        self.tables = tables

    def find(self, segments: Sequence[Segment], longest: int) -> tuple[Hits, int, int]:
        """Blocks of each group, tokens found, and the end of a prefix that only some groups have (0: none)."""
        found: list[list[int] | None] = [None] * self.count
        lengths = [0] * self.count
        hit, furthest = longest, 0
        while True:
            current = hit
            for rule, groups in self.sets:
                first = groups[0]
                if rule.kind in ("full", "latent") and found[first] is not None:
                    current = min(current, lengths[first])
                    continue
                blocks, current = self._of_set(rule, groups, segments, current)
                for g, own in zip(groups, blocks, strict=True):
                    found[g], lengths[g] = own, current
                furthest = max(furthest, current)
            if current >= hit:
                break
            hit = current
            if self.simple or len(self.sets) == 1:
                break
        for rule, groups in self.sets:
            if rule.kind in ("full", "latent"):
                for g in groups:
                    del (found[g] or [])[-(-hit // rule.block_size) :]
        junction = furthest if furthest > hit and len(self.tables) > 1 else 0
        return [own or [] for own in found], hit, junction

    def _of_set(
        self, rule: GroupRule, groups: list[int], segments: Sequence[Segment], longest: int
    ) -> tuple[Hits, int]:
        if rule.kind in ("full", "latent"):
            return self._from_the_left(rule, groups, segments, 0, longest)
        if rule.kind == "chunked":
            start = longest // rule.span_tokens * rule.span_tokens // rule.block_size
            return self._from_the_left(rule, groups, segments, start, longest)
        if rule.kind == "sliding":
            return self._window(rule, groups, segments, longest)
        return self._state(rule, groups, segments, longest)

    def _at(self, groups: list[int], segments: Sequence[Segment], position: int) -> list[int] | None:
        key = key_at(segments, position, 0)
        blocks = []
        for g in groups:
            block = self.pool.find(key | g)
            if not block:
                return None
            blocks.append(block)
        return blocks

    def _from_the_left(
        self, rule: GroupRule, groups: list[int], segments: Sequence[Segment], start: int, longest: int
    ) -> tuple[Hits, int]:
        size = rule.block_size
        own: Hits = [[0] * start for _ in groups]
        find, first = self.pool.find, groups[0]
        for position in range((start + 1) * size, longest + 1, size):
            block = find(key_at(segments, position, first))
            if not block:
                break
            blocks = self._at(groups, segments, position) if len(groups) > 1 else (block,)
            if blocks is None:
                break
            for mine, block in zip(own, blocks, strict=True):
                mine.append(block)
        hit = len(own[0]) * size
        if rule.kind != "chunked":
            hit -= hit % self.alignment
            for mine in own:
                del mine[-(-hit // size) :]
        return own, hit

    def _window(
        self, rule: GroupRule, groups: list[int], segments: Sequence[Segment], longest: int
    ) -> tuple[Hits, int]:
        """From the right: the first run of cached blocks that fills the window and ends on an aligned position."""
        table = self.tables[groups[0]]
        assert isinstance(table, WindowTable)  # noqa: S101 - by construction
        size, wanted = rule.block_size, -(-(rule.span_tokens - 1) // rule.block_size)
        count = longest // size
        own: Hits = [[0] * count for _ in groups]
        run = 0
        for i in range(count - 1, -1, -1):
            blocks = self._at(groups, segments, (i + 1) * size)
            if blocks is None:
                run = 0
                continue
            if not run and (i + 1) * size % self.alignment:
                continue
            for mine, block in zip(own, blocks, strict=True):
                mine[i] = block
            run += 1
            if run >= wanted:
                return [mine[: i + run] for mine in own], (i + run) * size
        run -= run * size % self.alignment // size
        return [mine[:run] for mine in own], run * size

    def _state(self, rule: GroupRule, groups: list[int], segments: Sequence[Segment], longest: int) -> tuple[Hits, int]:
        size = rule.block_size
        for i in range(longest // size - 1, -1, -1):
            if (i + 1) * size % self.alignment:
                continue
            blocks = self._at(groups, segments, (i + 1) * size)
            if blocks is not None:
                return [[0] * i + [block] for block in blocks], (i + 1) * size
        return [[] for _ in groups], 0


GROUPS_MAX = 1 << GROUP_BITS
