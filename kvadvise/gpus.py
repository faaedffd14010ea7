"""From the `gpu:` value of a workload to what is known of that GPU: catalogue, this machine, the user's word."""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec

from advisor.errors import InvalidInput
from advisor.estimate import Estimate
from advisor.gpu import Gpu
from advisor.problems import shown, written
from advisor.units import GIB, gib
from advisor.workload import GpuRef
from kvadvise.gpu_build import gpu_of_row
from kvadvise.gpu_memory import free_of, slice_total, stated, total_of
from kvadvise.gpu_names import split_count, split_mig, split_size
from kvadvise.gpu_rows import Catalogue, GpuRow, nearest_size
from kvadvise.machine import Machine

_AMD = re.compile(r"\b(?:amd|instinct|radeon|mi\d{2,3}\w*|rx\s?\d{4})\b", re.IGNORECASE)
_INTEL = re.compile(r"\b(?:intel|arc|gaudi|hl-\d+)\b", re.IGNORECASE)
_LEAST_GIB, _MOST_GIB = 0.25, 65536.0
_ANY_GPU = "any GPU can be given as {name: ..., memory_gib: ..., compute_capability: ...}"


class GpuSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the catalogue. Memory in GiB as CUDA reports it; None is unknown."""

    id: str
    name: str
    device_name: str
    aliases: tuple[str, ...]
    vendor: str
    arch: str
    memory_gib: float | None
    memory_low_gib: float | None
    memory_high_gib: float | None
    memory_basis: str | None
    compute_capability: str | None
    bandwidth_gb_per_s: float | None
    fp16_tflops: float | None
    fp8_tflops: float | None
    link_gb_per_s: float | None
    unified_memory: bool
    mig: tuple[str, ...]
    source: str
    notes: tuple[str, ...]


def list_gpus(catalogue: Catalogue | None = None) -> list[GpuSummary]:
    """The whole catalogue, by vendor and id."""
    rows = sorted((catalogue or Catalogue()).all(), key=lambda row: (row.vendor, row.id))
    return [_summary(row) for row in rows]


def resolve_gpu(
    ref: GpuRef, *, where: str = "", machine: Machine | None = None, catalogue: Catalogue | None = None
) -> Gpu:
    """The GPU that `ref` names, with what it states put in place of what the catalogue or the machine says.

    Raises InvalidInput for a name that is unknown or fits several GPUs, a MIG profile the GPU does not have, a
    stated size that cannot be, and `auto` or `cpu` on a machine that cannot be read; `where` is put before it.
    """
    try:
        return _resolve(ref, machine, catalogue or Catalogue())
    except InvalidInput as error:
        if error.where or not where:
            raise
        raise InvalidInput(error.what, where=where, hint=error.hint) from error


def _resolve(ref: GpuRef, machine: Machine | None, catalogue: Catalogue) -> Gpu:
    _check_stated(ref)
    word = ref.name.strip().lower()
    if word == "auto" or (word == "cpu" and ref.memory_gib is None):
        from kvadvise.gpu_detect import cpu_gpu, detect_gpu

        gpu = cpu_gpu(machine) if word == "cpu" else detect_gpu(machine, catalogue=catalogue)
        return _of_this_machine(gpu, ref)
    name, times = split_count(ref.name)
    count = ref.count if times is None else times
    if count < 1 or ref.count not in (1, count):
        raise InvalidInput(f"{shown(ref.name)!r} and count {ref.count} differ", hint="give the number once, as count")
    gpu = _named(name, ref, catalogue)
    return _with_stated(gpu, ref, count)


def _of_this_machine(gpu: Gpu, ref: GpuRef) -> Gpu:
    """What was found, with what the user states in its place; a count of 1 is what a file without one has."""
    if ref.count > gpu.count and not gpu.is_cpu:
        raise InvalidInput(f"count {ref.count} is more than this machine shows ({gpu.count} of {gpu.name})")
    if ref.memory_gib is not None:
        total = stated(ref.memory_gib)
        free = gpu.free_bytes
        low, value, high = (min(f, total.value) for f in (free.low, free.value, free.high))
        gpu = msgspec.structs.replace(
            gpu,
            total_bytes=total,
            free_bytes=Estimate(value, low, high, free.basis),
            notes=(*gpu.notes, *_above_seen(ref, gpu.total_bytes)),
        )
    return _with_stated(gpu, ref, ref.count if ref.count > 1 else gpu.count)


def _named(name: str, ref: GpuRef, catalogue: Catalogue) -> Gpu:
    name, slice_name = split_mig(name)
    rows = catalogue.find(name)
    if not rows and ref.memory_gib is not None:  # a card whose memory was changed: `RTX 4090 48GB`
        rows = catalogue.find(split_size(name)[0])
    if slice_name and rows:
        row = _row_with_slice(rows, slice_name, name, ref)
    elif len(rows) > 1 and ref.memory_gib is not None and (nearest := nearest_size(rows, ref.memory_gib)):
        row = nearest[0]
    elif len(rows) > 1:
        raise _several(name, rows)
    elif rows:
        row = rows[0]
    else:
        return _custom(ref, catalogue)
    if ref.memory_gib is None:
        return gpu_of_row(row, slice_name=slice_name)
    gpu = gpu_of_row(row, total=stated(ref.memory_gib), slice_name=slice_name)
    seen = slice_total(row, slice_name) if slice_name else total_of(row)
    return msgspec.structs.replace(gpu, notes=(*gpu.notes, *_above_seen(ref, seen)))


def _row_with_slice(rows: list[GpuRow], slice_name: str, name: str, ref: GpuRef) -> GpuRow:
    having = [row for row in rows if row.mig is not None and slice_name in row.mig.slices]
    if len(having) > 1 and ref.memory_gib is None:
        raise _several(f"{name.strip()} MIG {slice_name}", having, f" MIG {slice_name}")
    if having:
        return having[0]
    profiles = sorted({profile for row in rows if row.mig is not None for profile in row.mig.slices})
    known = f"it has {', '.join(profiles)}" if profiles else "no MIG profile of it is known"
    raise InvalidInput(f"{rows[0].name} has no MIG profile {slice_name}", hint=f"{known}; {_ANY_GPU}")


def _custom(ref: GpuRef, catalogue: Catalogue) -> Gpu:
    """A GPU that the catalogue does not have, from what the user states."""
    vendor: Literal["nvidia", "amd", "intel"] = "nvidia"
    if _AMD.search(ref.name):
        vendor = "amd"
    elif _INTEL.search(ref.name):
        vendor = "intel"
    is_told = ref.compute_capability is not None or vendor != "nvidia"
    if ref.memory_gib is None or not is_told or not ref.name.strip():
        raise _unknown(ref, catalogue)
    total = stated(ref.memory_gib)
    name = shown(ref.name.strip())
    return Gpu(
        name=name,
        device_name=name,
        vendor=vendor,
        compute_capability=ref.compute_capability if vendor == "nvidia" else None,
        total_bytes=total,
        free_bytes=free_of(total, vendor=vendor),
        source="as stated",
        notes=("not in the catalogue: memory as stated, speed unknown",),
    )


def _unknown(ref: GpuRef, catalogue: Catalogue) -> InvalidInput:
    base, size_gb = split_size(ref.name)
    if size_gb is not None and (others := catalogue.find(base)):
        return InvalidInput(
            f"the catalogue has no {others[0].name} with {size_gb} GB",
            hint=f"it has {', '.join(row.name for row in others)}; add memory_gib for a card with other memory",
        )
    near = catalogue.suggest(ref.name)
    hint = f"did you mean {', '.join(near)}? Else {_ANY_GPU}" if near else _ANY_GPU
    if ref.memory_gib is not None and ref.name.strip():
        hint += " (here compute_capability is missing)"
    return InvalidInput(f"the catalogue has no GPU {shown(ref.name)!r}", hint=hint)


def _several(name: str, rows: list[GpuRow], suffix: str = "") -> InvalidInput:
    choices = ", ".join(sorted(row.name + suffix for row in rows))
    return InvalidInput(
        f"{shown(name.strip())!r} may be one of several GPUs", hint=f"write one of: {choices}; or add memory_gib"
    )


def _check_stated(ref: GpuRef) -> None:
    for key, value in (("memory_gib", ref.memory_gib), ("free_gib", ref.free_gib)):
        if value is not None and not (math.isfinite(value) and _LEAST_GIB <= value <= _MOST_GIB):
            raise InvalidInput(f"{key} {value!r} is no size of a GPU's memory", hint="write it in GiB, such as 79.19")
    if ref.count < 1:
        raise InvalidInput(f"count {ref.count} is no number of GPUs", hint="write 1 or more")


def _above_seen(ref: GpuRef, seen: Estimate | None) -> list[str]:
    """A note where the stated total is more than was ever seen: the figure on the box, or a modified card."""
    if ref.memory_gib is None or seen is None or stated(ref.memory_gib).low <= seen.high:
        return []
    return [
        f"memory_gib {written(ref.memory_gib)} is more than this GPU was seen to report ({seen.low / GIB:.2f} to "
        f"{seen.high / GIB:.2f} GiB); vLLM goes by what CUDA reports, so a start may find less"
    ]


def _with_stated(gpu: Gpu, ref: GpuRef, count: int) -> Gpu:
    notes = list(gpu.notes)
    free, capability = gpu.free_bytes, gpu.compute_capability
    if ref.free_gib is not None:
        free = stated(ref.free_gib)
        if free.low > gpu.total_bytes.high:
            raise InvalidInput(
                f"free_gib {written(ref.free_gib)} is more than the GPU has ({gib(gpu.total_bytes.high)})",
                hint="state memory_gib too, both as vLLM prints them at start",
            )
    if ref.compute_capability is not None and gpu.vendor == "nvidia":
        capability = ref.compute_capability
    elif ref.compute_capability is not None:
        notes.append("compute_capability says nothing of a device that is not NVIDIA's")
    return msgspec.structs.replace(gpu, count=count, free_bytes=free, compute_capability=capability, notes=tuple(notes))


def _summary(row: GpuRow) -> GpuSummary:
    memory = row.memory
    return GpuSummary(
        id=row.id,
        name=row.name,
        device_name=row.device_name,
        aliases=row.aliases,
        vendor=row.vendor,
        arch=row.arch,
        memory_gib=memory.gib if memory else None,
        memory_low_gib=memory.low if memory else None,
        memory_high_gib=memory.high if memory else None,
        memory_basis=memory.basis if memory else None,
        compute_capability=row.compute_capability,
        bandwidth_gb_per_s=row.bandwidth.gb_per_s if row.bandwidth else None,
        fp16_tflops=row.dense_tflops.get("fp16"),
        fp8_tflops=row.dense_tflops.get("fp8"),
        link_gb_per_s=row.link.gb_per_s if row.link else None,
        unified_memory=row.unified_memory,
        mig=tuple(row.mig.slices) if row.mig else (),
        source=memory.source if memory else "",
        notes=row.notes,
    )
