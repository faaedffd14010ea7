"""A row of the catalogue as the GPU the planner works with, whole or as a MIG slice."""

from __future__ import annotations

from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.gpu import Gpu
from kvadvise.gpu_memory import free_of, slice_total, total_of
from kvadvise.gpu_rows import GpuRow, share


def gpu_of_row(row: GpuRow, *, total: Estimate | None = None, slice_name: str = "") -> Gpu:
    """One GPU of the catalogue, or one MIG slice of it; `total` where more is known than the row says.

    Raises InvalidInput where neither tells the total.
    """
    total = total or (slice_total(row, slice_name) if slice_name else total_of(row))
    if total is None:
        raise InvalidInput(
            f"no memory total is known for {row.name}", hint=f"state it: {{name: {row.name}, memory_gib: ...}}"
        )
    profile = row.mig.slices[slice_name] if slice_name and row.mig is not None else None
    of_memory = share(profile.memory) if profile else 1.0
    of_sms = share(profile.sms) if profile else 1.0
    suffix = f" MIG {slice_name}" if slice_name else ""
    source = row.memory.source if row.memory is not None else ""
    return Gpu(
        name=row.name + suffix,
        device_name=row.device_name + suffix,
        vendor=row.vendor,
        compute_capability=row.capability if row.vendor == "nvidia" else None,
        total_bytes=total,
        free_bytes=free_of(total, row=row, is_slice=bool(slice_name)),
        bandwidth_bytes_per_s=row.bandwidth.gb_per_s * 1e9 * of_memory if row.bandwidth else None,
        flops={dtype: tflops * 1e12 * of_sms for dtype, tflops in row.dense_tflops.items()},
        unified_memory=row.unified_memory,
        nvlink_bytes_per_s=row.link.gb_per_s * 1e9 if row.link and not slice_name else None,
        arch=row.arch,
        source=row.mig.source if slice_name and row.mig else source,
        notes=(*row.notes, *_pitfalls(row, slice_name)),
    )


def _pitfalls(row: GpuRow, slice_name: str) -> list[str]:
    notes: list[str] = []
    memory = row.memory
    if slice_name:
        notes.append("a process sees one MIG slice only, so no tensor parallelism over slices")
    elif memory is not None and memory.windows_gib is not None:
        notes.append(
            f"under Windows and WSL CUDA reports {memory.windows_gib:g} GiB, but 0.8 to 1.6 GiB less of it are free: "
            "state memory_gib and free_gib there"
        )
    if memory is not None and memory.ecc_on_gib is not None:
        notes.append(f"with ECC switched on it has {memory.ecc_on_gib:g} GiB: state memory_gib then")
    return notes
