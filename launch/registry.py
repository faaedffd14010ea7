"""The servers that were left running (`--detach`): one small file each, so that `kvadvise stop` finds and ends them.

A pid alone names nothing after a while; with the start time and the boot it names one process. The supervisor removes
the file when the engine ends; a file whose processes are gone is removed by whoever reads it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from advisor.errors import EngineUnavailable
from launch.process import GRACE_S
from launch.process_tree import PROC, Process, boot_id, end_all, is_same, read_process, session_members
from launch.running_server import RunningServer
from launch.user_dirs import state_dir, write_whole

_POLL_S = 0.05
_REPORT_S = 15.0  # for the supervisor to see the last process go


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A server that runs on its own. `*_ticks`: start times since boot; `drain_s`: what requests may finish in."""

    url: str
    port: int
    model: str
    pid: int
    pid_ticks: int
    supervisor_pid: int
    supervisor_ticks: int
    boot: str
    log_path: str
    started_unix_s: float
    drain_s: float = 0.0

    @property
    def is_running(self) -> bool:
        """Whether what watches the engine, or one of its processes, is still there."""
        return self.boot == boot_id() and (is_same(self.supervisor_pid, self.supervisor_ticks) or bool(self.session()))

    def session(self) -> list[Process]:
        """The engine's processes that are alive and did not leave its session."""
        return session_members(self.pid, not_before=self.pid_ticks) if self.boot == boot_id() else []


class StopOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a stop from outside went. `left`: (pid, name) of what did not end."""

    seconds: float
    was_killed: bool
    left: tuple[tuple[int, str], ...] = ()


def leave_running(server: RunningServer, env: Mapping[str, str]) -> ServerRecord:
    """Write a server down and let it live on without this process.

    Raises EngineUnavailable where it has ended, or cannot be written down; it is then still this process's.
    """
    engine, supervisor = read_process(server.pid), read_process(server.process.supervisor_pid)
    if engine is None or supervisor is None:
        what = "the engine has ended" if Path(PROC, "self").exists() else "this system does not list its processes"
        raise EngineUnavailable(what, hint=f"stay in the foreground; the engine's log is {server.log_path}")
    record = ServerRecord(
        url=server.url,
        port=server.command.port,
        model=server.command.served_model_name,
        pid=engine.pid,
        pid_ticks=engine.start_ticks,
        supervisor_pid=supervisor.pid,
        supervisor_ticks=supervisor.start_ticks,
        boot=boot_id(),
        log_path=str(server.log_path),
        started_unix_s=time.time(),
        drain_s=server.command.drain_s,
    )
    path = _path(record.port, env)
    try:
        write_whole(path, msgspec.json.encode(record))
    except OSError as error:
        raise EngineUnavailable(
            f"the server cannot be written down in {path}: {error.strerror}", hint="stay in the foreground"
        ) from None
    server.process.detach(path)
    return record


def running_servers(env: Mapping[str, str]) -> list[ServerRecord]:
    """The servers that were left running and still do, by port; what is stale is removed."""
    found = []
    for path in sorted(_folder(env).glob("*.json")):
        record = _read(path)
        if record is not None and record.is_running:
            found.append(record)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    return sorted(found, key=lambda record: record.port)


def stop_server(record: ServerRecord, env: Mapping[str, str], *, grace_s: float | None = None) -> StopOutcome:
    """End a server that was left running, and what it started; nothing else, whatever has its pid by now."""
    began = time.monotonic()
    grace_s = record.drain_s + (GRACE_S if grace_s is None else grace_s)
    was_killed = False
    if record.is_running:
        _tell_to_end(record)
        if not _wait_until_gone(record, grace_s):
            was_killed, _ = end_all(record.session, _REPORT_S)
            _wait_until_gone(record, _REPORT_S)
    left = record.session()
    with contextlib.suppress(OSError):
        _path(record.port, env).unlink()
    return StopOutcome(
        seconds=time.monotonic() - began, was_killed=was_killed, left=tuple((p.pid, p.name) for p in left)
    )


def _tell_to_end(record: ServerRecord) -> None:
    """SIGTERM to the supervisor, or without one to the engine's first process, or what is left of its session."""
    if is_same(record.supervisor_pid, record.supervisor_ticks):
        pids = [record.supervisor_pid]
    elif is_same(record.pid, record.pid_ticks):
        pids = [record.pid]
    else:
        pids = [process.pid for process in record.session()]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _wait_until_gone(record: ServerRecord, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while record.is_running:
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _folder(env: Mapping[str, str]) -> Path:
    return state_dir(env) / "servers"


def _path(port: int, env: Mapping[str, str]) -> Path:
    return _folder(env) / f"{port}.json"


def _read(path: Path) -> ServerRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=ServerRecord)
    except (OSError, msgspec.DecodeError):
        return None
