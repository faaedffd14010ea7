"""What NVML says of this machine's NVIDIA GPUs, in the order and choice that CUDA_VISIBLE_DEVICES gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kvadvise.machine import Machine

_NO_GPU = frozenset({"NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED"})


class NvmlUnreadable(Exception):
    """NVML is not there or does not answer; the text says why."""


class NvmlDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU or MIG slice. Bytes; None where NVML does not say (memory of a GPU that shares the host's)."""

    name: str
    uuid: str
    compute_capability: tuple[int, int]
    total_bytes: int | None
    reserved_bytes: int | None  # kept back by the driver, of the total
    free_bytes: int | None
    is_slice: bool = False


def read_nvml_devices(machine: Machine) -> list[NvmlDevice]:
    """The GPUs a CUDA process would see; none where there is no NVIDIA driver.

    Raises NvmlUnreadable where the binding is not installed or NVML fails in another way.
    """
    nvml = machine.load_nvml()
    if nvml is None:
        raise NvmlUnreadable("the package nvidia-ml-py is not installed")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        if getattr(error, "value", None) in {getattr(nvml, name, object()) for name in _NO_GPU}:
            return []
        raise NvmlUnreadable(str(error)) from error
    try:
        return _visible(list(_devices(nvml)), machine.env.get("CUDA_VISIBLE_DEVICES"))
    except nvml.NVMLError as error:
        raise NvmlUnreadable(str(error)) from error
    finally:
        _or_none(nvml, nvml.nvmlShutdown)


def _devices(nvml: Any) -> Iterator[list[NvmlDevice]]:
    """Per GPU: itself, or with MIG on its slices."""
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        capability = tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle))
        mode = _or_none(nvml, nvml.nvmlDeviceGetMigMode, handle)
        if not mode or not mode[0]:
            yield [_device(nvml, handle, capability)]
            continue
        slots = range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
        found = [_or_none(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot) for slot in slots]
        yield [_device(nvml, part, capability, is_slice=True) for part in found if part is not None]


def _device(nvml: Any, handle: Any, capability: tuple[int, int], *, is_slice: bool = False) -> NvmlDevice:
    memory = _or_none(nvml, nvml.nvmlDeviceGetMemoryInfo, handle, getattr(nvml, "nvmlMemory_v2", None))
    reserved = getattr(memory, "reserved", None)
    if memory is None:
        memory = _or_none(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    return NvmlDevice(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        compute_capability=capability,
        total_bytes=int(memory.total) if memory is not None else None,
        reserved_bytes=int(reserved) if reserved else None,
        free_bytes=int(memory.free) if memory is not None else None,
        is_slice=is_slice,
    )


def _visible(gpus: list[list[NvmlDevice]], chosen: str | None) -> list[NvmlDevice]:
    """CUDA_VISIBLE_DEVICES as CUDA reads it: indices or starts of UUIDs, up to the first that fits nothing."""
    every = [device for gpu in gpus for device in gpu]
    if chosen is None:
        return every
    seen: list[NvmlDevice] = []
    for word in (part.strip() for part in chosen.split(",")):
        if word.isdecimal():
            fitting = gpus[int(word)] if len(word) < 6 and int(word) < len(gpus) else []
        else:
            fitting = [device for device in every if word and device.uuid.startswith(word)][:1]
        if not fitting:
            break
        seen += [device for device in fitting if device not in seen]
    return seen


def _or_none(nvml: Any, call: Callable[..., Any], *args: Any) -> Any | None:
    """A call whose failure means that the card or the driver does not have it."""
    try:
        return call(*args)
    except (nvml.NVMLError, TypeError):  # TypeError: a binding too old for the second argument
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
