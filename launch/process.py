"""The engine's processes, seen from kvadvise: started under a supervisor, asked to end, known to have ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

import launch
from advisor.errors import EngineUnavailable, InvalidInput
from launch.process_tree import PROC, Process, descendants, end_all, read_process, session_members

GRACE_S = 40.0  # from SIGTERM to SIGKILL without requests in flight; a real engine takes some 7 s
_AFTER_KILL_S = 20.0  # for the supervisor to see the last process go and say so
_STARTING_S = 30.0
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from launch.supervisor import main; main()"


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine ended. One of `code` and `signal` is given; both are None where nobody saw it.

    `was_killed`: SIGKILL was needed for it or for a process it left. `left`: (pid, name) of what could not be ended.
    """

    code: int | None = None
    signal: int | None = None
    was_killed: bool = False
    left: tuple[tuple[int, str], ...] = ()

    def __str__(self) -> str:
        if self.signal is not None:
            return f"killed by {signal_name(self.signal)}"
        return f"exit code {self.code}" if self.code is not None else "ended unseen"


class LogLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large a part of the log grows and how many older parts are kept, besides the first."""

    part_bytes: int = 64 << 20
    keep: int = 3


class EngineProcess:
    """A started engine. `pid` is its first process and also its session and process group; its own part of the log
    begins at byte `log_begin`.
    """

    def __init__(
        self, supervisor: subprocess.Popen[bytes], log_path: Path, log_begin: int, temp_dirs: Sequence[Path]
    ) -> None:
        self.log_path = log_path
        self.log_begin = log_begin
        self.exit: Exit | None = None
        self.pid = 0
        self.start_ticks = 0
        self._supervisor = supervisor
        self._temp_dirs = temp_dirs
        self._status = b""

    @property
    def supervisor_pid(self) -> int:
        """The process that ends the engine when this one is gone; `kvadvise stop` sends it SIGTERM."""
        return self._supervisor.pid

    def poll(self) -> Exit | None:
        """The exit once the last of its processes is gone, None before."""
        self._listen(0.0)
        return self.exit

    def wait(self, timeout_s: float) -> Exit | None:
        """As `poll`, waiting up to `timeout_s` for it."""
        deadline = time.monotonic() + timeout_s
        while self.exit is None and (left_s := deadline - time.monotonic()) > 0:
            self._listen(left_s)
        return self.exit

    def stop(self, grace_s: float = GRACE_S) -> Exit:
        """SIGTERM, up to `grace_s` for it to end, then SIGKILL to what it started; returns when all is gone."""
        self._command(f"stop {grace_s}")
        return self.wait(grace_s + _AFTER_KILL_S) or self._end_by_hand()

    def kill(self) -> Exit:
        """SIGKILL to all of it at once."""
        self._command("kill")
        return self.wait(_AFTER_KILL_S) or self._end_by_hand()

    def detach(self, remove_at_end: Path | None = None) -> None:
        """Let the engine live on without this process; the supervisor removes the file when the engine ends."""
        self._command(f"detach {remove_at_end or ''}".rstrip())
        self._close()
        self._supervisor.returncode = 0  # it is nobody's child from here on

    def members(self) -> list[Process]:
        """The engine's living processes."""
        found = {p.pid: p for p in descendants(self._supervisor.pid)}
        found |= {p.pid: p for p in session_members(self.pid, not_before=self.start_ticks)}
        return list(found.values())

    def _command(self, text: str) -> None:
        pipe = self._supervisor.stdin
        if pipe is not None:
            with contextlib.suppress(OSError, ValueError):
                pipe.write(text.encode() + b"\n")
                pipe.flush()

    def _listen(self, timeout_s: float) -> None:
        """Read what the supervisor says for up to `timeout_s`; its end without a word means that it was killed."""
        pipe = self._supervisor.stdout
        if self.exit is not None or pipe is None or pipe.closed:
            return
        poll = select.poll()  # unlike select, for any number of open files
        poll.register(pipe, select.POLLIN | select.POLLHUP)
        if not poll.poll(max(0.0, timeout_s) * 1000):
            return
        data = os.read(pipe.fileno(), 1 << 16)
        if not data:
            self._end_by_hand()
            return
        *lines, self._status = (self._status + data).split(b"\n")
        for line in lines:
            self._take(msgspec.json.decode(line, type=_Event))

    def _take(self, event: _Event) -> None:
        if event.event == "started":
            self.pid = event.pid
            process = read_process(event.pid)
            self.start_ticks = process.start_ticks if process is not None else 0
        elif event.event == "not-started":
            self.exit = Exit()
            self._close()
            raise _cannot_start(event)
        else:
            self.exit = Exit(code=event.code, signal=event.signal, was_killed=event.killed, left=tuple(event.left))
            self._close()

    def _end_by_hand(self) -> Exit:
        """Without a supervisor: SIGKILL the session that was started, from here."""
        with contextlib.suppress(ProcessLookupError):
            self._supervisor.kill()
        was_killed, left = end_all(self._session, _AFTER_KILL_S)
        if self.pid and not Path(PROC, "self").exists():  # no list of processes: the group it is
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        for folder in self._temp_dirs:
            shutil.rmtree(folder, ignore_errors=True)
        self.exit = Exit(was_killed=was_killed, left=tuple((p.pid, p.name) for p in left))
        self._close()
        return self.exit

    def _session(self) -> list[Process]:
        return session_members(self.pid, not_before=self.start_ticks) if self.pid else []

    def _close(self) -> None:
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self.exit is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._supervisor.wait(_AFTER_KILL_S)


class _Event(msgspec.Struct, frozen=True):
    event: str
    pid: int = 0
    code: int | None = None
    signal: int | None = None
    killed: bool = False
    left: list[tuple[int, str]] = []
    errno: int | None = None
    error: str = ""


def start_process(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    log_path: Path,
    grace_s: float = GRACE_S,
    temp_dirs: Sequence[Path] = (),
    limits: LogLimits | None = None,
) -> EngineProcess:
    """Start a command under a supervisor; what it prints goes to `log_path`, `temp_dirs` are removed at the end.

    Raises InvalidInput where the log cannot be written, EngineUnavailable where the command cannot be run.
    """
    limits = limits or LogLimits()
    log_begin = _make_log(log_path)
    options = {
        "log": str(log_path),
        "log_bytes": limits.part_bytes,
        "log_keep": limits.keep,
        "grace_s": grace_s,
        "temp_dirs": [str(folder) for folder in temp_dirs],
    }
    root = str(Path(launch.__file__).parent.parent)
    with log_path.open("ab") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, root, json.dumps(options), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(env),
            start_new_session=True,
        )
    process = EngineProcess(supervisor, log_path, log_begin, temp_dirs)
    deadline = time.monotonic() + _STARTING_S
    while not process.pid and process.exit is None and time.monotonic() < deadline:
        process._listen(deadline - time.monotonic())
    if not process.pid:
        process._end_by_hand()
        raise EngineUnavailable("the engine's supervisor did not start", hint=f"its messages are in {log_path}")
    return process


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _make_log(path: Path) -> int:
    """Make the file, or find it, and say how long it is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
        return path.stat().st_size
    except OSError as error:
        raise InvalidInput(
            f"the log {path} cannot be written: {error.strerror}", hint="name another file with --log"
        ) from None


def _cannot_start(event: _Event) -> EngineUnavailable:
    return EngineUnavailable(
        f"the engine cannot be run: {event.error}", hint="name a vllm command or a python that has vLLM with --engine"
    )
