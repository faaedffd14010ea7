"""AMD GPUs as the amdgpu driver shows them in sysfs; ROCm itself is not needed."""

from __future__ import annotations

import re

import msgspec

from advisor.units import GIB
from kvadvise.machine import Machine

_AMD = "0x1002"
_LEAST_BYTES = 4 * GIB  # below: the carve-out of a processor's own graphics


class AmdDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One card: bytes of its own memory, and the product name where the firmware has one."""

    name: str
    total_bytes: int
    used_bytes: int


def read_amd_devices(machine: Machine) -> list[AmdDevice]:
    """The AMD cards of this machine that have memory of their own, in the kernel's order."""
    devices = []
    for card in machine.names("/sys/class/drm"):
        folder = f"/sys/class/drm/{card}/device"
        if not re.fullmatch(r"card\d+", card) or (machine.text(f"{folder}/vendor") or "").strip() != _AMD:
            continue
        total = machine.integer(f"{folder}/mem_info_vram_total") or 0
        if total < _LEAST_BYTES:
            continue
        used = machine.integer(f"{folder}/mem_info_vram_used") or 0
        name = (machine.text(f"{folder}/product_name") or "").strip() or "AMD GPU"
        devices.append(AmdDevice(name=name, total_bytes=total, used_bytes=used))
    return devices
