"""The memory ledger of one rank: total, budget, what vLLM takes from the budget, and the KV pool that is left.

Source: vLLM v1/worker/utils.py `request_memory` (budget and start check) and v1/worker/gpu_worker.py
`determine_available_memory` (pool = budget - weights - non-torch - activation peak - graph estimate, the last where
VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS holds); up to 0.26 three terms, later consumed memory and the transient peak:
the same sum. Left out: other processes that grow or shrink during the start, weights held by another process.
"""

from __future__ import annotations

import math

import msgspec

from advisor.estimate import Estimate, exact
from advisor.overheads import Overheads
from advisor.spread import remainder, total_of
from advisor.versions import Version

Verdict = bool | None  # True: surely; False: surely not; None: within the band

_CHECKS_FREE_MEMORY = Version(0, 9, 0)


class Line(msgspec.Struct, frozen=True):
    """One more holder of memory: LoRA buffers, a draft model. `in_budget` says whether the KV pool pays for it."""

    name: str
    bytes: Estimate
    in_budget: bool = True


class MemoryLedger(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank holds, in bytes. The first nine are the plan's `memory`.

    `kv_cache_bytes` may be negative: nothing is left then. `outside_budget_bytes` is what must fit beside the budget:
    the context and other processes, communicators, graphs where the budget does not hold them, run-time workspaces.
    """

    total_bytes: Estimate
    budget_bytes: Estimate
    weights_bytes: Estimate
    activation_bytes: Estimate
    non_torch_bytes: Estimate
    cuda_graph_bytes: Estimate
    cuda_graphs_in_budget: bool
    kv_cache_bytes: Estimate
    outside_budget_bytes: Estimate
    free_bytes: Estimate  # as the start check sees it: before the budget, after the communicators
    checks_free_memory: bool  # false for versions that do not look, and where the pool is stated on the CPU
    lines: tuple[Line, ...] = ()

    @property
    def start_check(self) -> Verdict:
        """Whether free memory covers the budget at start, which vLLM demands from 0.9 on."""
        if not self.checks_free_memory or self.free_bytes.low >= self.budget_bytes.high:
            return True
        return False if self.free_bytes.high < self.budget_bytes.low else None

    @property
    def outside_room_bytes(self) -> int:
        """Device memory beside the budget; 0 at utilisation 1."""
        return max(0, self.total_bytes.value - self.budget_bytes.value)

    @property
    def outside_check(self) -> Verdict:
        """Whether what lies outside the budget fits beside it; graph capture, or the first steps, fail where not.

        The room of the activation peak is free while graphs are captured and takes what the middle of the estimate
        misses, so the start surely fails only beyond both.
        """
        outside, room = self.outside_budget_bytes, self.outside_room_bytes
        if outside.low > room + self.activation_bytes.high:
            return False
        return True if outside.value <= room and outside.high <= room + self.activation_bytes.low else None

    @property
    def outside_is_tight(self) -> bool:
        """Whether the high end of what lies outside no longer fits: the start works, a warning is due."""
        return self.outside_budget_bytes.high > self.outside_room_bytes


def budget(total: Estimate, utilization: float) -> Estimate:
    """What vLLM asks of the device: ceil(total x gpu_memory_utilization), in its own floating point."""
    value, low, high = (math.ceil(end * utilization) for end in (total.value, total.low, total.high))
    return Estimate(value, low, high, total.basis)


def memory_ledger(
    *,
    version: Version,
    total: Estimate,
    free: Estimate,
    utilization: float,
    weights: Estimate,
    overheads: Overheads,
    lines: tuple[Line, ...] = (),
    kv_cache_memory_bytes: int | None = None,
) -> MemoryLedger:
    """The ledger of one rank on a GPU.

    `total` and `free` are the device's (free on an idle card, before this start). With `kv_cache_memory_bytes` the pool
    is what it says and the budget only serves the start check; what no longer follows from the budget then has to fit
    the device, so it all counts as outside it.
    """
    asked = budget(total, utilization)
    inside = [weights, overheads.activation_bytes, overheads.non_torch_bytes]
    inside += [line.bytes for line in lines if line.in_budget]
    beside = [total_of([_gap(total, free), overheads.communicator_bytes]), overheads.run_time_bytes]
    beside += [line.bytes for line in lines if not line.in_budget]
    if kv_cache_memory_bytes is not None:
        pool = exact(kv_cache_memory_bytes)
        beside += [overheads.cuda_graph_bytes, _overrun(asked, pool, inside)]
    else:
        taken = [*inside, overheads.cuda_graph_bytes] if overheads.cuda_graphs_in_budget else inside
        pool = remainder([asked], taken)
        beside += [] if overheads.cuda_graphs_in_budget else [overheads.cuda_graph_bytes]
    return MemoryLedger(
        total_bytes=total,
        budget_bytes=asked,
        weights_bytes=weights,
        activation_bytes=overheads.activation_bytes,
        non_torch_bytes=overheads.non_torch_bytes,
        cuda_graph_bytes=overheads.cuda_graph_bytes,
        cuda_graphs_in_budget=overheads.cuda_graphs_in_budget,
        kv_cache_bytes=pool,
        outside_budget_bytes=total_of(beside),
        free_bytes=remainder([free], [overheads.communicator_bytes]),
        checks_free_memory=version >= _CHECKS_FREE_MEMORY,
        lines=lines,
    )


def cpu_ledger(
    *, total: Estimate, weights: Estimate, overheads: Overheads, kv_cache_memory_bytes: int | None = None
) -> MemoryLedger:
    """The ledger of the CPU backend. `total` is what the process may use: RAM free for it, or the cgroup's limit.

    The pool is stated in bytes (vLLM v1/worker/cpu_worker.py takes kv_cache_memory_bytes as it is); without a number it
    is what weights, the processes and one step's tensors leave. Nothing is profiled and there are no graphs.
    """
    room = remainder([total], [weights, overheads.activation_bytes, overheads.non_torch_bytes])
    pool = room if kv_cache_memory_bytes is None else exact(kv_cache_memory_bytes)
    over = _overrun(total, pool, [weights, overheads.activation_bytes, overheads.non_torch_bytes])
    return MemoryLedger(
        total_bytes=total,
        budget_bytes=total,
        weights_bytes=weights,
        activation_bytes=overheads.activation_bytes,
        non_torch_bytes=overheads.non_torch_bytes,
        cuda_graph_bytes=overheads.cuda_graph_bytes,
        cuda_graphs_in_budget=False,
        kv_cache_bytes=pool,
        outside_budget_bytes=exact(0) if kv_cache_memory_bytes is None else over,
        free_bytes=total,
        checks_free_memory=False,
    )


def _gap(total: Estimate, free: Estimate) -> Estimate:
    """The CUDA context and whatever else holds memory: total less free, never negative."""
    gap = remainder([total], [free])
    return Estimate(max(0, gap.value), max(0, gap.low), max(0, gap.high), gap.basis)


def _overrun(asked: Estimate, pool: Estimate, inside: list[Estimate]) -> Estimate:
    """How far a stated pool and what stands beside it go past the budget."""
    over = remainder([pool, *inside], [asked])
    return Estimate(max(0, over.value), max(0, over.low), max(0, over.high), over.basis)
