"""The GPU of this machine for `gpu: auto`: NVIDIA by NVML, else AMD by sysfs, else the CPU backend.

NVML shows more than CUDA: the driver keeps part of the memory back. NVML's second memory call says how much
(RTX 4090: 24564 MiB, 354 reserved, and 24210 MiB is a total CUDA reports). Without it, the catalogue's band
stands where name and size fit a row, else what was seen to be kept back on cards of that size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from advisor.errors import InvalidInput
from advisor.estimate import Estimate, estimated, measured
from advisor.gpu import CPU_INSTRUCTIONS, Gpu
from advisor.units import GIB, MIB, gib
from kvadvise.amd_sysfs import AmdDevice, read_amd_devices
from kvadvise.gpu_build import gpu_of_row
from kvadvise.gpu_memory import idle_gap, less_gap, total_of
from kvadvise.gpu_names import split_mig
from kvadvise.gpu_rows import Catalogue, GpuRow, nearest_size
from kvadvise.host_memory import read_host_memory
from kvadvise.machine import Machine, this_machine
from kvadvise.nvml import NvmlDevice, NvmlUnreadable, read_nvml_devices

_LEAST_CAPABILITY = (7, 0)  # below this vLLM has no kernels: a display card
_ROUNDING_BYTES = 32 * MIB
_SLICE_ROUNDING_BYTES = 136 * MIB  # A100 40GB 1g.10gb: 9.75 GiB in the driver's table, 9.62 by CUDA
# nvidia-smi's total less CUDA's, MiB, as seen: (totals below GiB, least, most)
_KEPT_BACK_MIB = ((36, 150, 520), (60, 340, 620), (90, 440, 900), (1 << 20, 600, 1150))
_AMD_KEPT_BACK_BYTES = (16 * MIB, 320 * MIB)  # MI300X: 191.98 and 191.69 of 192 GiB


def detect_gpu(machine: Machine | None = None, *, catalogue: Catalogue | None = None) -> Gpu:
    """The GPUs that CUDA or HIP would see here, as so many of the smallest one; the CPU where there is none.

    Raises InvalidInput where there is a GPU that cannot be read, or nothing can be.
    """
    machine, catalogue = machine or this_machine(), catalogue or Catalogue()
    try:
        devices = read_nvml_devices(machine)
    except NvmlUnreadable as error:
        if machine.has_nvidia_driver:
            raise InvalidInput(
                f"gpu: auto cannot read this machine's NVIDIA GPU: {error}",
                hint="install nvidia-ml-py (it comes with kvadvise[vllm]) or name the GPU in the workload file",
            ) from error
        devices = []
    if devices:
        return _nvidia(devices, machine, catalogue)
    if amd := read_amd_devices(machine):
        return _amd(amd, catalogue)
    cpu = cpu_gpu(machine)
    return msgspec.structs.replace(cpu, notes=("no GPU was found: this is the CPU backend", *cpu.notes))


def cpu_gpu(machine: Machine | None = None) -> Gpu:
    """The device of vLLM's CPU backend: what RAM, NUMA node and cgroup leave to one process.

    Raises InvalidInput where the machine does not say how much memory it has.
    """
    machine = machine or this_machine()
    memory = read_host_memory(machine)
    if memory is None:
        raise InvalidInput(
            "this machine does not say how much memory it has (/proc/meminfo)",
            hint="state it: {name: cpu, memory_gib: 32, free_gib: 24}",
        )
    return Gpu(
        name="CPU",
        device_name="cpu",
        vendor="cpu",
        compute_capability=None,
        total_bytes=measured(memory.total_bytes, high=memory.total_at_most),
        free_bytes=measured(memory.available_bytes, high=memory.available_at_most),
        unified_memory=True,
        arch="host processor",
        instructions=_instructions(machine),
        source=memory.source,
        notes=memory.notes,
    )


def _instructions(machine: Machine) -> frozenset[str] | None:
    """What /proc/cpuinfo says of the processor, None where it says nothing."""
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", machine.text("/proc/cpuinfo") or "", re.MULTILINE)
    return CPU_INSTRUCTIONS & set(flags[1].split()) if flags else None


def _nvidia(devices: list[NvmlDevice], machine: Machine, catalogue: Catalogue) -> Gpu:
    able = [d for d in devices if d.compute_capability >= _LEAST_CAPABILITY] or devices
    notes = [f"{d.name} is left out: vLLM needs compute capability 7.0" for d in devices if d not in able]
    if any(d.is_slice for d in able):
        notes.append("MIG is on: a process sees one slice, this one")
        able = [min((d for d in able if d.is_slice), key=_size)]
    sizes = {(d.name, round(_size(d) / GIB)) for d in able}
    if len(sizes) > 1:
        unlike = ", ".join(f"{name} ({size} GiB)" for name, size in sorted(sizes))
        notes.append(f"unlike GPUs ({unlike}): taken as {len(able)} of the smallest; CUDA_VISIBLE_DEVICES chooses")
    smallest = min(able, key=_size)
    row, slice_name = _row_of(smallest, catalogue)
    total = _nvidia_total(smallest, row, machine)
    gap = idle_gap(total, row=row, is_slice=smallest.is_slice)
    least_free = min((d.free_bytes for d in able if d.free_bytes is not None), default=None)
    if least_free is not None:
        free = _at_most(less_gap(measured(least_free), gap), total)
        if total.low - least_free > GIB:
            notes.append(f"{gib(total.low - least_free)} are in use by other programs")
    else:
        free = _at_most(_available(machine) or less_gap(total, gap), total)
    gpu = _described(smallest, row, slice_name, total)
    if machine.is_wsl:
        notes.append("under WSL, 0.8 to 1.6 GiB of what CUDA reports are never free")
    source = "NVML" + (f"; {gpu.source}" if gpu.source else "")
    return msgspec.structs.replace(gpu, count=len(able), free_bytes=free, source=source, notes=(*notes, *gpu.notes))


def _described(device: NvmlDevice, row: GpuRow | None, slice_name: str, total: Estimate) -> Gpu:
    if row is not None:
        gpu = gpu_of_row(row, total=total, slice_name=slice_name)
        return msgspec.structs.replace(gpu, device_name=device.name, compute_capability=device.compute_capability)
    return Gpu(
        name=device.name,
        device_name=device.name,
        vendor="nvidia",
        compute_capability=device.compute_capability,
        total_bytes=total,
        free_bytes=total,
        unified_memory=device.total_bytes is None,
        notes=("not in the catalogue: speed unknown",),
    )


def _row_of(device: NvmlDevice, catalogue: Catalogue) -> tuple[GpuRow | None, str]:
    """The catalogue's row of a device and the name of its slice; one of several of a name by the reported total."""
    name, slice_name = split_mig(device.name)
    rows = catalogue.find(name)
    if slice_name:
        rows = [row for row in rows if row.mig is not None and slice_name in row.mig.slices]
    elif len(rows) > 1:
        rows = nearest_size(rows, _size(device) / GIB)
    return (rows[0], slice_name) if rows else (None, slice_name)


