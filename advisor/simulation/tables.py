"""The block table of a request in one KV cache group: what it needs, takes, gives back and leaves for others.

Source: vLLM 0.32 v1/core/single_type_kv_cache_manager.py (SingleTypeKVCacheManager, SlidingWindowManager,
ChunkedLocalAttentionManager, MambaManager). Left out: speculative tokens, copies of partly filled blocks (a
prefix_match_unit finer than a block), context parallelism.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.simulation.pool import BlockPool
from advisor.simulation.rules import GroupRule, Rules
from advisor.simulation.state import Live
from advisor.simulation.texts import block_keys, key_at


class Table:
    """Blocks of one group, held until the end: full attention, with latent caches the same."""

    def __init__(self, index: int, rule: GroupRule, rules: Rules, pool: BlockPool, alignment: int) -> None:
        self.index = index
        self.rule = rule
        self.block_size = rule.block_size
        self.pool = pool
        self.alignment = alignment
        self.cap = rules.recycling_cap(rule)
        self.retention = rules.behaviour.retention_interval_tokens
        self.masks = rules.behaviour.masks_windows

    def skipped(self, computed: int) -> int:  # noqa: ARG002
        """Tokens before this many computed ones that attention will not read again."""
        return 0

    def changes(self, lag: int) -> list[tuple[int, int]]:
        """(shift, modulus): while tokens are generated, something may happen when (computed + shift) % modulus == 0."""
        del lag
        return [(0, self.block_size)]

    def give_back(self, live: Live, computed: int) -> None:
        """Free the blocks that attention will not read again."""

    def more_needed(self, live: Live, tokens: int, computed: int) -> int:  # noqa: ARG002
        """Blocks that a running request must take to hold this many tokens."""
        need = -(-tokens // self.block_size) - len(live.tables[self.index])
        return max(need, 0)

    def first_needed(self, live: Live, tokens: int, hits: Sequence[int], computed: int, *, gate: bool) -> int:
        """Free blocks that a waiting request would take; `gate`: for its whole length, as the admission gate counts."""
        del live
        need = -(-tokens // self.block_size)
        if gate and self.cap is not None:
            need = min(need, self.cap)
        skipped = self.skipped(computed) // self.block_size
        return max(need - max(skipped, len(hits)), 0) + self.pool.evictable(hits[skipped:])

    def adopt(self, live: Live, hits: Sequence[int], computed: int) -> None:
        """Begin with blocks of the prefix cache."""
        skipped = self.skipped(computed) // self.block_size
        kept = hits[skipped:] if skipped > 0 else hits
        self.pool.touch(kept)
        live.tables[self.index] = [0] * skipped + list(kept)
        live.cached[self.index] = skipped + len(kept)

    def extend(self, live: Live, tokens: int) -> None:
        """Take the blocks for this many tokens."""
        table = live.tables[self.index]
        need = -(-tokens // self.block_size) - len(table)
        if need == 1:
            table.append(self.pool.take_one())
        elif need > 1:
            table += self.pool.take(need)

    def kept(self, first: int, last: int, boundaries: Sequence[int]) -> Sequence[int] | None:
        """Which of the blocks first..last-1 others may find (None: all)."""
        del first, last, boundaries
        return None

    def publish(self, live: Live, tokens: int, boundaries: Sequence[int]) -> None:
        """Put the full blocks of these tokens into the prefix cache."""
        g, first, last = self.index, live.cached[self.index], tokens // self.block_size
        if first >= last:
            return
        live.cached[g] = last
        kept = self.kept(first, last, boundaries)
        table = live.tables[g]
        if kept is None and last == first + 1 and table[first]:
            key = key_at(live.segments, last * self.block_size, g)
            self.pool.remember_one(key, table[first])
        elif kept is None:
            keys = block_keys(live.segments, first, last, self.block_size, g)
            self.pool.remember(keys, table[first:last])
        else:
            for i in kept:
                if table[i]:
                    self.pool.remember_one(key_at(live.segments, (i + 1) * self.block_size, g), table[i])

    def release(self, live: Live) -> None:
        """Give everything back, the end first."""
        self.pool.release(live.tables[self.index][::-1])
        live.tables[self.index] = []
        live.cached[self.index] = 0


class WindowTable(Table):
    """A sliding window: blocks before it are given back."""

    def __init__(self, index: int, rule: GroupRule, rules: Rules, pool: BlockPool, alignment: int) -> None:
        super().__init__(index, rule, rules, pool, alignment)
        self.window = rule.span_tokens
        self.blocks_for_hit = -(-(self.window - 1) // self.block_size)

    def skipped(self, computed: int) -> int:
        """All before the window of the next token."""
        return max(0, computed - self.window + 1)

    def changes(self, lag: int) -> list[tuple[int, int]]:
        """A block is taken at one end, another given back at the other."""
        return [(0, self.block_size), (1 - lag - self.window, self.block_size)]

    def give_back(self, live: Live, computed: int) -> None:
        """Replace the blocks behind the window by null blocks."""
        last = self.skipped(computed) // self.block_size
        if last > 0:
            self._give_back(live.tables[self.index], last)

    def _give_back(self, table: list[int], last: int) -> None:
        freed = []
        for i in range(min(last, len(table)) - 1, -1, -1):
            if not table[i]:
                break
            freed.append(table[i])
            table[i] = 0
        if freed:
            self.pool.release(freed)

    def kept(self, first: int, last: int, boundaries: Sequence[int]) -> Sequence[int] | None:
        """SlidingWindowManager.reachable_block_mask: the blocks a hit at an aligned position would need."""
        if not self.masks or self.alignment % self.block_size:
            return None
        found: set[int] = set()
        segment = self.alignment if self.retention is None else self.retention
        if segment:
            per_segment = segment // self.block_size
            if self.blocks_for_hit >= per_segment:
                return None
            found.update(i for i in range(first, last) if i % per_segment >= per_segment - self.blocks_for_hit)
        if self.retention is not None:
            for boundary in boundaries:
                end = boundary // self.alignment * self.alignment // self.block_size
                found.update(range(max(first, end - self.blocks_for_hit), min(last, end)))
        return sorted(found)


class ChunkTable(WindowTable):
    """Attention within chunks: what lies before the current chunk is given back, and everything is kept for others."""

    def skipped(self, computed: int) -> int:
        """All before the chunk of the next token."""
        return computed // self.window * self.window

    def changes(self, lag: int) -> list[tuple[int, int]]:
        """A block is taken, or a chunk is over."""
        return [(0, self.block_size), (-lag, self.window)]

    def kept(self, first: int, last: int, boundaries: Sequence[int]) -> Sequence[int] | None:
        """All."""
        del first, last, boundaries
        return None


class StateTable(WindowTable):
    """A recurrent state that cannot be found again: the last one only."""

    def skipped(self, computed: int) -> int:
        """All but the last."""
        return computed - 1

    def changes(self, lag: int) -> list[tuple[int, int]]:
        """A block is taken, and in the next step the one before it given back."""
        return [(0, self.block_size), (-lag - 1, self.block_size)]
