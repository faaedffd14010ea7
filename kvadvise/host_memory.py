"""The memory vLLM's CPU backend may have: RAM, the NUMA node it binds to, the cgroup around it.

vLLM 0.32 (v1/worker/cpu_worker.py, CPUWorker; utils/cpu_resource_utils.py, get_memory_node_info) binds to the
node of the first core it may run on, counts MemFree, file cache and reclaimable slab of that node as available,
and clamps both to the cgroup at the mount's root. The figures here are the smallest of all that bounds it; a
limit of an enclosing group that vLLM does not read is one of them, since the kernel enforces it.
"""

from __future__ import annotations

import re

import msgspec

from advisor.units import KIB, gib
from kvadvise.machine import Machine

_NO_LIMIT = 1 << 60  # cgroup v1 writes a number near 2^63 for "none"
_LINE = re.compile(r"^(?:Node +\d+ +)?([\w()]+): +(\d+) kB", re.MULTILINE)
_AVAILABLE_ON_NODE = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes. `*_at_most` is larger than the figure only where the node itself may still grow (hot-plugged memory)."""

    total_bytes: int
    total_at_most: int
    available_bytes: int
    available_at_most: int
    source: str
    notes: tuple[str, ...] = ()


class _Bound(msgspec.Struct, frozen=True):
    total: int
    available: int
    name: str


def read_host_memory(machine: Machine) -> HostMemory | None:
    """What the CPU backend would find on this machine now; None where /proc/meminfo cannot be read."""
    ram = _ram(machine)
    if ram is None:
        return None
    notes: list[str] = []
    bounds = [ram]
    growth = [ram]
    group = _cgroup(machine, notes)
    if group is not None:
        bounds.append(group)
        growth.append(group)
    node = _node(machine, notes)
    if node is not None:
        bounds.append(node)
    may_grow = node is not None and _is_only_node(machine) and node.total < 0.9 * ram.total
    if may_grow:
        notes.append(f"{node.name if node else ''} holds less than the RAM and is the only node: it may still grow")
    highest = growth if may_grow else bounds
    total = min(b.total for b in bounds)
    available = min(total, *(b.available for b in bounds))
    return HostMemory(
        total_bytes=total,
        total_at_most=min(b.total for b in highest),
        available_bytes=available,
        available_at_most=max(available, min(b.available for b in highest)),
        source=", ".join(b.name for b in bounds),
        notes=tuple(notes),
    )


def _ram(machine: Machine) -> _Bound | None:
    sizes = _sizes(machine.text("/proc/meminfo"))
    if not sizes.get("MemTotal"):
        return None
    return _Bound(sizes["MemTotal"], sizes.get("MemAvailable", sizes.get("MemFree", 0)), "/proc/meminfo")


def _node(machine: Machine, notes: list[str]) -> _Bound | None:
    number = _memory_node(machine)
    sizes = _sizes(machine.text(f"/sys/devices/system/node/node{number}/meminfo"))
    if not sizes.get("MemTotal"):
        return None
    available = sum(sizes.get(part, 0) for part in _AVAILABLE_ON_NODE)
    bound = _Bound(sizes["MemTotal"], available, f"NUMA node {number}")
    if not _is_only_node(machine):
        notes.append(f"vLLM's CPU backend binds one rank to {bound.name} ({gib(bound.total)})")
    return bound


def _memory_node(machine: Machine) -> int:
    """The node of the first allowed core, or the first allowed node where that one is not allowed."""
    status = machine.text("/proc/self/status") or ""
    cores = _ids(status, "Cpus_allowed_list")
    allowed = _ids(status, "Mems_allowed_list")
    links = machine.names(f"/sys/devices/system/cpu/cpu{cores[0] if cores else 0}")
    node = next((int(name[4:]) for name in links if re.fullmatch(r"node\d+", name)), 0)
    return node if not allowed or node in allowed else allowed[0]


def _is_only_node(machine: Machine) -> bool:
    return len([n for n in machine.names("/sys/devices/system/node") if re.fullmatch(r"node\d+", n)]) == 1


def _cgroup(machine: Machine, notes: list[str]) -> _Bound | None:
    """The tightest limit on the way from this process's group up to the mount's root, in v2 and in v1."""
    tightest: _Bound | None = None
    for base, path, limit_file, usage_file, version in _hierarchies(machine):
        for folder in _upwards(base, path):
            limit = machine.integer(f"{folder}/{limit_file}")
            if limit is None or not 0 < limit < _NO_LIMIT:
                continue
            free = max(0, limit - (machine.integer(f"{folder}/{usage_file}") or 0))
            if folder != base:
                notes.append(f"a cgroup {version} limit of {gib(limit)} holds in {folder}, which vLLM does not read")
            if tightest is None:
                tightest = _Bound(limit, free, f"cgroup {version}")
            else:
                tightest = _Bound(min(tightest.total, limit), min(tightest.available, free), f"cgroup {version}")
    return tightest


def _hierarchies(machine: Machine) -> list[tuple[str, str, str, str, str]]:
    """(mount, path of this process below it, limit file, usage file, version) for v2 and for v1's memory controller."""
    paths = {"v2": "/", "v1": "/"}
    for line in (machine.text("/proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            paths["v2"] = path
        elif "memory" in controllers.split(","):
            paths["v1"] = path
    return [
        ("/sys/fs/cgroup", paths["v2"], "memory.max", "memory.current", "v2"),
        ("/sys/fs/cgroup/memory", paths["v1"], "memory.limit_in_bytes", "memory.usage_in_bytes", "v1"),
    ]


def _upwards(base: str, path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    if ".." in parts:  # outside this process's cgroup namespace: only the root can be seen
        parts = []
    return [base + "".join(f"/{part}" for part in parts[:n]) for n in range(len(parts), -1, -1)]


def _sizes(text: str | None) -> dict[str, int]:
    return {name: int(kib) * KIB for name, kib in _LINE.findall(text or "")}


def _ids(status: str, key: str) -> list[int]:
    """`0-2,4` behind `key:` as [0, 1, 2, 4]; nothing where the line is absent or no list."""
    found = re.search(rf"^{key}:\s*([\d,-]+)\s*$", status, re.MULTILINE)
    ids: list[int] = []
    for part in found[1].split(",") if found else ():
        first, _, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            ids += range(int(first), min(int(last or first), int(first) + 8192) + 1)
    return ids
