"""What a test starts, directly or not, and the shared memory it makes; other engines on the machine are left out."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from launch.process_tree import Process, all_processes, descendants

SHARED = Path("/dev/shm")
LOOK_S = 0.1


class Descent:
    """Follows every process that comes up below this one, also once it has another parent."""

    def __init__(self) -> None:
        self._before = {p.pid for p in descendants(os.getpid())}
        self.segments: set[str] = set()
        self._seen: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def left(self) -> set[str]:
        """The shared memory of theirs that is still there."""
        return {name for name in self.segments if (SHARED / name).exists()}

    def alive(self) -> list[Process]:
        """Those that still run."""
        return [p for p in all_processes() if p.is_alive and self._seen.get(p.pid) == p.start_ticks]

    def _follow(self) -> None:
        while not self._stop.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        processes = {p.pid: p for p in all_processes()}
        known = {pid for pid, ticks in self._seen.items() if pid in processes and processes[pid].start_ticks == ticks}
        waiting = [os.getpid(), *known]
        while waiting:
            parent = waiting.pop()
            for child in processes.values():
                is_new = child.pid not in self._before and self._seen.get(child.pid) != child.start_ticks
                if child.parent == parent and is_new:
                    self._seen[child.pid] = child.start_ticks
                    known.add(child.pid)
                    waiting.append(child.pid)
        for pid in known:
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
                names = (line.partition(f"{SHARED}/")[2] for line in lines)
                self.segments |= {name.removesuffix(" (deleted)") for name in names if name}

    def close(self) -> None:
        """Stop following."""
        self._stop.set()
        self._thread.join()


@contextlib.contextmanager
def followed() -> Iterator[Descent]:
    """Follow while the block runs."""
    descent = Descent()
    descent._thread.start()
    try:
        yield descent
    finally:
        descent.close()