def _nvidia_total(device: NvmlDevice, row: GpuRow | None, machine: Machine) -> Estimate:
    """What CUDA will report of a device, from what NVML reports."""
    shown = device.total_bytes
    if shown is None:
        return _shared_total(row, machine)
    if machine.is_wsl:
        return measured(shown)
    if device.is_slice:
        return measured(shown, shown - _SLICE_ROUNDING_BYTES, shown)
    if device.reserved_bytes is not None:
        value = shown - device.reserved_bytes
        return measured(value, value - _ROUNDING_BYTES, value + _ROUNDING_BYTES)
    _, least, most = next(entry for entry in _KEPT_BACK_MIB if shown < entry[0] * GIB)
    known = total_of(row) if row is not None else None
    if known is not None and shown - most * MIB - _ROUNDING_BYTES <= known.value <= shown:
        return known
    return estimated(shown - most * MIB, shown - most * MIB, shown - least * MIB)


def _shared_total(row: GpuRow | None, machine: Machine) -> Estimate:
    """The total of a GPU that shares the host's memory, which CUDA gives as RAM or a little less."""
    memory = read_host_memory(machine)
    if memory is not None:
        return estimated(memory.total_bytes, round(0.98 * memory.total_bytes), memory.total_bytes)
    known = total_of(row) if row is not None else None
    if known is None:
        raise InvalidInput("neither NVML nor /proc/meminfo says how much memory the GPU has", hint="state memory_gib")
    return known


def _available(machine: Machine) -> Estimate | None:
    """What vLLM takes as free on a GPU that shares the host's memory: psutil's available, MemAvailable."""
    memory = read_host_memory(machine)
    return None if memory is None else measured(memory.available_bytes)


def _amd(devices: Sequence[AmdDevice], catalogue: Catalogue) -> Gpu:
    smallest = min(devices, key=lambda d: d.total_bytes)
    rows = nearest_size(catalogue.find(smallest.name), smallest.total_bytes / GIB)
    least_kept, most_kept = _AMD_KEPT_BACK_BYTES
    size = smallest.total_bytes
    total = estimated(size - most_kept, size - most_kept, size - least_kept)
    gap = idle_gap(total, vendor="amd")
    free = _at_most(less_gap(measured(min(d.total_bytes - d.used_bytes for d in devices)), gap), total)
    if rows:
        gpu = gpu_of_row(rows[0], total=total)
    else:
        gpu = Gpu(
            name=smallest.name,
            device_name=smallest.name,
            vendor="amd",
            compute_capability=None,
            total_bytes=total,
            free_bytes=free,
            notes=("not in the catalogue: speed unknown",),
        )
    unlike = len({(d.name, d.total_bytes) for d in devices}) > 1
    notes = (f"unlike GPUs: taken as {len(devices)} of the smallest", *gpu.notes) if unlike else gpu.notes
    return msgspec.structs.replace(gpu, count=len(devices), free_bytes=free, source="amdgpu in sysfs", notes=notes)


def _at_most(free: Estimate, total: Estimate) -> Estimate:
    value, low, high = (min(f, total.high) for f in (free.value, free.low, free.high))
    return Estimate(value, low, high, free.basis)


def _size(device: NvmlDevice) -> int:
    return device.total_bytes if device.total_bytes is not None else 1 << 62
