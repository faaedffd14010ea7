"""Made-up machines for the checks before a start: GPUs, files, sizes, and a module like pynvml."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from advisor.units import GIB
from launch.gpu_state import GpuProcess, GpuState
from launch.host import Host, Space
from launch.ports import PortState
from launch.preflight import Surroundings


def gpu(
    index: int = 0,
    *,
    total: float = 24.0,
    free: float = 23.5,
    name: str = "RTX 4090",
    kept_back: float | None = 0.35,
    processes: tuple[tuple[int, str, float | None], ...] = (),
    is_slice: bool = False,
) -> GpuState:
    """One GPU, sizes in GiB."""
    return GpuState(
        index=index,
        uuid=f"{'MIG' if is_slice else 'GPU'}-{index:04d}",
        name=name,
        total_bytes=round(total * GIB),
        free_bytes=round(free * GIB),
        kept_back_bytes=None if kept_back is None else round(kept_back * GIB),
        is_slice=is_slice,
        processes=tuple(
            GpuProcess(pid=pid, name=what, used_bytes=None if held is None else round(held * GIB))
            for pid, what, held in processes
        ),
    )


def host(
    root: Path,
    env: Mapping[str, str] | None = None,
    *,
    files: Mapping[str, str] | None = None,
    spaces: Mapping[str, Space] | None = None,
) -> Host:
    """A machine of these files and these file systems; every other place has room enough."""
    for name, text in (files or {}).items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    sizes = dict(spaces or {})
    return Host(root=root, env=dict(env or {}), space=lambda path: sizes.get(str(path), Space(1000 * GIB, 1000 * GIB)))


def surroundings(machine: Host, *gpus: GpuState, port: PortState | None = None) -> Surroundings:
    """The checks' view of a machine with these GPUs; flags are taken as they are."""
    return Surroundings(
        host=machine,
        read_gpus=lambda: list(gpus),
        ask_port=lambda *_: port or PortState(state="free"),
        check_flags=lambda *_: (),
    )


class NvmlError(Exception):
    """As pynvml's."""


class FakeNvml:
    """A module like pynvml, with cards given as dicts."""

    NVMLError = NvmlError
    nvmlMemory_v2 = 2  # noqa: N815

    def __init__(self, *cards: dict[str, Any], works: bool = True) -> None:
        self.cards = cards
        self.works = works
        self.was_shut = False

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.works:
            raise NvmlError("driver not loaded")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.was_shut = True

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:  # noqa: N802
        return self.cards[index]

    def nvmlDeviceGetMigMode(self, handle: dict[str, Any]) -> tuple[int, int]:  # noqa: N802
        if "slices" not in handle:
            raise NvmlError("not supported")
        return (1, 1)

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: dict[str, Any]) -> int:  # noqa: N802
        return len(handle["slices"]) + 1

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: dict[str, Any], slot: int) -> dict[str, Any]:  # noqa: N802
        slices: list[dict[str, Any]] = handle["slices"]
        if slot >= len(slices):
            raise NvmlError("not found")
        return slices[slot]

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any], version: int | None = None) -> SimpleNamespace:  # noqa: N802
        if "total" not in handle or (version and handle.get("is_old")):
            raise NvmlError("not supported")
        seen = SimpleNamespace(total=handle["total"], free=handle["free"])
        if version:
            seen.reserved = handle.get("reserved", 0)
        return seen

    def nvmlDeviceGetUUID(self, handle: dict[str, Any]) -> bytes:  # noqa: N802
        return str(handle["uuid"]).encode()

    def nvmlDeviceGetName(self, handle: dict[str, Any]) -> str:  # noqa: N802
        return str(handle["name"])

    def nvmlDeviceGetComputeRunningProcesses(self, handle: dict[str, Any]) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in handle.get("processes", ())]
