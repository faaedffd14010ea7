"""A server that is ready, until it is stopped: what it is, how it is stopped, and whether it left anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import msgspec

from advisor.plan_types import Finding
from advisor.units import MIB, gib
from launch.engine_command import EngineCommand
from launch.ports import ask_port
from launch.process import GRACE_S, EngineProcess, Exit
from launch.process_tree import proportional_bytes, resident_bytes

_MEMORY_BACK_S = 20.0
_MEMORY_SLACK_BYTES = 512 * MIB
_SOURCE = "looked at after the stop"


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """How a stop went. `released_bytes` is the physical memory its processes held; `findings` name what is left."""

    exit: Exit
    seconds: float
    released_bytes: int
    findings: tuple[Finding, ...] = ()


class RunningServer:
    """A server that has answered a token. As a context manager it is stopped on the way out.

    `gpu_used_bytes` reads the memory in use per GPU that was chosen, and `gpu_used_before` what it read before the
    start; without them a stop says nothing of GPU memory.
    """

    def __init__(
        self,
        *,
        command: EngineCommand,
        process: EngineProcess,
        log_path: Path,
        seconds: float,
        max_model_len: int | None = None,
    ) -> None:
        self.command = command
        self.process = process
        self.log_path = log_path
        self.seconds = seconds
        self.max_model_len = max_model_len
        self.gpu_used_bytes: Callable[[], Mapping[str, int]] | None = None
        self.gpu_used_before: Mapping[str, int] = {}
        self._stopped: Stopped | None = None

    @property
    def url(self) -> str:
        """Where it answers."""
        return self.command.url

    @property
    def pid(self) -> int:
        """The engine's first process, which is its process group and session too."""
        return self.process.pid

    def poll(self) -> Exit | None:
        """The exit where it has ended by itself, None while it runs."""
        return self.process.poll()

    def wait(self, timeout_s: float) -> Exit | None:
        """Up to `timeout_s` for it to end by itself."""
        return self.process.wait(timeout_s)

    def resident_bytes(self) -> int:
        """Physical memory of its processes, pages that they share counted in each."""
        return sum(resident_bytes(process.pid) for process in self.process.members())

    def proportional_bytes(self) -> int | None:
        """Physical memory of its processes, each page counted once; None where one of them cannot be looked at."""
        held = [proportional_bytes(process.pid) for process in self.process.members()]
        return None if not held or None in held else sum(size for size in held if size is not None)

    def stop(self, grace_s: float | None = None) -> Stopped:
        """SIGTERM, its requests' time to finish, `grace_s` more (None: GRACE_S), SIGKILL to what was started; then
        look whether port and memory came back. An interrupt in between kills at once and is raised again.
        """
        if self._stopped is not None:
            return self._stopped
        began = time.monotonic()
        held = self.resident_bytes()
        try:
            ended = self.process.poll() or self.process.stop(
                self.command.drain_s + (GRACE_S if grace_s is None else grace_s)
            )
        except KeyboardInterrupt:
            self.process.kill()
            raise
        self._stopped = Stopped(
            exit=ended,
            seconds=time.monotonic() - began,
            released_bytes=held,
            findings=(*_left_processes(ended), *self._port_left(), *self._memory_left()),
        )
        return self._stopped

    def __enter__(self) -> RunningServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _port_left(self) -> list[Finding]:
        state = ask_port(self.command.host, self.command.port)
        if state.state not in ("listening", "bound"):
            return []
        return [
            _left("port-not-released", f"port {self.command.port} is still held by {state.held_by}", "end that process")
        ]

    def _memory_left(self) -> list[Finding]:
        """Waits a while for the driver to give memory back, then names the GPUs that lack it."""
        if self.gpu_used_bytes is None:
            return []
        deadline = time.monotonic() + _MEMORY_BACK_S
        while True:
            used = self.gpu_used_bytes()
            above = {uuid: used.get(uuid, 0) - before for uuid, before in self.gpu_used_before.items()}
            above = {uuid: extra for uuid, extra in above.items() if extra > _MEMORY_SLACK_BYTES}
            if not above or time.monotonic() >= deadline:
                break
            time.sleep(0.25)
        return [
            _left(
                "gpu-memory-not-released",
                f"GPU {uuid} holds {gib(extra)} more than before the start",
                "see which process holds it: nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
            )
            for uuid, extra in above.items()
        ]


def _left_processes(ended: Exit) -> list[Finding]:
    return [
        _left("process-left", f"process {pid} ({name}) did not end at SIGKILL", f"it hangs in the kernel: ps {pid}")
        for pid, name in ended.left
    ]


def _left(code: str, message: str, remedy: str) -> Finding:
    return Finding(code=code, severity="error", message=message, remedy=remedy, source=_SOURCE)
