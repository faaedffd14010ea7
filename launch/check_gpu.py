"""Before a start: the chosen GPUs have free what gpu_memory_utilization will ask for, and who holds the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence

from advisor.estimate import Estimate, estimated, measured
from advisor.plan_types import Finding, Severity
from advisor.units import GIB, MIB, gib
from advisor.utilization import proposed_utilization
from launch.gpu_choice import GpuChoice
from launch.gpu_state import GpuProcess, GpuState

_SOURCE = "NVML; vLLM v1/worker/utils.py request_memory"
# What a process's own CUDA context takes before vLLM looks at free memory: GiB, least and most, as seen in public logs.
_CONTEXT_GIB = (0.20, 0.80)
_SLICE_CONTEXT_GIB = (0.10, 0.35)
# NVML's total less CUDA's where NVML does not say what the driver keeps back: MiB, least and most.
_KEPT_BACK_MIB = (0, 1150)
_ROUNDING_BYTES = 32 * MIB


def check_gpus(
    choice: GpuChoice, *, n_gpus: int, utilization: float | None, total: Estimate | None, n_seen: int
) -> list[Finding]:
    """What is wrong with the GPUs chosen: too few, too little free, others on them. `total` is the plan's, as CUDA
    reports it; `n_seen` how many GPUs there were to choose from.
    """
    found = []
    if len(choice.gpus) < n_gpus:
        found.append(
            _finding(
                "gpu-count" if n_seen else "gpu-absent",
                "error",
                f"the plan wants {n_gpus} GPUs and {n_seen} can be seen" if n_seen else "no GPU can be seen",
                "plan for the GPUs there are, or see what CUDA_VISIBLE_DEVICES hides",
            )
        )
    for gpu in choice.gpus:
        short = _free_memory(gpu, utilization, total) if utilization is not None else None
        found += [short] if short is not None else []
        if short is None or short.severity != "error":
            found += _neighbours(gpu)
    if any(gpu.is_slice for gpu in choice.gpus):
        found.append(
            _finding(
                "mig-slice",
                "warning",
                "this is a MIG slice: some releases of vLLM read its UUID as a number and fail",
                "let the container runtime pass the slice in, as device 0, where the start fails with `MIG-`",
                source="vllm#41848",
            )
        )
    return found


def cuda_total(gpu: GpuState, planned: Estimate | None) -> Estimate:
    """The total that CUDA reports of a GPU: the plan's where it fits, else NVML's less what the driver keeps back."""
    if gpu.kept_back_bytes is not None:
        value = gpu.total_bytes - gpu.kept_back_bytes
        return measured(value, value - _ROUNDING_BYTES, value + _ROUNDING_BYTES)
    least, most = (mib * MIB for mib in _KEPT_BACK_MIB)
    if planned is not None and gpu.total_bytes - most <= planned.value <= gpu.total_bytes:
        return planned
    return estimated(gpu.total_bytes - most, gpu.total_bytes - most, gpu.total_bytes - least)


def cuda_free(gpu: GpuState) -> Estimate:
    """What vLLM will find free on it: NVML's figure less the context of its own process."""
    least, most = (round(g * GIB) for g in (_SLICE_CONTEXT_GIB if gpu.is_slice else _CONTEXT_GIB))
    low, high = max(0, gpu.free_bytes - most), max(0, gpu.free_bytes - least)
    return estimated((low + high) // 2, low, high)


def _free_memory(gpu: GpuState, utilization: float, planned: Estimate | None) -> Finding | None:
    """vLLM refuses to start where less is free than its share of the total; an error where even the best case is
    short of it, a warning where only the worst case is.
    """
    total, free = cuda_total(gpu, planned), cuda_free(gpu)
    least_needed, most_needed = (math.ceil(end * utilization) for end in (total.low, total.high))
    if free.low >= most_needed:
        return None
    is_sure = free.high < least_needed
    engines = [process for process in gpu.processes if process.is_engine]
    share = proposed_utilization(total.value, free.low)
    held = f"; it holds {_named(gpu.processes)}" if gpu.processes else ""
    message = (
        f"GPU {gpu.index} ({gpu.uuid}) has {gib(free.low)} to {gib(free.high)} free for vLLM, and "
        f"gpu_memory_utilization {utilization:g} of {gib(total.value)} asks for {gib(least_needed)}{held}"
    )
    if engines:
        remedy = f"stop that vLLM if it is left over ({_kill_words(engines)}), or choose another GPU"
    elif share > 0:
        remedy = f"free the GPU, or plan with gpu_memory_utilization {share:g}"
    else:
        remedy = "free the GPU, or choose another"
    return _finding(
        "engine-on-gpu" if engines else "utilization-over-free", "error" if is_sure else "warning", message, remedy
    )


def _neighbours(gpu: GpuState) -> list[Finding]:
    """Other engines on a GPU with room for this one: it works where they neither load nor grow now (vllm#55827)."""
    engines = [process for process in gpu.processes if process.is_engine]
    if not engines:
        return []
    return [
        _finding(
            "engine-on-gpu",
            "warning",
            f"GPU {gpu.index} ({gpu.uuid}) is shared with another vLLM: {_named(engines)}",
            "start only once it is ready and its memory is steady; what it takes meanwhile is charged to this start",
        )
    ]


def _named(processes: Sequence[GpuProcess]) -> str:
    return ", ".join(
        f"pid {p.pid} ({p.name}) {gib(p.used_bytes) if p.used_bytes is not None else 'an unknown amount'}"
        for p in processes
    )


def _kill_words(engines: Sequence[GpuProcess]) -> str:
    return f"kvadvise does not: kill {' '.join(str(p.pid) for p in engines)}"


def _finding(code: str, severity: Severity, message: str, remedy: str, source: str = _SOURCE) -> Finding:
    return Finding(code=code, severity=severity, message=message, remedy=remedy, source=source)
