"""All groups' tables together: may a request be admitted, may it go on, and what it leaves in the prefix cache.

Source: vLLM 0.32 v1/core/kv_cache_manager.py (allocate_slots, get_computed_blocks) and kv_cache_coordinator.py.
"""

from __future__ import annotations

import math

from advisor.errors import NotUnderstood
from advisor.simulation.pool import BlockPool
from advisor.simulation.prefix import GROUPS_MAX, Finder, Hits
from advisor.simulation.rules import Rules
from advisor.simulation.state import Live, StateAt
from advisor.simulation.state_tables import AlignedStateTable, make_table
from advisor.simulation.tables import Table
from advisor.simulation.texts import Texts


class Memory:
    """The block pool and every group's view of it."""

    def __init__(self, rules: Rules) -> None:
        self.caching = rules.prefix_caching
        self.pool = BlockPool(
            rules.num_blocks, caching=self.caching, reuse_empty_first=rules.behaviour.reuse_empty_first
        )
        sizes = [group.block_size for group in rules.groups]
        self.alignment = math.lcm(*sizes)
        _check(rules, self.alignment)
        self.tables = [make_table(i, g, rules, self.pool, self.alignment) for i, g in enumerate(rules.groups)]
        self.aligned_states = [t for t in self.tables if isinstance(t, AlignedStateTable)]
        self.texts = Texts()
        self.whole_sizes = [g.block_size for g in rules.groups if g.kind in ("full", "latent")]
        self.finder = Finder(self.tables, self.pool, self.alignment)
        self.gate = rules.reserve_full_prompt and rules.behaviour.full_prompt_gate
        self.watermark_blocks = rules.watermark_blocks
        self.publishes_aligned = len(self.tables) > 1 and rules.behaviour.publishes_aligned
        self.junctions = rules.behaviour.junctions
        self.settled_only = rules.behaviour.free_settled_only
        self.single = self.tables[0] if len(self.tables) == 1 and type(self.tables[0]) is Table else None

    def start(self, live: Live) -> None:
        """Empty tables for a request."""
        live.tables = [[] for _ in self.tables]
        live.cached = [0] * len(self.tables)
        live.states = [StateAt() for _ in self.tables]

    def new_step(self, step: int) -> None:
        """A step begins."""
        for table in self.aligned_states:
            table.new_step(step)

    def waits_for_state(self) -> bool:
        """Whether the last refusal was for a state that is written in this very step."""
        return any(table.too_early for table in self.aligned_states)

    def hopeless(self, live: Live, *, beside: bool) -> bool:
        """Whether the gate refuses a waiting request whatever the cache holds of it: told without looking it up.

        A cached block that nobody else uses is a free block, so using it saves nothing; only text that another
        request has may be in use.
        """
        if not self.gate:
            return False
        shared = self.texts.shared_end(live.segments) if self.caching else 0
        need = self.watermark_blocks if beside else 0
        for size in self.whole_sizes:
            need += max(-(-live.tokens // size) - shared // size, 0)
        return need > self.pool.free

    def find(self, live: Live) -> tuple[Hits | None, int]:
        """The cached prefix of a waiting request: its blocks in every group, and its length."""
        if not self.caching:
            return None, 0
        hits, tokens, junction = self.finder.find(live.segments, live.tokens - 1)
        live.junction = junction if self.junctions else 0
        return hits, tokens

    def admit(self, live: Live, hits: Hits | None, computed: int, new: int, *, beside: bool) -> bool:
        """Take the blocks for a waiting request's first chunk, if the gate and the watermark let it pass."""
        for table in self.aligned_states:
            table.too_early = False
        watermark = self.watermark_blocks if beside else 0
        own: Hits = hits if hits is not None else [[] for _ in self.tables]
        free = self.pool.free
        if self.gate:
            need = sum(
                t.first_needed(live, live.tokens, own[i], computed, gate=True) for i, t in enumerate(self.tables)
            )
            if need + watermark > free:
                return False
        total = computed + new
        need = sum(t.first_needed(live, total, own[i], computed, gate=False) for i, t in enumerate(self.tables))
        if need + watermark > free:
            return False
        if any(own):
            for each, blocks in zip(self.tables, own, strict=True):
                each.adopt(live, blocks, computed)
        for each in self.tables:
            each.extend(live, total)
        self.publish(live, min(total, live.tokens))
        return True

    def grow(self, live: Live, computed: int, new: int, in_flight: int, known: int) -> bool:
        """Blocks for a running request's next tokens; False when there are none."""
        total = computed + new
        single = self.single
        if single is not None:  # one group that gives nothing back: most models
            need = -(-total // single.block_size) - len(live.tables[0])
            if need > 0:
                if need > self.pool.free:
                    return False
                single.extend(live, total)
            if self.caching and min(total, known) // single.block_size > live.cached[0]:
                single.publish(live, min(total, known), ())
        else:
            settled = computed - in_flight if self.settled_only else computed
            for table in self.tables:
                table.give_back(live, max(settled, 0))
            need = 0
            for table in self.tables:
                need += table.more_needed(live, total, computed)
            if need > self.pool.free:
                return False
            for table in self.tables:
                table.extend(live, total)
            self.publish(live, min(total, known))
        return True

    def publish(self, live: Live, tokens: int) -> None:
        """Let others find what these tokens have filled."""
        if not self.caching:
            return
        if self.publishes_aligned:
            tokens -= tokens % self.alignment
        boundaries = (live.prompt_tokens - 1, live.junction) if live.junction else (live.prompt_tokens - 1,)
        for table in self.tables:
            if tokens // table.block_size > live.cached[table.index]:
                table.publish(live, tokens, boundaries)
        for states in self.aligned_states:
            states.mark(live, tokens)

    def release(self, live: Live) -> None:
        """Give back all blocks of a request."""
        for table in self.tables:
            table.release(live)


def _check(rules: Rules, alignment: int) -> None:
    """Refuse the layouts whose schedule is not modelled."""
    if len(rules.groups) >= GROUPS_MAX:
        raise NotUnderstood(f"{len(rules.groups)} KV cache groups are more than the simulation knows")
    if not rules.prefix_caching:
        return
    if any(g.kind == "mamba" and not g.aligned for g in rules.groups):
        raise NotUnderstood(
            "prefix caching over Mamba states is simulated for cache mode align only", hint="prefix caching off"
        )
    if any(g.aligned for g in rules.groups) and rules.behaviour.chunk_ends == "none":
        raise NotUnderstood("prefix caching over Mamba states is not simulated before vLLM 0.15")
    finest = math.gcd(*(g.block_size for g in rules.groups))
    if any(g.aligned and g.block_size > finest for g in rules.groups):
        raise NotUnderstood("prefix hits that end inside a Mamba block are not simulated", hint="prefix caching off")
    if alignment != finest and any(g.checkpoint_alignment is not None for g in rules.groups):
        raise NotUnderstood("states inside a chunk beside groups of another block size are not simulated")
    if any(g.kind == "chunked" and g.block_size != alignment for g in rules.groups):
        raise NotUnderstood("chunked attention beside groups of another block size is not simulated")
