# ruff: noqa: PTH123, PTH208
"""Processes as /proc shows them: who descends from whom, who shares a session, and whether a pid is still the same one.

Standard library only: the supervisor runs this without site-packages. Where there is no /proc every question has an
empty answer, and the process group is all that can be ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

PROC = "/proc"
TRACKER_GRACE_S = 2.0  # for a resource tracker to end by itself
_TRACKER = "multiprocessing.resource_tracker"
_ZOMBIE_STATES = frozenset("ZXx")


class Process(NamedTuple):
    """One line of /proc/PID/stat. `start_ticks` (since boot) tells a process from a later one with its pid."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; a zombie holds nothing but its pid."""
        return self.state not in _ZOMBIE_STATES


def read_process(pid: int) -> Process | None:
    """The process of that pid, None where there is none."""
    try:
        with open(f"{PROC}/{pid}/stat", "rb") as file:
            line = file.read().decode(errors="replace")
    except OSError:
        return None
    head, _, tail = line.rpartition(")")
    fields = tail.split()
    if len(fields) < 20:
        return None
    name = head.partition("(")[2]
    return Process(pid, name, fields[0], int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def all_processes() -> list[Process]:
    """Every process that can be seen."""
    try:
        pids = [int(name) for name in os.listdir(PROC) if name.isdecimal()]
    except OSError:
        return []
    return [process for pid in pids if (process := read_process(pid)) is not None]


def descendants(root: int) -> list[Process]:
    """The living processes below `root`, however deep; `root` itself is not among them."""
    processes = all_processes()
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found.append(child)
            waiting.append(child.pid)
    return [process for process in found if process.is_alive]


def session_members(session: int, *, not_before: int) -> list[Process]:
    """The living processes of a session that began at `not_before` ticks or later."""
    return [p for p in all_processes() if p.session == session and p.is_alive and p.start_ticks >= not_before]


def is_same(pid: int, start_ticks: int) -> bool:
    """Whether `pid` is alive and still the process that started then."""
    process = read_process(pid)
    return process is not None and process.is_alive and process.start_ticks == start_ticks


def kill_all(processes: Iterable[Process], *, trackers: bool) -> bool:
    """SIGKILL these processes; multiprocessing's resource trackers only with `trackers`, since they remove the shared
    memory of the others once those are gone, and then end. Returns whether one was there to kill.
    """
    was_there = False
    for process in processes:
        if trackers or _TRACKER not in command_line(process.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
                was_there = True
    return was_there


def end_all(living: Callable[[], list[Process]], timeout_s: float) -> tuple[bool, list[Process]]:
    """SIGKILL what `living` lists until it lists nothing, for up to `timeout_s`: (was one there, what is left)."""
    began = time.monotonic()
    was_there = False
    left = living()
    while left and time.monotonic() < began + timeout_s:
        was_there |= kill_all(left, trackers=time.monotonic() >= began + TRACKER_GRACE_S)
        time.sleep(0.05)
        left = living()
    return was_there, left


def command_line(pid: int) -> str:
    """A process's arguments joined by spaces; empty where they cannot be read."""
    try:
        with open(f"{PROC}/{pid}/cmdline", "rb") as file:
            return file.read().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def resident_bytes(pid: int) -> int:
    """Physical memory a process holds, 0 where it is gone."""
    try:
        with open(f"{PROC}/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def proportional_bytes(pid: int) -> int | None:
    """Physical memory and swap a process holds, shared pages divided among those that share them; None where the
    kernel does not say (another user's process, no Linux).
    """
    total = None
    try:
        with open(f"{PROC}/{pid}/smaps_rollup", "rb") as file:
            for line in file.read().split(b"\n"):
                key, _, value = line.partition(b":")
                if key in (b"Pss", b"SwapPss"):
                    total = (total or 0) + int(value.split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return None
    return total


def transferred_bytes(pid: int) -> int:
    """What a process has moved so far through reads, writes and the disk; 0 where that cannot be read."""
    total = 0
    try:
        with open(f"{PROC}/{pid}/io", "rb") as file:
            for line in file.read().split(b"\n"):
                key, _, value = line.partition(b":")
                if key in (b"rchar", b"read_bytes", b"write_bytes"):
                    total += int(value)
    except (OSError, ValueError):
        return 0
    return total


def boot_id() -> str:
    """Names this boot: ticks and pids of another one mean nothing. Empty where the kernel does not say."""
    try:
        with open(f"{PROC}/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
