"""This machine as the checks before a start see it: files below a root, the environment, room on its disks.

A test makes its own from a directory tree; `space` then answers with made-up sizes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from advisor.units import KIB

_NO_LIMIT = 1 << 60  # cgroup v1 writes a number near 2^63 for "none"
_CONTAINER_GROUPS = re.compile(r"docker|kubepods|containerd|libpod|/lxc/|crio")
_TRUE = frozenset({"1", "ON", "YES", "TRUE"})


class Space(msgspec.Struct, frozen=True):
    """Bytes of a file system: all of it, and what a user may still write."""

    total_bytes: int
    free_bytes: int


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """Where to read. `root` stands for `/`; `space` tells a mounted path's size, None where it is not there."""

    root: Path
    env: Mapping[str, str]
    space: Callable[[Path], Space | None]

    def text(self, path: str) -> str | None:
        """A file's text; None where it is absent or may not be read."""
        try:
            return (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return None

    def is_set(self, name: str) -> bool:
        """Whether an environment variable switches something on."""
        return self.env.get(name, "").upper() in _TRUE

    @property
    def is_offline(self) -> bool:
        """Whether the user has switched the hub off."""
        return self.is_set("HF_HUB_OFFLINE") or self.is_set("TRANSFORMERS_OFFLINE")

    @property
    def is_container(self) -> bool:
        """Whether this is inside a container, by the marks that docker, podman and Kubernetes leave."""
        marks = ("/.dockerenv", "/run/.containerenv")
        return (
            any((self.root / mark.lstrip("/")).exists() for mark in marks)
            or "KUBERNETES_SERVICE_HOST" in self.env
            or _CONTAINER_GROUPS.search(self.text("/proc/1/cgroup") or "") is not None
        )

    @property
    def available_bytes(self) -> int | None:
        """Memory that can be had now: MemAvailable, or less where a cgroup allows less. None: nobody says."""
        found = re.search(r"^MemAvailable: +(\d+) kB", self.text("/proc/meminfo") or "", re.MULTILINE)
        bounds = [int(found[1]) * KIB] if found else []
        bounds += self._cgroup_room()
        return min(bounds, default=None)

    def _cgroup_room(self) -> list[int]:
        """What each limit leaves, from this process's group up to the root, v2 and v1; file cache can be had back."""
        paths = {"": "/", "memory": "/"}
        for line in (self.text("/proc/self/cgroup") or "").splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if not controllers or "memory" in controllers.split(","):
                paths["memory" if controllers else ""] = path
        room = []
        for base, path, limit_name, usage_name in (
            ("/sys/fs/cgroup", paths[""], "memory.max", "memory.current"),
            ("/sys/fs/cgroup/memory", paths["memory"], "memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            for folder in _upwards(base, path):
                limit = self._integer(f"{folder}/{limit_name}")
                if limit is not None and 0 < limit < _NO_LIMIT:
                    used = self._integer(f"{folder}/{usage_name}") or 0
                    room.append(max(0, limit - max(0, used - self._file_cache(folder))))
        return room

    def _file_cache(self, folder: str) -> int:
        stat = self.text(f"{folder}/memory.stat") or ""
        return sum(int(n) for n in re.findall(r"^(?:total_)?inactive_file (\d+)$", stat, re.MULTILINE)[:1])

    def _integer(self, path: str) -> int | None:
        text = (self.text(path) or "").strip()
        return int(text) if text.isdecimal() else None


def this_host(env: Mapping[str, str] | None = None) -> Host:
    """The machine kvadvise runs on."""
    return Host(root=Path("/"), env=dict(os.environ if env is None else env), space=space_of)


def space_of(path: Path) -> Space | None:
    """The file system a path is on, or will be: its nearest parent that exists."""
    for place in (path, *path.parents):
        try:
            stat = os.statvfs(place)
        except OSError:
            continue
        return Space(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)
    return None


def _upwards(base: str, path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    if ".." in parts:  # outside this process's cgroup namespace: only the root can be seen
        parts = []
    return [base + "".join(f"/{part}" for part in parts[:n]) for n in range(len(parts), -1, -1)]
