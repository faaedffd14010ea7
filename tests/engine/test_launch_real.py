"""A real vLLM started, stopped, killed and left running by launch: five cycles and more that leave nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import httpx
import msgspec
import pytest

from advisor.units import MIB
from launch.bring_up import bring_up
from launch.engine_entry import EngineEntry, find_engine
from launch.engine_flags import check_flags
from launch.preflight import needs_of
from launch.process import Exit
from launch.progress import Phase
from launch.registry import running_servers, stop_server
from launch.running_server import RunningServer
from launch.server import start
from launch.start_progress import StartProgress
from tests.engine.starts import WAIT, assert_nothing_is_left, command
from tests.launch.engines import eventually

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = """
import os, pathlib, sys, time, msgspec
from launch.engine_command import EngineCommand
from launch.registry import leave_running
from launch.server import start
from launch.signals import signals_interrupt
wanted = msgspec.json.decode(pathlib.Path(sys.argv[1]).read_bytes(), type=EngineCommand)
with signals_interrupt():
    server = start(wanted, log_path=pathlib.Path(sys.argv[2]))
    if sys.argv[3] == "detach":
        leave_running(server, os.environ)
    else:
        print("ready", flush=True)
        time.sleep(600)
"""


@pytest.fixture(scope="module")
def entry(engine_python: Path) -> EngineEntry:
    return find_engine(str(engine_python), os.environ)


def complete(server: RunningServer, tokens: int) -> httpx.Response:
    body = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    return httpx.post(f"{server.url}/v1/completions", json=body, timeout=120, trust_env=False)


def test_a_start_is_checked_followed_and_stopped_with_a_drain(
    entry: EngineEntry, tiny_model: Path, own_place: Path
) -> None:
    """The first cycle: what is running when the stop comes is finished."""
    wanted = command(entry, tiny_model)
    shown: list[StartProgress] = []
    with bring_up(
        wanted, needs_of(wanted), wait=WAIT, on_progress=shown.append, log_path=own_place / "state" / "log"
    ) as server:
        assert server.max_model_len == 512
        phases = [p.progress.phase for p in shown]
        assert {Phase.CONFIGURING, Phase.STARTING_SERVER, Phase.READY} <= set(phases)
        names = [process.name for process in server.process.members()]
        assert any(name.startswith("VLLM::") for name in names), names
        answers: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: answers.append(complete(server, 400)))
        asking.start()
        assert eventually(lambda: "Running: 1" in metrics_line(server) or not asking.is_alive(), 30.0)
        stopped = server.stop()
        asking.join()
    assert answers[0].status_code == 200
    assert answers[0].json()["usage"]["completion_tokens"] == 400
    assert stopped.exit == Exit(code=0)
    assert stopped.findings == ()
    assert stopped.released_bytes > 100 * MIB
    assert_nothing_is_left(wanted, own_place / "state" / "log")


def metrics_line(server: RunningServer) -> str:
    """`Running: N` of the server's own metrics."""
    text = httpx.get(f"{server.url}/metrics", timeout=30, trust_env=False).text
    values = [line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith("vllm:num_requests_running{")]
    return f"Running: {float(values[0]):.0f}" if values else ""


@pytest.mark.parametrize("victim", ["server", "engine", "supervisor"])
def test_what_is_killed_leaves_nothing(victim: str, entry: EngineEntry, tiny_model: Path, own_place: Path) -> None:
    """Three cycles more: the server's first process, the engine core behind it, the supervisor above it."""
    wanted = command(entry, tiny_model)
    with start(wanted, wait=WAIT, log_path=own_place / "state" / "log") as server:
        assert complete(server, 3).status_code == 200
        core = next(process.pid for process in server.process.members() if process.name.startswith("VLLM::Engine"))
        victims = {"server": server.pid, "engine": core, "supervisor": server.process.supervisor_pid}
        os.kill(victims[victim], signal.SIGKILL)
        assert server.wait(120.0) is not None
        assert server.stop().findings == ()
    assert_nothing_is_left(wanted, own_place / "state" / "log")


@pytest.mark.parametrize("how", ["detach", "stay"])
def test_without_its_launcher_it_ends_or_lives_as_was_said(
    how: str, entry: EngineEntry, tiny_model: Path, own_place: Path
) -> None:
    """The fifth cycle and one more: a launcher that detaches, and one that is killed."""
    wanted = command(entry, tiny_model)
    (own_place / "state" / "command").write_bytes(msgspec.json.encode(wanted))
    arguments = [str(own_place / "state" / "command"), str(own_place / "state" / "log"), how]
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as launcher:
        if how == "detach":
            assert launcher.wait(300) == 0
            [record] = running_servers(os.environ)
            assert httpx.get(f"{record.url}/health", trust_env=False).status_code == 200
            outcome = stop_server(record, os.environ)
            assert (outcome.was_killed, outcome.left) == (False, ())
            assert running_servers(os.environ) == []
        else:
            assert launcher.stdout is not None
            assert launcher.stdout.readline() == "ready\n"
            launcher.kill()
    assert_nothing_is_left(wanted, own_place / "state" / "log")


def test_the_flags_are_those_of_its_own_parser(entry: EngineEntry, own_place: Path) -> None:
    good = ("--max_model_len=8k", "--no-enable-prefix-caching", "-tp", "2", "-O2", "--kv-cache-dtype", "fp8_e4m3")
    assert check_flags(entry, (*good, "--speculative-config.method", "ngram", "--api-key", "a", "b"), os.environ) == ()
    bad = ("--kv-cache-dtype", "fp7", "--block-size", "many", "--enforce-eager=yes")
    assert [f.code for f in check_flags(entry, bad, os.environ)] == ["kv-dtype-unknown", *["argument-value"] * 2]


def test_the_engine_s_own_timeout_is_not_before_ours(entry: EngineEntry, tiny_model: Path, own_place: Path) -> None:
    env: Mapping[str, str] = os.environ | {"VLLM_ENGINE_READY_TIMEOUT_S": "1"}
    wanted = command(entry, tiny_model)
    with start(wanted, wait=WAIT, log_path=own_place / "state" / "log", env=env) as server:
        assert complete(server, 1).status_code == 200
    assert_nothing_is_left(wanted, own_place / "state" / "log")
