"""A hundred engines started, stopped and killed: no process, port, lock, record or temporary file is left."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from launch.registry import running_servers
from launch.server import StartFailed, start
from launch.start_lock import start_lock
from launch.start_progress import Wait
from tests.launch.engines import QUICK, command, is_bound, mark_of, marked

CYCLES = 100
WAYS: list[dict[str, object]] = [
    {},
    {"drain_s": 0.05},
    {"die": "load"},
    {"die": "pool", "code": -9},
    {"hang": "load"},
    {},
    {"name": "other"},
    {"late_s": 0.1},
    {"fork": "leaver"},
    {},
]


def one_cycle(number: int, folder: Path) -> tuple[int, str]:
    """Start and end one engine in the way of its number; returns its port and mark."""
    faults = WAYS[number % len(WAYS)]
    wanted = command(faults)
    wait = Wait(poll_s=0.02, limit_s=0.3) if "hang" in faults else QUICK
    try:
        with start_lock([f"GPU-{number % 4}"], os.environ):
            server = start(wanted, wait=wait, log_path=folder / f"{number}.log")
    except StartFailed:
        return wanted.port, mark_of(wanted)
    if number % 10 == 5:
        server.process.kill()
    stopped = server.stop(grace_s=0.2 if "fork" in faults else None)
    assert stopped.findings == ()
    return wanted.port, mark_of(wanted)


def n_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_hundred_cycles_leave_nothing(tmp_path: Path, own_directories: Path) -> None:
    files = n_open_files()
    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(one_cycle, range(CYCLES), [tmp_path] * CYCLES))
    assert len(done) == CYCLES
    assert [mark for _, mark in done if marked(mark)] == []
    assert [port for port, _ in done if is_bound(port)] == []
    assert running_servers(os.environ) == []
    assert list((own_directories / "runtime").iterdir()) == []
    assert list((own_directories / "tmpdir").iterdir()) == []
    assert n_open_files() <= files + 2
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
