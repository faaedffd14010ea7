"""From a command to a server that has answered a token, or one error that says what happened instead."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from advisor.errors import EngineUnavailable, InvalidInput
from launch.engine_command import EngineCommand, environment_of
from launch.log_file import LogTail, read_whole
from launch.ports import listener_pids
from launch.process import GRACE_S, EngineProcess, Exit, start_process
from launch.progress import Phase
from launch.readiness import Probe, Readiness
from launch.running_server import RunningServer
from launch.start_progress import Movement, StartProgress, Wait
from launch.user_dirs import state_dir

LOADING_GRACE_S = 15.0  # while loading there is no request to finish
_READY_TIMEOUT = "VLLM_ENGINE_READY_TIMEOUT_S"
_KEPT_LOGS = 30
_UNLIMITED_S = 7 * 86_400
_SLOW_PROBE_S = 1.0
_LONGEST_SOCKET_DIR = 60  # a Unix socket's path has 107 bytes, and vLLM adds a UUID

Failed = Literal["exited", "stalled", "limit", "refused"]


class StartFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a start ended without a server. `exit` is the engine's own, or what stopping it gave; `code` what the
    launcher saw: `engine-ended`, `start-limit`, `start-stalled`, `wrong-server`, `api-key`, `no-completions`.
    """

    kind: Failed
    code: str
    text: str
    exit: Exit
    phase: Phase
    elapsed_s: float
    log_path: Path
    log_begin: int = 0
    host: str = ""
    port: int | None = None

    def lines(self) -> list[str]:
        """This start's own log, from its first part to its end."""
        return read_whole(str(self.log_path), begin=self.log_begin)


class StartFailed(EngineUnavailable):
    """The engine did not become a server. `failure` holds what is known; the engine is gone."""

    def __init__(self, failure: StartFailure) -> None:
        super().__init__(failure.text, hint=f"the engine's log is {failure.log_path}")
        self.failure = failure


