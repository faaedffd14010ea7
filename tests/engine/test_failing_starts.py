"""Real starts that fail, each named by its code; where a setting cures it, the diagnosis's own change is applied as it
stands, without a person, and the engine then answers. Elsewhere the right action is named and nothing is tried again.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from advisor.units import MIB
from launch.bring_up import PreflightFailed, bring_up
from launch.diagnosis_types import Context, Diagnosis
from launch.engine_command import EngineCommand
from launch.engine_entry import EngineEntry, find_engine
from launch.explain import explain
from launch.preflight import needs_of
from launch.process import Exit
from launch.server import StartFailed, StartFailure, start
from launch.start_progress import StartProgress, Wait
from tests.engine.starts import FLAGS, WAIT, assert_nothing_is_left, changed, command, left_of, spoken

MOST_CHANGES = 3


@pytest.fixture(scope="module")
def entry(engine_python: Path) -> EngineEntry:
    return find_engine(str(engine_python), os.environ)


@pytest.fixture
def log(own_place: Path) -> Path:
    return own_place / "state" / "log"


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def failed(
    wanted: EngineCommand, log: Path, flags: Mapping[str, Any], wait: Wait = WAIT, **more: Any
) -> tuple[StartFailure, list[Diagnosis]]:
    """A start that fails without the checks before it, once, leaving nothing: what is known of it, and its causes."""
    log.unlink(missing_ok=True)
    with pytest.raises(StartFailed) as caught:
        start(wanted, wait=wait, log_path=log, **more)
    failure = caught.value.failure
    assert left_of(wanted, log) == set()
    assert log.read_text(errors="replace").count("[kvadvise] the engine ended") == 1
    return failure, explain(failure, Context(flags={**FLAGS, **flags}, version="0.32.0"))


def cure(
    entry: EngineEntry, model: object, log: Path, flags: Mapping[str, Any], found: list[Diagnosis]
) -> tuple[dict[str, Any], list[str]]:
    """Start with the changes that each diagnosis says until the engine has answered: (all changes, the codes met).

    A start is ready only once it has completed a token.
    """
    asked, env, codes = dict(flags), dict[str, str](), list[str]()
    while len(codes) < MOST_CHANGES:
        codes.append(found[0].code)
        now, now_env = changed(asked, env, found)
        assert (now, now_env) != (asked, env), f"no change is proposed: {found[0]}"
        asked, env = now, now_env
        wanted = command(entry, model, asked, env)
        log.unlink(missing_ok=True)
        failure = tried(wanted, log)
        assert_nothing_is_left(wanted, log)
        if failure is None:
            return asked, codes
        found = explain(failure, Context(flags={**FLAGS, **asked}, version="0.32.0"))
    pytest.fail(f"{codes}, and now {found[0]}")


def tried(wanted: EngineCommand, log: Path) -> StartFailure | None:
    """A start and, where it becomes ready, its stop; else why it failed."""
    try:
        with start(wanted, wait=WAIT, log_path=log):
            return None
    except StartFailed as error:
        return error.failure


def stopped_by_the_checks(wanted: EngineCommand) -> set[str]:
    """The errors that the checks before a start find; nothing is started."""
    with pytest.raises(PreflightFailed) as caught:
        bring_up(wanted, needs_of(wanted), wait=WAIT)
    assert left_of(wanted) == set()
    return {f.code for f in caught.value.preflight.findings if f.severity == "error"}


@pytest.mark.parametrize(
    ("flags", "codes", "exit_code", "is_now"),
    [
        pytest.param(
            {"kv_cache_memory_bytes": 2 * MIB, "max_model_len": 2048},
            ["kv-pool-too-small"],
            1,
            {"max_model_len": 896},
            id="pool-too-small",
        ),
        pytest.param(
            {"max_model_len": 5000}, ["max-model-len-beyond-model"], 1, {"max_model_len": 4096}, id="beyond-the-model"
        ),
        pytest.param(
            {"swap_space": 4, "max_num_sqs": 3},
            ["argument-removed"],
            2,
            {"swap_space": None, "max_num_sqs": None},
            id="unknown-flags",
        ),
        pytest.param(
            {"tensor_parallel_size": 3},
            ["tp-heads", "cpu-numa-nodes"],
            1,
            {"tensor_parallel_size": 1},
            id="tp-does-not-divide",
        ),
    ],
)
def test_what_an_argument_cures_is_cured(
    flags: dict[str, Any],
    codes: list[str],
    exit_code: int,
    is_now: dict[str, Any],
    entry: EngineEntry,
    tiny_model: Path,
    log: Path,
) -> None:
    failure, found = failed(command(entry, tiny_model, flags), log, flags)
    assert (failure.kind, failure.exit.code) == ("exited", exit_code)
    assert found[0].code == codes[0]
    assert not any(finding.retry for finding in found)
    asked, met = cure(entry, tiny_model, log, flags, found)
    assert met == codes[: len(met)]  # two ranks do start where the machine has two memory nodes
    assert {name: asked[name] for name in is_now} == is_now or met != codes


def test_a_port_in_use(entry: EngineEntry, tiny_model: Path, log: Path, taken_port: int) -> None:
    flags = {"port": taken_port}
    wanted = command(entry, tiny_model, flags)
    assert stopped_by_the_checks(wanted) == {"port-in-use"}
    with pytest.raises(StartFailed) as caught:
        start(wanted, wait=WAIT, log_path=log)
    assert caught.value.failure.exit == Exit(code=1)
    found = explain(caught.value.failure)
    assert (found[0].code, found[0].retry) == ("port-in-use", False)
    asked, met = cure(entry, tiny_model, log, flags, found)
    assert asked["port"] > taken_port
    assert met == ["port-in-use"]


def test_killed_while_loading(entry: EngineEntry, tiny_model: Path, log: Path) -> None:
    """SIGKILL to the engine's core, as the kernel does it where memory runs out; half the pool then loads."""
    killed: list[int] = []

    def kill(_: StartProgress) -> None:
        if not killed and "Initializing a V1 LLM engine" in log.read_text(errors="replace"):
            killed.extend(spoken(log))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    failure, found = failed(command(entry, tiny_model), log, {}, on_progress=kill)
    assert killed
    assert (failure.kind, failure.exit.code) == ("exited", 1)
    assert found[0].code == "killed-by-host"
    asked, met = cure(entry, tiny_model, log, {}, found)
    assert (asked, met) == ({"kv_cache_memory_bytes": 16 * MIB}, ["killed-by-host"])


