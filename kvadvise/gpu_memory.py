"""How much memory a GPU has and how much of it is free when vLLM starts on it, as estimates with their bands.

Total: what cudaMemGetInfo reports, which vLLM multiplies by gpu_memory_utilization (v1/worker/utils.py,
request_memory). Free: the same call on an idle card after the process has its CUDA context. Left out: other
processes, a desktop, NCCL's buffers, which a start on several GPUs takes before vLLM looks.
"""

from __future__ import annotations

from advisor.estimate import Estimate, estimated, measured
from advisor.units import GIB, bytes_from_gib
from kvadvise.gpu_rows import GpuRow, share

PRINTED_TO_GIB = 0.005  # vLLM and PyTorch print two decimals

# Total less free on an idle GPU, GiB: (totals below, value, low, high), from public vLLM start-up lines: 0.23 (16 GB),
# 0.25 to 0.63 (24 GB), 0.34 to 0.38 (48 GB), 0.49 (A100 40 GB), 0.51 to 0.53 (H100), 0.60 and 0.61 (H200, B300).
_NVIDIA_GAP: tuple[tuple[float, tuple[float, float, float]], ...] = (
    (20, (0.40, 0.20, 0.63)),
    (36, (0.50, 0.25, 0.70)),
    (60, (0.45, 0.30, 0.65)),
    (120, (0.53, 0.45, 0.70)),
    (float("inf"), (0.62, 0.50, 0.80)),
)
_SLICE_GAP = (0.15, 0.10, 0.35)  # 0.11 seen on a 16 GiB MIG slice
_OTHER_GAP = {"amd": (0.10, 0.01, 0.50), "intel": (0.30, 0.10, 0.60)}  # 0.01 (ROCm, 80 GiB), 0.20 (Arc B580)
_UNIFIED_GAP_FRACTION = (0.09, 0.02, 0.20)  # the host's own use: GB10 10 of 120 GiB; of a host it may be anything

_SLICE_BELOW_TABLE_GIB = 0.13  # A100 40GB 1g.10gb: 9.75 in the driver's table, 9.62 as CUDA reports it
_SLICE_PART, _SLICE_HALF = 0.91, 0.985  # least share of an even cut seen below half a GPU, and from half on


def stated(gib: float) -> Estimate:
    """A size that the user read off a log: exact to the digits that are printed."""
    return measured(
        bytes_from_gib(gib), max(0, bytes_from_gib(gib - PRINTED_TO_GIB)), bytes_from_gib(gib + PRINTED_TO_GIB)
    )


def total_of(row: GpuRow) -> Estimate | None:
    """The total of a whole GPU; None where none is known."""
    memory = row.memory
    if memory is None:
        return None
    low, value, high = (bytes_from_gib(g) for g in (memory.low, memory.gib, memory.high))
    return Estimate(value, low, high, memory.basis)


def slice_total(row: GpuRow, profile_name: str) -> Estimate | None:
    """The total of a MIG slice: what the driver's table says, or the share of the GPU less what slices lose.

    Seen in driver tables and logs: 1g and 2g slices have 91 to 99 % of an even cut, halves 98.5 to 100 %.
    Raises KeyError for a profile the row does not have.
    """
    profile = row.mig.slices[profile_name] if row.mig is not None else None
    if profile is None:
        raise KeyError(profile_name)
    if profile.gib is not None:
        value = bytes_from_gib(profile.gib)
        low, high = bytes_from_gib(profile.gib - _SLICE_BELOW_TABLE_GIB), bytes_from_gib(profile.gib + PRINTED_TO_GIB)
        return Estimate(value, low, high, profile.basis)
    whole = total_of(row)
    if whole is None:
        return None
    part = share(profile.memory)
    least = round(whole.low * part * (_SLICE_HALF if part >= 0.5 else _SLICE_PART))
    return estimated(least, least, round(whole.high * part))


def free_of(total: Estimate, *, row: GpuRow | None = None, vendor: str = "nvidia", is_slice: bool = False) -> Estimate:
    """What is free of `total` on an idle GPU, the CUDA context of the process taken off."""
    return less_gap(total, idle_gap(total, row=row, vendor=row.vendor if row else vendor, is_slice=is_slice))


def less_gap(free: Estimate, gap: Estimate) -> Estimate:
    """`free` less `gap`, and never less than nothing."""
    left = free - gap
    return Estimate(max(0, left.value), max(0, left.low), max(0, left.high), "estimated")


def idle_gap(total: Estimate, *, row: GpuRow | None = None, vendor: str = "nvidia", is_slice: bool = False) -> Estimate:
    """Total less free on an idle GPU: as seen on this GPU, else as seen on GPUs of its size."""
    if row is not None and row.idle_gap is not None and not is_slice:
        band = (row.idle_gap.gib, row.idle_gap.low, row.idle_gap.high)
    elif is_slice:
        band = _SLICE_GAP
    elif vendor == "cpu" or (row is not None and row.unified_memory):
        value, low, high = (part * total.value / GIB for part in _UNIFIED_GAP_FRACTION)
        band = (value, low, high)
    elif vendor in _OTHER_GAP:
        band = _OTHER_GAP[vendor]
    else:
        band = next(gap for below, gap in _NVIDIA_GAP if total.value < below * GIB)
    return estimated(*(bytes_from_gib(g) for g in band))