def start(
    command: EngineCommand,
    *,
    wait: Wait | None = None,
    on_progress: Callable[[StartProgress], None] | None = None,
    log_path: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> RunningServer:
    """Start an engine and wait until it is ready. Whatever ends this early, an interrupt included, ends the engine too.

    Raises StartFailed where it ends, stands still or serves something else; InvalidInput for a container engine or a
    log that cannot be written; EngineUnavailable where the command cannot be run.
    """
    if command.entry.kind == "docker":
        raise InvalidInput(
            "a container is not started from here: it would outlive its client",
            hint="--dry-run prints the command, --render compose writes a file",
        )
    wait = wait or Wait()
    base = os.environ if env is None else env
    log_path = log_path or default_log_path(base, command.port)
    environment, own = _with_private_directories(_with_ready_timeout(environment_of(command, base), wait))
    try:
        process = start_process(
            command.argv, environment, log_path=log_path, grace_s=command.drain_s + GRACE_S, temp_dirs=own
        )
    except BaseException:
        for folder in own:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    began = time.monotonic()
    try:
        readiness = _Start(process, command, wait, on_progress, base.get("VLLM_API_KEY")).wait_until_ready()
    except BaseException:
        if process.poll() is None:
            process.stop(LOADING_GRACE_S)
        raise
    return RunningServer(
        command=command,
        process=process,
        log_path=log_path,
        seconds=time.monotonic() - began,
        max_model_len=readiness.max_model_len,
    )


def default_log_path(env: Mapping[str, str], port: int) -> Path:
    """A log of its own for each start, in the user's state directory; the newest of earlier starts are kept."""
    folder = state_dir(env) / "logs"
    logs = [path for path in folder.glob("*.log") if path.is_file()]
    for old in sorted(logs, key=lambda path: path.stat().st_mtime)[: -(_KEPT_LOGS - 1)]:
        for part in folder.glob(f"{old.name}*"):
            part.unlink(missing_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    return folder / f"{stamp}-{port}-{os.getpid()}.log"


class _Start:
    """One start, looked at again and again until it is decided."""

    def __init__(
        self,
        process: EngineProcess,
        command: EngineCommand,
        wait: Wait,
        on_progress: Callable[[StartProgress], None] | None,
        api_key: str | None,
    ) -> None:
        self.process = process
        self.command = command
        self.wait = wait
        self.on_progress = on_progress
        self.movement = Movement(time.monotonic, process.members)
        self.tail = LogTail(str(process.log_path), begin=process.log_begin)
        self.probe = Probe(command, api_key)
        self.readiness = Readiness(state="silent", text="the server to listen")
        self._asked = 0.0
        self._is_ours = False

    def wait_until_ready(self) -> Readiness:
        """Returns once ready; raises StartFailed, the engine ended, once it is clear that it will not be."""
        try:
            while True:
                gone = self.process.poll()
                self.movement.feed(self.tail.lines() if gone is None else self.tail.last())
                if gone is not None:
                    raise self._failed(
                        "exited", "engine-ended", f"the engine ended while {self._where()}: {gone}", gone
                    )
                self.movement.look()
                self._ask()
                self._show()
                if self.readiness.state == "ready":
                    return self.readiness
                self._give_up_if_due()
                self.process.wait(self.wait.poll_s)
        finally:
            self.tail.close()
            self.probe.close()

    def _ask(self) -> None:
        """Before the log says that the server starts, a look now and then is enough."""
        is_near = self.movement.progress.phase >= Phase.STARTING_SERVER
        if not is_near and time.monotonic() - self._asked < _SLOW_PROBE_S:
            return
        self._asked = time.monotonic()
        before = self.readiness.state
        self.readiness = self.probe.ask()
        if self.readiness.state != before:
            self.movement.note()
        if self.readiness.state in ("listed", "ready", "refused") and not self._is_ours:
            self._check_owner()
        if self.readiness.state == "refused":
            raise self._failed("refused", self.readiness.code, self.readiness.text)

    def _check_owner(self) -> None:
        """The answer must be this engine's: another server on the port may well have the same model."""
        listening = listener_pids(self.command.port)
        if listening and not listening & {process.pid for process in self.process.members()}:
            text = f"port {self.command.port} is answered by another server (pid {min(listening)})"
            raise self._failed("refused", "wrong-server", text)
        self._is_ours = True

    def _give_up_if_due(self) -> None:
        moved = self.movement
        if self.wait.limit_s is not None and moved.elapsed_s > self.wait.limit_s:
            raise self._failed(
                "limit", "start-limit", f"not ready after {moved.elapsed_s:.0f} s, while {self._where()}"
            )
        if moved.still_s > self.wait.stall_s:
            raise self._failed(
                "stalled", "start-stalled", f"nothing has moved for {moved.still_s:.0f} s while {self._where()}"
            )

    def _where(self) -> str:
        if self.readiness.state == "silent":
            return self.movement.progress.text
        return f"waiting for {self.readiness.text}"

    def _show(self) -> None:
        if self.on_progress is not None:
            self.on_progress(self.movement.shown(self.readiness.text))

    def _failed(self, kind: Failed, code: str, text: str, gone: Exit | None = None) -> StartFailed:
        elapsed_s = self.movement.elapsed_s
        return StartFailed(
            StartFailure(
                kind=kind,
                code=code,
                text=text,
                exit=gone if gone is not None else self.process.stop(LOADING_GRACE_S),
                phase=self.movement.progress.phase,
                elapsed_s=elapsed_s,
                log_path=self.process.log_path,
                log_begin=self.process.log_begin,
                host=self.command.host,
                port=self.command.port,
            )
        )


def _with_ready_timeout(env: Mapping[str, str], wait: Wait) -> dict[str, str]:
    """vLLM gives up on its own after 600 s, however well it loads (v1/engine/utils.py): never before this launcher."""
    ours = _UNLIMITED_S if wait.limit_s is None else round(wait.limit_s + wait.stall_s) + 60
    stated = env.get(_READY_TIMEOUT, "")
    theirs = int(stated) if stated.isdecimal() else 0
    return dict(env) | {_READY_TIMEOUT: str(max(ours, theirs))}


def _with_private_directories(env: Mapping[str, str]) -> tuple[dict[str, str], tuple[Path, ...]]:
    """A directory for the engine's temporary files and one for its sockets, since it removes neither when it is killed
    (0.32 leaves its rendezvous file, too); the supervisor removes both. Caches that are meant to stay keep their place.
    """
    usual = env.get("TMPDIR") or tempfile.gettempdir()
    own = Path(tempfile.mkdtemp(prefix="kvadvise-", dir=usual))
    folders = [own]
    if len(str(own)) > _LONGEST_SOCKET_DIR:
        folders.append(Path(tempfile.mkdtemp(prefix="kvadvise-", dir="/tmp")))
    engine = dict(env)  # what is added comes last: setproctitle loses its way where the first variable is changed
    engine.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(usual) / f"torchinductor_{_user()}"))
    return engine | {"TMPDIR": str(own), "VLLM_RPC_BASE_PATH": str(folders[-1])}, tuple(folders)


def _user() -> str:
    """As torch names its cache (torch/_inductor/runtime/cache_dir_utils.py)."""
    try:
        return re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    except (KeyError, OSError):  # a container's user without a name
        return f"uid_{os.getuid()}"
