"""How far to move an argument: the arithmetic behind a remedy. Nothing here reads a log.

A limit that just failed is not proposed again: at least a tenth is kept away from it, except where vLLM's own estimate
is exact (max_model_len). Shares are whole hundredths, as people type them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from advisor.argument_table import ARGUMENT_RELEASES
from advisor.units import GIB
from advisor.utilization import proposed_utilization
from advisor.versions import Version

PRINTED_BAND_BYTES = GIB // 200  # two decimals of a GiB
HIGHEST_SHARE = 0.95  # above it nothing is left for graphs, communicators and fragments (vllm#10797, vllm#19186)
_STEP = Fraction(1, 100)
_LEAST_BATCHED = 512
_DEFAULT_SHARE_SINCE = Version(0, 20, 0)
_POWERS = tuple(2**n for n in range(1, 13))


def from_gib(printed: float) -> int:
    """Bytes of a figure that a log prints in GiB (true to 0.005 GiB)."""
    return round(printed * GIB)


def default_share(version: Version | None) -> float | None:
    """gpu_memory_utilization where nobody sets it; None where the release is not known."""
    if version is None:
        return None
    return 0.92 if version >= _DEFAULT_SHARE_SINCE else 0.9


def to_block(tokens: int, block_size: int | None) -> int:
    """A length rounded down to whole blocks; as it is where that would leave none."""
    size = block_size or 16
    return tokens // size * size or tokens


def fewer_seqs(failed: int, target: int | None) -> int | None:
    """A smaller max_num_seqs: a power of two that serves the target, else a quarter; None where there is none."""
    if target is not None:
        wanted = next((p for p in _POWERS if p >= target), target)
        if wanted <= 0.9 * failed:
            return wanted
    less = failed // 4
    return less if less >= 1 else None


def within_blocks(blocks: int, target: int | None) -> int | None:
    """max_num_seqs for that many Mamba blocks: at most 0.8 of them, less where the target needs less."""
    most = blocks * 4 // 5
    if target is not None:
        wanted = next((p for p in _POWERS if p >= target), target)
        most = min(most, max(wanted, target))
    return most if most >= 1 else None


def fewer_batched(now: int | None, seqs: int | None) -> int | None:
    """Half of max_num_batched_tokens, not below max_num_seqs (vLLM refuses that) nor 512; None where it cannot fall."""
    if now is None:
        return None
    least = max(_LEAST_BATCHED, seqs or 0)
    half = max(now // 2, least)
    return half if half < now else None


def lower_share(share: float, total_bytes: int, missing_bytes: int) -> float | None:
    """gpu_memory_utilization lower by what is missing, one hundredth at least; None where nothing is left."""
    steps = max(1, math.ceil(Fraction(max(0, missing_bytes), total_bytes) / _STEP))
    value = round(share * 100 - steps)
    return value / 100 if value >= 1 else None


def higher_share(share: float, total_bytes: int, missing_bytes: int, free_bytes: int | None) -> float | None:
    """gpu_memory_utilization higher by what is missing; None where 0.95, or what is free, does not allow it."""
    steps = max(1, math.ceil(Fraction(max(0, missing_bytes), total_bytes) / _STEP))
    value = math.ceil(round(share * 100, 6) + steps) / 100
    most = HIGHEST_SHARE if free_bytes is None else min(HIGHEST_SHARE, proposed_utilization(total_bytes, free_bytes))
    return value if value <= most else None


def free_share(total_bytes: int, free_bytes: int) -> float | None:
    """The largest share to propose for what was free at start; None where not even 0.01 is."""
    return proposed_utilization(total_bytes, max(0, free_bytes - PRINTED_BAND_BYTES)) or None


def next_tp(now: int | None, allowed: Sequence[int], gpu_count: int | None) -> int | None:
    """The next larger tensor_parallel_size that divides and has GPUs; None where none is known."""
    larger = [tp for tp in sorted(allowed) if tp > (now or 1) and gpu_count is not None and tp <= gpu_count]
    return larger[0] if larger else None


def smaller_tp(heads: int, asked: int, allowed: Sequence[int], gpu_count: int | None) -> int:
    """The largest tensor_parallel_size below the one asked that divides: of those allowed, else a power of two."""
    limit = min(asked - 1, gpu_count or asked - 1)
    known = [tp for tp in allowed if tp <= limit and heads % tp == 0]
    return max(known or [p for p in (1, *_POWERS) if p <= limit and heads % p == 0], default=1)


def has_argument(name: str, version: Version | None) -> bool:
    """Whether a release takes an argument; of an unknown release only what every release took."""
    first, gone = ARGUMENT_RELEASES.get(name, (None, (0,)))
    if version is None:
        return first is None and gone is None
    return (first is None or version >= first) and (gone is None or version < gone)


def gib(n_bytes: float) -> str:
    """A size for a sentence, as vLLM prints it."""
    return f"{n_bytes / GIB:.2f} GiB"
