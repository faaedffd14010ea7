"""Where a chunk of a prompt must end so that a Mamba state can be kept.

Source: vLLM 0.32 v1/core/sched/scheduler.py (_mamba_block_aligned_split) and kv_cache_interface.py
(get_mamba_prefill_checkpoint_position), for backends that keep states at chunk ends only.
"""

from __future__ import annotations

from advisor.simulation.rules import Rules
from advisor.simulation.state import Live


def aligned_chunk(live: Live, start: int, new: int, block_size: int, rules: Rules) -> int:
    """The part of `new` tokens from `start` on that this step computes; 0 when it must wait for more budget."""
    prefill_end = max(live.prompt_tokens, live.tokens - 1)
    if start >= prefill_end:
        return new
    last = live.tokens - 1 if rules.behaviour.last_state_before_end else live.tokens
    last_state = last // block_size * block_size
    end = start + new
    if end < prefill_end:
        longest = rules.max_num_batched_tokens
        if rules.long_prefill_token_threshold:
            longest = min(longest, rules.long_prefill_token_threshold)
        boundary = end // block_size * block_size
        if boundary > start or block_size <= longest:
            end = boundary
    stops = [last_state]
    if start % block_size:
        stops.append((start // block_size + 1) * block_size)
    if start < live.junction < end:
        stops.append(start + (live.junction - start) // block_size * block_size)
    return max(min((s for s in stops if start < s < end), default=end) - start, 0)
