# ruff: noqa: PTH108, PTH112
"""The small process between kvadvise and the engine: it outlives neither, and leaves nothing of the engine behind.

It starts the engine in a session of its own, writes what the engine prints to the log, and ends it when told to,
when it gets SIGTERM itself, or when the pipe to kvadvise closes, which it does however kvadvise dies. It is a
"child subreaper" (Linux): every process the engine starts stays below it, also one that left the session, so it
ends exactly those and can say which it could not. Standard library only, so that it starts at once and stays small.

Control (stdin), a line each: `stop SECONDS`, `kill`, `detach [FILE]` (live on when the pipe closes; remove FILE at the
end). Status (stdout), a JSON object a line: `started` with pid; `exited` with code, signal, killed, left;
`not-started`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

from launch.log_file import RotatingLog
from launch.process_tree import TRACKER_GRACE_S, Process, descendants, kill_all

ORPHAN_GRACE_S = 10.0  # for the engine to end by itself once kvadvise is gone
_REST_GRACE_S = 3.0  # for its other processes once the first one has ended by itself
_GIVE_UP_S = 10.0  # a process that SIGKILL does not end hangs in the kernel
_TICK_S = 0.05
_CHUNK_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Supervisor:
    """One engine from its start to the last of its processes."""

    def __init__(self, options: dict[str, Any], command: list[str]) -> None:
        self.options = options
        self.command = command
        self.log = RotatingLog(options["log"], max_bytes=options["log_bytes"], keep=options["log_keep"])
        self.grace_s = float(options["grace_s"])
        self.detached = False
        self.remove_at_end: list[str] = list(options["temp_dirs"])
        self.was_killed = False
        self._engine: subprocess.Popen[bytes] | None = None
        self._output = -1
        self._control = 0
        self._commands = b""
        self._exit: int | None = None
        self._kill_at: float | None = None
        self._ended_at = 0.0
        self._rest_killed_at: float | None = None
        self._left: list[Process] = []
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def run(self) -> None:
        """Start, watch, end, report."""
        self._listen_to_signals()
        libc = _libc()
        if libc is not None:
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if self._start(libc):
            while not self._is_over():
                self._wait()
                self._reap()
            self._pump()
            self._report_exit()
        self._clean_up()

    def _listen_to_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._stop(self.grace_s))
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def _start(self, libc: Any) -> bool:
        def in_child() -> None:  # the engine ends in order should this process be killed
            if libc is not None:
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)

        try:
            self._engine = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=in_child,  # noqa: PLW1509  this process has one thread
            )
        except OSError as error:
            self._tell({"event": "not-started", "errno": error.errno, "error": error.strerror or str(error)})
            return False
        if self._engine.stdout is not None:
            self._output = self._engine.stdout.fileno()
            os.set_blocking(self._output, False)
        self._tell({"event": "started", "pid": self._engine.pid})
        return True

    def _wait(self) -> None:
        """Until something can be read, a signal comes, or the next deadline may have passed."""
        readable = [fd for fd in (self._output, self._control, self._wake_read) if fd >= 0]
        urgent = self._kill_at is not None or self._exit is not None
        with contextlib.suppress(InterruptedError):
            ready, _, _ = select.select(readable, [], [], _TICK_S if urgent else 5.0)
            if self._wake_read in ready:
                _read(self._wake_read)
            if self._output in ready:
                self._pump()
            if self._control in ready:
                self._obey()

    def _pump(self) -> None:
        """Move what the engine has printed to the log; never more than a while, so that control is heard too."""
        for _ in range(64):
            data = _read(self._output) if self._output >= 0 else None
            if not data:
                if data == b"":
                    self._output = -1
                return
            self.log.write(data)

    def _obey(self) -> None:
        data = _read(self._control)
        if data is None:
            return
        if data == b"":
            self._control = -1
            if not self.detached:
                self._stop(min(self.grace_s, ORPHAN_GRACE_S))
            return
        *lines, self._commands = (self._commands + data).split(b"\n")
        for line in lines:
            self._do(line.decode(errors="replace").split(" ", 1))

    def _do(self, words: list[str]) -> None:
        argument = words[1] if len(words) > 1 else ""
        if words[0] == "stop":
            self._stop(float(argument or self.grace_s))
        elif words[0] == "kill":
            self._kill_at = time.monotonic()
        elif words[0] == "detach":
            self.detached = True
            self.remove_at_end += [argument] if argument else []

    def _stop(self, grace_s: float) -> None:
        """SIGTERM to the engine's first process, which ends the others; the earlier of two deadlines holds."""
        deadline = time.monotonic() + grace_s
        was_asked = self._kill_at is not None
        self._kill_at = deadline if self._kill_at is None else min(self._kill_at, deadline)
        if self._engine is not None and self._exit is None and not was_asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._engine.pid, signal.SIGTERM)

    def _reap(self) -> None:
        """Take the exit of the engine and of every process that came to this one as its parent died."""
        while self._engine is not None:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._engine.pid:
                self._exit = os.waitstatus_to_exitcode(status)
                self._engine.returncode = self._exit
                self._ended_at = time.monotonic()

    def _is_over(self) -> bool:
        """Whether nothing of the engine is left, or nothing can be done about it; ends what is due."""
        now = time.monotonic()
        if self._exit is None:
            if self._kill_at is not None and now >= self._kill_at:
                self._kill_all()
            return False
        self._left = descendants(os.getpid())
        if not self._left:
            return True
        if self._rest_killed_at is None:
            due = self._ended_at + (0.0 if self.was_killed else _REST_GRACE_S)
            if now < min(due, self._kill_at if self._kill_at is not None else due):
                return False
            self._rest_killed_at = now
        self._kill_all(trackers=now >= self._rest_killed_at + TRACKER_GRACE_S)
        return now >= self._rest_killed_at + _GIVE_UP_S

    def _kill_all(self, *, trackers: bool = False) -> None:
        """SIGKILL everything below this process."""
        if self._engine is not None and self._exit is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._engine.pid, signal.SIGKILL)
                self.was_killed = True
        self.was_killed |= kill_all(descendants(os.getpid()), trackers=trackers)

    def _report_exit(self) -> None:
        code = self._exit if self._exit is not None and self._exit >= 0 else None
        number = -self._exit if self._exit is not None and self._exit < 0 else None
        how = f"signal {number}" if number is not None else f"exit code {code}"
        self.log.write(f"[kvadvise] the engine ended: {how}\n".encode())
        left = [[process.pid, process.name] for process in self._left]
        self._tell({"event": "exited", "code": code, "signal": number, "killed": self.was_killed, "left": left})

    def _clean_up(self) -> None:
        self.log.close()
        if self._engine is not None and not os.path.isdir("/proc/self"):  # no list of processes: the group it is
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._engine.pid, signal.SIGKILL)
        for path in self.remove_at_end:
            if os.path.isdir(path):
                import shutil

                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _tell(self, event: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            os.write(1, json.dumps(event).encode() + b"\n")


def _read(fd: int) -> bytes | None:
    """What there is, b"" at the end, None where there is nothing yet."""
    try:
        return os.read(fd, _CHUNK_BYTES)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""


def _libc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        return ctypes.CDLL(None)
    except (ImportError, OSError):
        return None


def main() -> None:
    """`python -c "from launch.supervisor import main; main()" OPTIONS_JSON COMMAND...`; see EngineProcess."""
    os.set_blocking(0, False)
    Supervisor(json.loads(sys.argv[1]), sys.argv[2:]).run()
