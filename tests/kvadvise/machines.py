"""Machines to detect GPUs on: a directory tree in place of `/`, and an NVML module made of plain values."""

# ruff: noqa: N802  the calls have the names pynvml gives them
from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from kvadvise.machine import Machine

MIB = 1024**2


def write_tree(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return root


def meminfo(total_mib: int, available_mib: int) -> str:
    return (
        f"MemTotal:       {total_mib * 1024} kB\nMemFree:        {available_mib * 512} kB\n"
        f"MemAvailable:   {available_mib * 1024} kB\n"
    )


def node_meminfo(node: int, total_mib: int, free_mib: int, file_mib: int = 0, slab_mib: int = 0) -> str:
    sizes = {
        "MemTotal": total_mib, "MemFree": free_mib, "Active": 7, "Active(file)": file_mib, "Inactive(file)": file_mib,
        "SReclaimable": slab_mib, "SUnreclaim": 99,
    }  # fmt: skip
    return "".join(f"Node {node} {name}: {mib * 1024:>14} kB\n" for name, mib in sizes.items())


class Card(msgspec.Struct, kw_only=True):
    """What the made-up NVML says of one GPU; sizes in MiB."""

    name: str | bytes
    total: int | None
    used: int = 4
    reserved: int | None = None
    capability: tuple[int, int] = (8, 9)
    uuid: str = "GPU-0"
    slices: list[Card] | None = None  # None: MIG is not supported; empty: on, without a slice


class FakeNvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeNvml:
    """The part of pynvml that is used. `memory_v2` False is a driver or binding without the second memory call."""

    NVMLError = FakeNvmlError
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    nvmlMemory_v2 = 0x02000028  # noqa: N815  pynvml's name

    def __init__(self, cards: list[Card], *, memory_v2: bool = True, init_error: int | None = None) -> None:
        self.cards = cards
        self.memory_v2 = memory_v2
        self.init_error = init_error
        self.is_open = False

    def nvmlInit(self) -> None:
        if self.init_error is not None:
            raise FakeNvmlError(self.init_error)
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self.cards[index]

    def nvmlDeviceGetName(self, card: Card) -> str | bytes:
        return card.name

    def nvmlDeviceGetUUID(self, card: Card) -> str:
        return card.uuid

    def nvmlDeviceGetCudaComputeCapability(self, card: Card) -> list[int]:
        return list(card.capability)

    def nvmlDeviceGetMemoryInfo(self, card: Card, version: int | None = None) -> Any:
        if card.total is None or (version and not self.memory_v2):
            raise FakeNvmlError(3)
        reserved = card.reserved or 0
        free = (card.total - card.used - reserved) * MIB
        if not version:
            return SimpleNamespace(total=card.total * MIB, free=free, used=(card.used + reserved) * MIB)
        return SimpleNamespace(total=card.total * MIB, free=free, used=card.used * MIB, reserved=reserved * MIB)

    def nvmlDeviceGetMigMode(self, card: Card) -> list[int]:
        if card.slices is None:
            raise FakeNvmlError(3)
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, card: Card) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, slot: int) -> Card:
        if card.slices is None or slot >= len(card.slices):
            raise FakeNvmlError(6)
        return card.slices[slot]


def machine(root: Path, nvml: Any = None, **env: str) -> Machine:
    return Machine(root=root, env=env, load_nvml=lambda: nvml)
