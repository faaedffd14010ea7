"""The block table of a request in one KV cache group: what it needs, takes, gives back and leaves for others.

Source: vLLM 0.32 v1/core/single_type_kv_cache_manager.py (SingleTypeKVCacheManager, SlidingWindowManager,
ChunkedLocalAttentionManager, MambaManager). Left out: speculative tokens, copies of partly filled blocks (a
prefix_match_unit finer than a block), states exported within a chunk, context parallelism.
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

    def more_needed(self, live: Live, tokens: int) -> int:
        """Blocks that a running request must take to hold this many tokens."""
        need = -(-tokens // self.block_size) - len(live.tables[self.index])
        return max(need, 0)

    def first_needed(self, tokens: int, hits: Sequence[int], computed: int, *, gate: bool) -> int:
        """Free blocks that a waiting request would take; `gate`: for its whole length, as the admission gate counts."""
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


class AlignedStateTable(StateTable):
    """States at block boundaries (cache mode "align"): a table mostly of null blocks, two states at most."""

    def __init__(self, index: int, rule: GroupRule, rules: Rules, pool: BlockPool, alignment: int) -> None:
        super().__init__(index, rule, rules, pool, alignment)
        self.this_step: set[int] = set()
        self.too_early = False
        self._last_states: dict[int, Live] = {}  # the prompt's last state, as long as it may be written again
        self._step = 0
        self._marks = rules.behaviour.marks_last_state
        self._lag = 1 if rules.async_scheduling else 0

    def new_step(self, step: int) -> None:
        """States written from now on can be read from the next step on."""
        self.this_step.clear()
        self._step = step

    def mark(self, live: Live, tokens: int) -> None:
        """Until the next block is full, every step counts as having written the prompt's last state.

        MambaManager._cache_partial_tail_block registers it again, and what a step has registered cannot be read in it.
        """
        last = (live.prompt_tokens - 1) // self.block_size
        if self._marks and tokens == last * self.block_size and last and live.tables[self.index][last - 1]:
            key = key_at(live.segments, tokens, self.index)
            self.this_step.add(key)
            self._last_states[key] = live

    def _written_now(self, key: int) -> bool:
        if key in self.this_step:
            return True
        live = self._last_states.get(key)
        if live is None:
            return False
        last = (live.prompt_tokens - 1) // self.block_size
        if live.flowing and not live.ending and live.stalled_step != self._step and live.last_step != self._step:
            behind = self._lag if live.stalled_step != self._step - 1 else 0
            tokens = self._step + live.offset + 1 - behind
            if tokens - tokens % self.alignment == last * self.block_size and live.tables[self.index][last - 1]:
                return True
        if live.last_step != self._step and live.stalled_step != self._step:
            del self._last_states[key]
        return False

    def give_back(self, live: Live, computed: int) -> None:
        """Give back every state but the last, the one it was made from among them."""
        table, at = live.tables[self.index], live.states[self.index]
        last = min((computed - 1) // self.block_size, len(table))
        if last > at.retired:
            freed = [table[i] for i in range(last - 1, at.retired - 1, -1) if table[i]]
            table[at.retired : last] = [0] * (last - at.retired)
            at.retired = last
            if freed:
                self.pool.release(freed)
        if at.previous is not None and at.previous < -(-computed // self.block_size) - 1 and table[at.previous]:
            self.pool.release((table[at.previous],))
            table[at.previous] = 0

    def more_needed(self, live: Live, tokens: int) -> int:
        """One state, when the last block is full."""
        return 1 if -(-tokens // self.block_size) > len(live.tables[self.index]) else 0

    def first_needed(self, tokens: int, hits: Sequence[int], computed: int, *, gate: bool) -> int:
        """A state written in this very step cannot be read yet: more blocks than there are."""
        del computed, gate
        if hits and self._written_now(self.pool.key[hits[-1]]):
            self.too_early = True
            return self.pool.total + 2
        need = 1 if -(-tokens // self.block_size) > len(hits) else 0
        return need + self.pool.evictable(hits)

    def extend(self, live: Live, tokens: int) -> None:
        """Take a block for the running state; the positions it has jumped over stay without one."""
        table, at = live.tables[self.index], live.states[self.index]
        need = -(-tokens // self.block_size)
        if need > len(table):
            if at.allocated or table:
                at.previous = len(table) - 1
            table += [0] * (need - 1 - len(table))
            table.append(self.pool.take_one())
        at.allocated = True

    def kept(self, first: int, last: int, boundaries: Sequence[int]) -> Sequence[int] | None:
        """MambaManager.reachable_block_mask."""
        if self.retention is None:
            return None
        found: set[int] = set()
        if self.retention:
            per_segment = self.retention // self.block_size
            if per_segment <= 1:
                return None
            found.update(i for i in range(first, last) if (i + 1) % per_segment == 0)
        for boundary in boundaries:
            block = boundary // self.alignment * self.alignment // self.block_size - 1
            if first <= block < last:
                found.add(block)
        return sorted(found)

    def publish(self, live: Live, tokens: int, boundaries: Sequence[int]) -> None:
        """The same, and remember what cannot be read before the next step."""
        first, last = live.cached[self.index], tokens // self.block_size
        super().publish(live, tokens, boundaries)
        if first < last:
            own = (self.pool.key[b] for b in live.tables[self.index][first:last] if b)
            self.this_step.update(key for key in own if key)

    def release(self, live: Live) -> None:
        """Give everything back and forget where the states were."""
        super().release(live)
        live.states[self.index].reset()


KINDS: dict[str, type[Table]] = {
    "full": Table,
    "latent": Table,
    "sliding": WindowTable,
    "chunked": ChunkTable,
    "mamba": StateTable,
}


def make_table(index: int, rule: GroupRule, rules: Rules, pool: BlockPool, alignment: int) -> Table:
    """The table of one group."""
    kind = AlignedStateTable if rule.kind == "mamba" and rule.aligned else KINDS[rule.kind]
    return kind(index, rule, rules, pool, alignment)
