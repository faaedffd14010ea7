"""What the scheduler is told: vLLM's limits by their own names, and what changed between its versions.

Source: vLLM v1/core/sched/scheduler.py, kv_cache_manager.py, block_pool.py and single_type_kv_cache_manager.py of
0.11.0 to 0.32.0, compared release by release; 0.33 is taken as 0.32.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from advisor.kv.specs import ceil_div
from advisor.versions import Version

GroupKind = Literal["full", "latent", "sliding", "chunked", "mamba"]


class GroupRule(msgspec.Struct, frozen=True, kw_only=True):
    """One KV cache group as the scheduler sees it: blocks and what may be freed; bytes play no part.

    `span_tokens` is the window or chunk; `aligned` a Mamba group of cache mode "align" (its states can be found again);
    `checkpoint_alignment`, for such a group, says that a chunk may write one more state inside itself, this many tokens
    apart (None: at its end only; Mamba-2 of 0.32: 1).
    `twin` tells apart two groups of one kind whose layers differ otherwise (they are looked up one after the other).
    """

    kind: GroupKind
    block_size: int
    span_tokens: int = 0
    aligned: bool = False
    checkpoint_alignment: int | None = None
    twin: int = 0


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """What a version of vLLM does that another does not. The defaults are 0.32."""

    reuse_empty_first: bool = True  # 0.28: freed blocks without content are handed out first
    full_prompt_gate: bool = True  # 0.19: a prompt is admitted when all of it fits
    recycling_cap: bool = True  # 0.20.2: that gate counts a window instead of the whole prompt
    free_settled_only: bool = True  # 0.26: blocks behind the window are kept for steps in flight
    in_flight_batches: bool = True  # 0.26: the window's cap counts every batch in flight
    masks_windows: bool = True  # 0.23: of a window only the blocks a hit can end on are kept for others
    lone_prompt_unlimited: bool = True  # 0.31: long_prefill_token_threshold needs somebody who waits
    retention_interval_tokens: int | None = 0  # 0.30: states and windows are kept at the prompt's end only
    last_state_before_end: bool = True  # 0.32: the last state kept is one that a repeated prompt can use
    publishes_aligned: bool = True  # 0.22: beside other groups, only what ends where a hit can end is kept
    junctions: bool = True  # 0.26: where a shared prefix ends is kept in every group
    chunk_ends: Literal["none", "tokens", "last_state", "prompt"] = (
        "prompt"  # 0.15, 0.26, 0.27: see splits.aligned_chunk
    )
    states_next_step: bool = True  # 0.17: a state is read in the step after the one that has written it
    marks_last_state: bool = True  # 0.26: see state_tables.AlignedStateTable.mark
    watermark: bool = True  # 0.24


def behaviour_of(version: Version) -> Behaviour:
    """The behaviour of one vLLM version."""
    return Behaviour(
        reuse_empty_first=version >= (0, 28),
        full_prompt_gate=version >= (0, 19),
        recycling_cap=version >= (0, 20, 2),
        free_settled_only=version >= (0, 26),
        in_flight_batches=version >= (0, 26),
        masks_windows=version >= (0, 23),
        lone_prompt_unlimited=version >= (0, 31),
        retention_interval_tokens=0 if version >= (0, 30) else None,
        last_state_before_end=version >= (0, 32),
        publishes_aligned=version >= (0, 22),
        junctions=version >= (0, 26),
        chunk_ends=_chunk_ends(version),
        states_next_step=version >= (0, 17),
        marks_last_state=version >= (0, 26),
        watermark=version >= (0, 24),
    )


def _chunk_ends(version: Version) -> Literal["none", "tokens", "last_state", "prompt"]:
    if version >= (0, 26):
        return "prompt" if version >= (0, 27) else "last_state"
    return "tokens" if version >= (0, 15) else "none"


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The scheduler's settings, under vLLM's names where it has one."""

    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    num_blocks: int  # of the pool, the null block included
    groups: tuple[GroupRule, ...]
    policy: Literal["fcfs", "priority"] = "fcfs"
    prefix_caching: bool = True
    chunked_prefill: bool = True
    async_scheduling: bool = False
    reserve_full_prompt: bool = True  # scheduler_reserve_full_isl
    watermark_fraction: float = 0.0
    max_num_active_seqs: int | None = None
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    behaviour: Behaviour = Behaviour()

    @property
    def max_running(self) -> int:
        """Requests that may run at once."""
        return self.max_num_seqs if self.max_num_active_seqs is None else self.max_num_active_seqs

    @property
    def watermark_blocks(self) -> int:
        """Blocks that stay free when a request is admitted beside others."""
        return int(self.watermark_fraction * self.num_blocks) if self.behaviour.watermark else 0

    @property
    def in_flight_tokens(self) -> int:
        """What may be scheduled and not yet settled (VllmConfig.max_in_flight_tokens)."""
        batches = 2 if self.async_scheduling and self.behaviour.in_flight_batches else 1
        return batches * self.max_num_batched_tokens

    @property
    def checkpoint_alignment(self) -> int | None:
        """What all Mamba groups allow for a state inside a chunk; None where one of them allows none."""
        found = [group.checkpoint_alignment for group in self.groups if group.kind == "mamba"]
        return found[0] if found and None not in found else None

    def recycling_cap(self, group: GroupRule) -> int | None:
        """The most blocks the admission gate counts for one request in this group (None: no such limit).

        SlidingWindowSpec and ChunkedLocalAttentionSpec: max_admission_blocks_per_request.
        """
        if not self.behaviour.recycling_cap or group.kind not in ("sliding", "chunked"):
            return None
        if group.kind == "sliding":
            kept = min(group.span_tokens - 1 + self.in_flight_tokens, self.max_model_len)
            return ceil_div(kept, group.block_size) + 1
        return ceil_div(min(group.span_tokens + self.in_flight_tokens, self.max_model_len), group.block_size)
