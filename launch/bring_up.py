"""A start as a whole: one at a time per GPU, checked first, then waited for. What the command line calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from advisor.errors import EngineUnavailable
from advisor.plan_types import Finding
from launch.engine_command import EngineCommand
from launch.gpu_choice import GpuChoice
from launch.gpu_state import used_bytes
from launch.preflight import Needs, Preflight, Surroundings, choose, preflight, real_surroundings
from launch.running_server import RunningServer
from launch.server import default_log_path, start
from launch.start_lock import CPU, is_held, start_lock
from launch.start_progress import StartProgress, Wait

_TRIES = 5


class PreflightFailed(EngineUnavailable):
    """Something stands against a start; nothing was started. `preflight` has every finding."""

    def __init__(self, seen: Preflight) -> None:
        errors = [finding for finding in seen.findings if finding.severity == "error"]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(f"{errors[0].message}{more}", hint=errors[0].remedy)
        self.preflight = seen


def bring_up(
    command: EngineCommand,
    needs: Needs,
    *,
    wait: Wait | None = None,
    on_progress: Callable[[StartProgress], None] | None = None,
    on_findings: Callable[[tuple[Finding, ...]], None] | None = None,
    on_wait: Callable[[str], None] | None = None,
    log_path: Path | None = None,
    env: Mapping[str, str] | None = None,
    around: Surroundings | None = None,
) -> RunningServer:
    """Choose GPUs, hold their start lock until the server is ready, check, start.

    `on_wait` is told of another start that is waited for, `on_findings` every finding before the start. Raises
    PreflightFailed where an error stands against it, and what `start` raises.
    """
    base = os.environ if env is None else env
    around = around or real_surroundings(base)
    log_path = log_path or default_log_path(base, command.port)
    for attempt in range(_TRIES):
        choice = _choose(command, needs, around, base)
        with start_lock(choice.uuids or (CPU,), base, on_wait=on_wait):
            seen = preflight(command, needs, around, choice, log_path=log_path)
            has_moved = choose(needs, around, command).uuids != choice.uuids
            if has_moved and _is_about_gpus(seen) and attempt < _TRIES - 1:
                continue  # memory has moved while this start waited for its turn
            if on_findings is not None:
                on_findings(seen.findings)
            if not seen.is_clear:
                raise PreflightFailed(seen)
            return _start(command, seen, around, wait, on_progress, log_path, base)
    raise EngineUnavailable("the GPUs with free memory change faster than a start can begin", hint="try again")


def _choose(command: EngineCommand, needs: Needs, around: Surroundings, env: Mapping[str, str]) -> GpuChoice:
    """Where nobody starts just now, if there are enough such GPUs."""
    busy = [gpu.uuid for gpu in ([] if needs.is_cpu else around.read_gpus()) if is_held(gpu.uuid, env)]
    return choose(needs, around, command, avoid=busy)


def _is_about_gpus(seen: Preflight) -> bool:
    errors = {finding.code for finding in seen.findings if finding.severity == "error"}
    return bool(errors) and errors <= {"utilization-over-free", "engine-on-gpu"}


def _start(
    command: EngineCommand,
    seen: Preflight,
    around: Surroundings,
    wait: Wait | None,
    on_progress: Callable[[StartProgress], None] | None,
    log_path: Path,
    env: Mapping[str, str],
) -> RunningServer:
    chosen = msgspec.structs.replace(command, env=command.env | seen.choice.env)
    read = used_bytes(around.read_gpus, seen.choice.uuids)
    before = read() if seen.choice.gpus else {}
    server = start(chosen, wait=wait, on_progress=on_progress, log_path=log_path, env=env)
    if before:
        server.gpu_used_bytes, server.gpu_used_before = read, before
    return server
