"""What the GPUs of this machine hold right now, and who holds it, from NVML; without NVML there is nothing to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from launch.process_tree import command_line, read_process


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process with memory on a GPU. `used_bytes` is None where the driver does not say (WSL, containers)."""

    pid: int
    name: str
    used_bytes: int | None = None

    @property
    def is_engine(self) -> bool:
        """Whether it is one of vLLM's: its workers call themselves `VLLM::...`, which the kernel cuts to 15 letters."""
        return self.name.startswith("VLLM::") or "vllm" in self.name.split("/")[-1].lower()


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU or MIG slice in NVML's order, which is the PCI bus's. Bytes as NVML reports them.

    `kept_back_bytes` is the driver's own, of the total, which CUDA does not show; None where NVML does not say.
    """

    index: int
    uuid: str
    name: str
    total_bytes: int
    free_bytes: int
    kept_back_bytes: int | None = None
    is_slice: bool = False
    processes: tuple[GpuProcess, ...] = ()


GpuReader = Callable[[], Sequence[GpuState]]


def read_gpus() -> list[GpuState]:
    """The GPUs of this machine, all of them; none where there is no driver or no binding to it."""
    try:
        import pynvml
    except ImportError:
        return []
    return read_with(pynvml)


def read_with(nvml: Any) -> list[GpuState]:
    """As read_gpus, from a module like pynvml."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return []
    try:
        states: list[GpuState] = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            slices = _slices(nvml, handle)
            states += [
                state
                for part in slices or [handle]
                if (state := _state(nvml, part, index, is_slice=bool(slices))) is not None
            ]
    except nvml.NVMLError:
        return []
    finally:
        _or_none(nvml, nvml.nvmlShutdown)
    return states


def used_bytes(read: GpuReader, uuids: Sequence[str]) -> Callable[[], Mapping[str, int]]:
    """A function that reads the memory in use on these GPUs, by UUID."""

    def now() -> Mapping[str, int]:
        return {gpu.uuid: gpu.total_bytes - gpu.free_bytes for gpu in read() if gpu.uuid in uuids}

    return now


def _slices(nvml: Any, handle: Any) -> list[Any]:
    mode = _or_none(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if not mode or not mode[0]:
        return []
    found = [
        _or_none(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot)
        for slot in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    ]
    return [part for part in found if part is not None]


def _state(nvml: Any, handle: Any, index: int, *, is_slice: bool) -> GpuState | None:
    memory = _or_none(nvml, nvml.nvmlDeviceGetMemoryInfo, handle, getattr(nvml, "nvmlMemory_v2", None))
    kept_back = getattr(memory, "reserved", None)
    if memory is None:
        memory = _or_none(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    if memory is None:  # it shares the host's memory
        return None
    running = _or_none(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return GpuState(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        total_bytes=int(memory.total),
        free_bytes=int(memory.free),
        kept_back_bytes=int(kept_back) if kept_back else None,
        is_slice=is_slice,
        processes=tuple(_process(p.pid, getattr(p, "usedGpuMemory", None)) for p in running),
    )


def _process(pid: int, held_bytes: int | None) -> GpuProcess:
    process = read_process(pid)
    name = process.name if process is not None else "not visible from here"
    words = command_line(pid).split()
    if not name.startswith("VLLM::") and any("vllm" in word.split("/")[-1] for word in words[:4]):
        name = f"vllm, {name}"
    return GpuProcess(pid=pid, name=name, used_bytes=held_bytes or None)


def _or_none(nvml: Any, call: Callable[..., Any], *args: Any) -> Any | None:
    """A call whose failure means that the card or the driver does not have it."""
    try:
        return call(*args)
    except (nvml.NVMLError, TypeError):  # TypeError: a binding too old for the second argument
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
