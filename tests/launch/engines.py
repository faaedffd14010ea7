"""The stand-in engine for tests: commands that start it, and what of it is still there afterwards."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from advisor.versions import Version
from launch.engine_command import EngineCommand, engine_command
from launch.engine_entry import EngineEntry
from launch.start_progress import Wait

SCRIPT = Path(__file__).with_name("stand_in_engine.py")
QUICK = Wait(poll_s=0.02)
_MARK = "STAND_IN_MARK"


def stand_in() -> EngineEntry:
    """The stand-in as an engine; isolated and without site-packages it starts in a tenth of a second."""
    return EngineEntry(
        kind="module",
        words=(sys.executable, "-I", "-S", str(SCRIPT)),
        found_by="test",
        version=Version(0, 32, 0),
        version_text="0.32.0",
    )


def free_port() -> int:
    """A port of the loopback that nobody has."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def command(
    faults: Mapping[str, object] | None = None, *, port: int | None = None, drain_s: float | None = None
) -> EngineCommand:
    """Starts the stand-in with these STAND_IN_ switches, and a mark that all its processes carry."""
    env = {f"STAND_IN_{name.upper()}": str(value) for name, value in (faults or {}).items()}
    return engine_command(
        stand_in(),
        ("vllm", "serve", "org/model"),
        host="127.0.0.1",
        port=free_port() if port is None else port,
        drain_s=drain_s,
        env=env | {_MARK: uuid.uuid4().hex},
    )


def mark_of(started: EngineCommand) -> str:
    """What tells its processes from all others, whoever their parents are."""
    return started.env[_MARK]


def marked(mark: str, name: str = _MARK) -> list[int]:
    """The processes that are alive and have this in their environment: one start's, the supervisor among them."""
    wanted = f"{name}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def eventually(holds: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Whether it holds before the time is up."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_bound(port: int) -> bool:
    """Whether somebody listens on the loopback's port."""
    with socket.socket() as s:
        s.settimeout(1.0)
        return s.connect_ex(("127.0.0.1", port)) == 0
