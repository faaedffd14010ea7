"""Commands for a real engine from a mapping of its arguments, and what of a start is still there afterwards."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.units import MIB
from launch.diagnosis_types import Diagnosis
from launch.engine_command import EngineCommand, engine_command
from launch.engine_entry import EngineEntry
from launch.process_tree import all_processes
from launch.start_progress import Wait
from tests.launch.engines import eventually, free_port, is_bound, marked

MARK = "LAUNCH_TEST_MARK"
WAIT = Wait(stall_s=300.0)
FLAGS: dict[str, Any] = {
    "served_model_name": "tiny",
    "enforce_eager": True,
    "kv_cache_memory_bytes": 32 * MIB,
    "max_model_len": 512,
    "max_num_seqs": 4,
}
ENGINE_ENV = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_CI_ENV": "1", "DO_NOT_TRACK": "1"}


def words(flags: Mapping[str, Any]) -> list[str]:
    """A mapping of arguments as a command line; None leaves one out."""
    said: list[str] = []
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        said += [] if value is None else [flag] if value is True else [flag, str(value)]
    return said


def command(
    entry: EngineEntry, model: object, flags: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None
) -> EngineCommand:
    """Serves a model with FLAGS and these; a mark in its environment tells its processes from all others."""
    asked = {**FLAGS, **(flags or {})}
    port = asked.pop("port", None)
    return engine_command(
        entry,
        ("vllm", "serve", str(model), *words(asked)),
        host="127.0.0.1",
        port=port or free_port(),
        drain_s=20,
        env=ENGINE_ENV | dict(env or {}) | {MARK: os.urandom(8).hex()},
    )


def changed(
    flags: Mapping[str, Any], env: Mapping[str, str], found: list[Diagnosis]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Arguments and environment after what the errors among the findings say to change; None takes one away."""
    new_flags, new_env = dict(flags), dict[str, str | None](env)
    for finding in found:
        if finding.severity == "error":
            new_flags |= finding.change or {}
            new_env |= finding.environment or {}
    return new_flags, {name: value for name, value in new_env.items() if value is not None}


def spoken(log: Path) -> set[int]:
    """The processes that have said something in a log. A worker's title hides its environment, and so its mark."""
    return {int(pid) for pid in re.findall(r"\b(?:EngineCore|Worker)\w* pid=(\d+)", log.read_text(errors="replace"))}


def left_of(wanted: EngineCommand, log: Path | None = None) -> set[int]:
    """Its processes that are alive, whoever their parents are."""
    ranks = {p.pid for p in all_processes() if p.is_alive} & spoken(log) if log is not None else set()
    return ranks | set(marked(wanted.env[MARK], MARK))


def assert_nothing_is_left(wanted: EngineCommand, log: Path) -> None:
    """No process of it, and nobody on its port."""
    assert eventually(lambda: left_of(wanted, log) == set(), 60.0)
    assert not is_bound(wanted.port)