def test_not_ready_within_the_launcher_s_own_limit(entry: EngineEntry, tiny_model: Path, log: Path) -> None:
    """vLLM's own timeout cannot be met here: 0.32 waits without end for an engine core beside it that lives."""
    failure, found = failed(command(entry, tiny_model), log, {}, Wait(limit_s=8.0))
    assert failure.kind == "limit"
    assert 8.0 <= failure.elapsed_s < 12.0
    assert (found[0].code, found[0].retry, found[0].change) == ("start-limit", True, None)
    assert "more time" in found[0].remedy


def test_a_missing_model(entry: EngineEntry, own_place: Path, log: Path) -> None:
    wanted = command(entry, own_place / "no-such-model")
    assert stopped_by_the_checks(wanted) == {"model-missing"}
    failure, found = failed(wanted, log, {})
    assert (failure.kind, failure.exit.code) == ("exited", 1)
    assert (found[0].code, found[0].retry, found[0].change) == ("model-missing", False, None)
    assert "check the name" in found[0].remedy


def test_corrupt_weights(entry: EngineEntry, tiny_model: Path, own_place: Path, log: Path) -> None:
    broken = own_place / "state" / "broken"
    shutil.copytree(tiny_model, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    wanted = command(entry, broken)
    assert stopped_by_the_checks(wanted) == {"weights-corrupt"}
    failure, found = failed(wanted, log, {})
    assert (failure.kind, failure.exit.code) == ("exited", 1)
    assert (found[0].code, found[0].retry, found[0].change) == ("weights-corrupt", False, None)
    assert "download" in found[0].remedy


def test_the_checks_stop_an_unknown_flag(entry: EngineEntry, tiny_model: Path, own_place: Path) -> None:
    wanted = command(entry, tiny_model, {"swap_space": 4, "max_num_sqs": 3})
    assert stopped_by_the_checks(wanted) == {"argument-removed", "unknown-argument"}


def test_a_change_is_applied_as_it_is_said() -> None:
    said = Diagnosis(code="a", message="", remedy="", evidence="", change={"x": 2, "y": None}, environment={"E": None})
    aside = msgspec.structs.replace(said, severity="warning", change={"x": 9}, environment={"F": "1"})
    assert changed({"x": 1, "z": 3}, {"E": "1"}, [said, aside]) == ({"x": 2, "y": None, "z": 3}, {})
