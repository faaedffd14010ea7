"""Where a chunk of a prompt must end so that a Mamba state can be kept.

Source: vLLM 0.32 v1/core/sched/scheduler.py (_mamba_block_aligned_split) and kv_cache_interface.py
(get_mamba_prefill_checkpoint_position, is_mamba_prefill_checkpoint_valid).
"""

from __future__ import annotations

from advisor.simulation.rules import Rules
from advisor.simulation.state import Live


def state_before(tokens: int, block_size: int) -> int:
    """The last position before the end of these tokens at which a state can be found again."""
    return max((tokens - 1) // block_size * block_size, 0)


def state_inside(start: int, end: int, position: int, block_size: int, alignment: int | None) -> bool:
    """Whether a chunk from start to end can write the state at this position besides the one at its end."""
    if alignment is None:
        return False
    return (
        start % block_size == 0
        and -(-end // block_size) - 2 > (start - 1) // block_size
        and start + block_size <= position < end
        and (position - start) % alignment == 0
    )


def aligned_chunk(live: Live, start: int, new: int, block_size: int, rules: Rules) -> int:
    """The part of `new` tokens from `start` on that this step computes; 0 when it must wait for more budget."""
    prefill_end = max(live.prompt_tokens, live.tokens - 1)
    if start >= prefill_end:
        return new
    last = live.tokens - 1 if rules.behaviour.last_state_before_end else live.tokens
    last_state = last // block_size * block_size
    if rules.behaviour.chunk_ends == "tokens":
        return _tokens_in_blocks(start, new, last_state, block_size)
    end = start + new
    inside = end >= prefill_end and state_inside(
        start, end, state_before(prefill_end, block_size), block_size, rules.checkpoint_alignment
    )
    if inside:
        last_state = 0
    if rules.behaviour.chunk_ends == "last_state":
        end = end // block_size * block_size if end < last_state else end
    elif end < prefill_end:
        longest = rules.max_num_batched_tokens
        if rules.long_prefill_token_threshold:
            longest = min(longest, rules.long_prefill_token_threshold)
        boundary = end // block_size * block_size
        if boundary > start or block_size <= longest:
            end = boundary
    stops = [last_state]
    boundary = (start // block_size + 1) * block_size
    if start % block_size and not inside and (rules.behaviour.chunk_ends == "prompt" or boundary <= last_state):
        stops.append(boundary)
    if start < live.junction < end:
        stops.append(start + (live.junction - start) // block_size * block_size)
    return max(min((s for s in stops if start < s < end), default=end) - start, 0)


def _tokens_in_blocks(start: int, new: int, last_state: int, block_size: int) -> int:
    """vLLM 0.15 to 0.25: whole blocks of tokens until the last state, then the rest."""
    if start + new < last_state:
        return new // block_size * block_size
    return last_state - start if start < last_state < start + new else new
