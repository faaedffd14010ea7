"""Recurrent states that can be found again: a table mostly of null blocks.

Source: vLLM 0.32 v1/core/single_type_kv_cache_manager.py (MambaManager in cache mode "align"). Left out: speculative
tokens, and copies of states that end inside a block.
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.simulation.pool import BlockPool
from advisor.simulation.rules import GroupRule, Rules
from advisor.simulation.splits import state_before, state_inside
from advisor.simulation.state import Live
from advisor.simulation.tables import ChunkTable, StateTable, Table, WindowTable
from advisor.simulation.texts import key_at


class AlignedStateTable(StateTable):
    """States at block boundaries (cache mode "align"): a table mostly of null blocks, two states at most."""

    def __init__(self, index: int, rule: GroupRule, rules: Rules, pool: BlockPool, alignment: int) -> None:
        super().__init__(index, rule, rules, pool, alignment)
        self.this_step: set[int] = set()
        self.too_early = False
        self._last_states: dict[int, Live] = {}  # the prompt's last state, as long as it may be written again
        self._step = 0
        self._checkpoint_alignment = rule.checkpoint_alignment
        self._marks = rules.behaviour.marks_last_state
        self._rounds = len(rules.groups) > 1  # beside other groups, tokens are published in whole alignments
        self._waits = rules.behaviour.states_next_step
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
        if live.states[self.index].inside is not None:
            return
        if self._marks and tokens == last * self.block_size and last and live.tables[self.index][last - 1]:
            key = key_at(live.segments, tokens, self.index)
            self.this_step.add(key)
            if self._rounds:
                self._last_states[key] = live

    def _written_now(self, key: int) -> bool:
        if not self._waits:
            return False
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

    def more_needed(self, live: Live, tokens: int, computed: int) -> int:
        """One state when the last block is full, and one that the chunk writes inside itself."""
        inside = live.states[self.index].inside = self._inside(live, computed, tokens)
        missing = -(-tokens // self.block_size) - len(live.tables[self.index])
        return max(min(missing, 2 if inside else 1), 0)

    def _inside(self, live: Live, start: int, end: int) -> tuple[int, int] | None:
        """The state that a chunk writes besides the one at its end (MambaManager._needs_internal_checkpoint)."""
        if self._checkpoint_alignment is None:
            return None
        if self.retention == 0 and end < (start if live.flowing else max(live.prompt_tokens, live.tokens - 1)):
            return None
        table, block = live.tables[self.index], -(-end // self.block_size) - 2
        position = state_before(end, self.block_size)
        if not state_inside(start, end, position, self.block_size, self._checkpoint_alignment):
            return None
        return (position, block) if block >= 0 and (block >= len(table) or not table[block]) else None

    def first_needed(self, live: Live, tokens: int, hits: Sequence[int], computed: int, *, gate: bool) -> int:
        """A state written in this very step cannot be read yet: more blocks than there are."""
        if hits and self._written_now(self.pool.key[hits[-1]]):
            self.too_early = True
            return self.pool.total + 2
        inside = self._inside(live, computed, tokens)
        if not gate:
            live.states[self.index].inside = inside
        missing = -(-tokens // self.block_size) - len(hits)
        need = max(min(missing, 2 if inside else 1), 0)
        return need + self.pool.evictable(hits)

    def extend(self, live: Live, tokens: int) -> None:
        """Take a block for the running state; the positions it has jumped over stay without one."""
        table, at = live.tables[self.index], live.states[self.index]
        need = -(-tokens // self.block_size)
        if need > len(table) or at.inside is not None:
            if at.allocated or table:
                at.previous = len(table) - 1
            table += [0] * (need - 1 - (at.inside is not None) - len(table))
            table += self.pool.take(need - len(table))
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
        self._publish_inside(live, boundaries)
        if first < last:
            own = (self.pool.key[b] for b in live.tables[self.index][first:last] if b)
            self.this_step.update(key for key in own if key)

    def _publish_inside(self, live: Live, boundaries: Sequence[int]) -> None:
        """The state inside a chunk lies in a block of its own; it is kept where a hit can end on it."""
        inside = live.states[self.index].inside
        if inside is None:
            return
        position, block = inside
        own = live.tables[self.index][block]
        at = position // self.block_size - 1
        kept = self.kept(at, at + 1, ())
        wanted = state_before(live.prompt_tokens, self.block_size)
        if position != wanted and kept is not None and not kept and position not in boundaries[1:]:
            self.pool.forget(own)
        else:
            self.pool.remember_one(key_at(live.segments, position, self.index), own)

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
