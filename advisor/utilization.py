"""gpu_memory_utilization turned round: the share that a wish needs, or that the card allows, as people type it.

Two decimals, rounded to the safe side, in exact arithmetic: 14 of 24 GiB is 0.58 and not 0.5833. Sources: vLLM
v1/worker/utils.py `request_memory` for the check, its CUDA graph INFO line for the equivalence.
"""

from __future__ import annotations

import math
from fractions import Fraction

_STEPS = 100  # two decimals
CAUTION_STEPS = 1  # kept back from a limit that free memory just meets


def largest_utilization(total_bytes: int, free_bytes: int) -> float:
    """The largest share whose budget is free at start; 0.0 where none is."""
    steps = max(0, min(_STEPS, math.floor(Fraction(free_bytes, total_bytes) * _STEPS)))
    while steps and math.ceil(total_bytes * (steps / _STEPS)) > free_bytes:  # vLLM multiplies in floating point
        steps -= 1
    return steps / _STEPS


def proposed_utilization(total_bytes: int, free_bytes: int) -> float:
    """The largest share to propose: one step below the limit, because free memory moves between two starts."""
    return max(0, round(largest_utilization(total_bytes, free_bytes) * _STEPS) - CAUTION_STEPS) / _STEPS


def utilization_for_reserve(total_bytes: int, reserved_bytes: int) -> float:
    """The largest share that leaves `reserved_bytes` of the card to others."""
    return largest_utilization(total_bytes, max(0, total_bytes - reserved_bytes))


def smallest_utilization(total_bytes: int, needed_bytes: int) -> float | None:
    """The smallest share whose budget holds `needed_bytes` (weights, overheads and the pool wanted); None above 1."""
    steps = max(1, math.ceil(Fraction(needed_bytes, total_bytes) * _STEPS))
    return steps / _STEPS if steps <= _STEPS else None


def graph_utilization(graph_bytes: int, total_bytes: int) -> float:
    """The share of the card that CUDA graphs take, to four decimals as vLLM prints it: utilisation without counting
    them is lower by so much, and the same pool as before needs so much more."""
    return round(graph_bytes / total_bytes, 4)
