"""verify and gate against a real vLLM: a pass, a pool too small, a rate too high, an engine that dies or freezes.

What the engine holds at each of its steps is written down by a stat-logger plug-in of the test's own, and the report's
peak is held against it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvadvise.demo_model import demo_model
from kvadvise.pipeline import plan
from launch.engine_command import engine_command
from launch.engine_entry import find_engine
from launch.process_tree import all_processes
from launch.running_server import RunningServer
from launch.server import start
from launch.start_progress import Wait
from tests.launch.engines import free_port

ROOT = Path(__file__).resolve().parents[2]
ENV = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
WAIT = Wait(stall_s=300.0)
PLUGIN = '''
import json, os, time
from vllm.v1.metrics.loggers import StatLoggerBase

class KvSteps(StatLoggerBase):
    """A line for each step of the engine: when, share of the KV cache in use, requests running."""

    def __init__(self, vllm_config, engine_index=0):
        self.file = open(os.environ["KV_STEPS"], "a", buffering=1)

    def record(self, scheduler_stats, iteration_stats, mm_cache_stats=None, engine_idx=0):
        if scheduler_stats is not None:
            s = scheduler_stats
            self.file.write(json.dumps([time.perf_counter(), s.kv_cache_usage, s.num_running_reqs]) + "\\n")

    def log_engine_initialized(self):
        pass
'''


@pytest.fixture(scope="module")
def demo_workload(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's model and its workload file."""
    return demo_model(str(engine_python), tmp_path_factory.mktemp("demo"), os.environ | ENV).workload


@pytest.fixture(scope="module")
def step_log(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment in which an engine loads the plug-in and writes to the file that KV_STEPS names."""
    place = tmp_path_factory.mktemp("plugin")
    (place / "kv_steps.py").write_text(PLUGIN)
    info = place / "kv_steps-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kv-steps\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[vllm.stat_logger_plugins]\nkv_steps = kv_steps:KvSteps\n")
    return {"PYTHONPATH": str(place), "KV_STEPS": str(place / "steps.jsonl")}


@contextmanager
def serving(workload: Path, engine_python: Path, env: dict[str, str], **flags: Any) -> Iterator[RunningServer]:
    """A real server as planned, but for these flags."""
    argv = list(plan(workload).argv)
    for name, value in flags.items():
        argv[argv.index("--" + name.replace("_", "-")) + 1] = str(value)
    entry = find_engine(str(engine_python), os.environ)
    command = engine_command(entry, argv, host="127.0.0.1", port=free_port(), drain_s=5, env=ENV | env)
    with start(command, wait=WAIT) as server:
        yield server


@pytest.fixture(scope="module")
def server(demo_workload: Path, engine_python: Path, step_log: dict[str, str]) -> Iterator[RunningServer]:
    with serving(demo_workload, engine_python, step_log) as running:
        yield running


Verify = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def verify(demo_workload: Path, tmp_path: Path) -> Verify:
    """kvadvise verify as a process: its exit code and its report."""

    def run(server: RunningServer, *more: str, during: Callable[[], None] | None = None) -> tuple[int, dict[str, Any]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "kvadvise", "verify", "--profile", str(demo_workload), "--url", server.url,
             "--log", str(server.log_path), "--out", str(tmp_path / "out"), *more],
            env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if during is not None:
            during()
        said, _ = process.communicate(timeout=500)
        assert "Traceback" not in said
        return process.returncode, json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))

    return run


def check(report: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in report["checks"] if one["id"] == name)
    return found


def engine_core(server: RunningServer) -> int:
    """The process that computes; the API server is another one."""
    mine = {process.pid for process in server.process.members()}
    return next(p.pid for p in all_processes() if p.pid in mine and "EngineCor" in p.name)


def test_a_server_as_planned_passes_and_its_peak_is_the_engines(
    server: RunningServer, verify: Verify, step_log: dict[str, str]
) -> None:
    code, report = verify(server)
    assert (code, report["verdict"]) == (0, "pass"), report["summary"]
    assert check(report, "counters_agree")["status"] == "pass"
    assert report["kv"]["num_blocks"] == report["plan"]["num_blocks"]
    lines = Path(step_log["KV_STEPS"]).read_text(encoding="utf-8").splitlines()
    steps = [(at, usage) for at, usage, _ in map(json.loads, lines)]
    true_at, true_peak = max(steps, key=lambda step: step[1])
    near = [usage for at, usage in steps if abs(at - true_at) <= 1.0]
    usable = report["kv"]["num_blocks"] - 1
    apart = round(true_peak * usable) - report["kv"]["peak_blocks"]
    assert 0 <= apart <= round((true_peak - min(near)) * usable), "within what one second changes"
    assert report["kv"]["peak_blocks"] > 0
    assert report["kv"]["after_drain_usage"] == 0


def test_ten_times_the_rate_does_not_drain(server: RunningServer, verify: Verify) -> None:
    rate = ("--set", "workload.requests_per_s=40", "--phases", "warm_up,tail")
    code, report = verify(server, *rate)
    assert code == 1, report["summary"]
    assert check(report, "queue_drains")["status"] == "fail"
    assert report["verdict"] == "fail"


def test_an_engine_that_stands_still_is_hung(server: RunningServer, verify: Verify) -> None:
    core = engine_core(server)

    def freeze() -> None:
        time.sleep(9)
        os.kill(core, signal.SIGSTOP)

    try:
        code, report = verify(server, "--hang-after", "8", "--phases", "warm_up,peak", during=freeze)
    finally:
        os.kill(core, signal.SIGCONT)
    assert code == 1, report["summary"]
    assert check(report, "engine_alive")["status"] == "fail"
    assert "hang" in report["summary"]
    assert report["run"]["ended"] == "hung"


def test_an_interrupt_leaves_a_report(server: RunningServer, demo_workload: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kvadvise", "verify", "--profile", str(demo_workload), "--url", server.url,
         "--out", str(tmp_path / "out")],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    time.sleep(12)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["verdict"] == "inconclusive"
    assert report["requests"]["sent"] > 0


def test_an_engine_that_is_killed_is_gone(server: RunningServer, verify: Verify) -> None:
    """The last of this server."""
    core = engine_core(server)

    def kill() -> None:
        time.sleep(9)
        os.kill(core, signal.SIGKILL)

    code, report = verify(server, during=kill)
    assert code == 1, report["summary"]
    assert report["verdict"] == "fail"
    assert check(report, "engine_alive")["status"] == "fail"


def test_a_pool_below_need_preempts(
    demo_workload: Path, engine_python: Path, verify: Verify, step_log: dict[str, str]
) -> None:
    """16 requests of p95 length need 64 blocks of 128 tokens; this pool has half of them."""
    with serving(demo_workload, engine_python, step_log, kv_cache_memory_bytes=32 * 128 * 2048) as small:
        code, report = verify(small)
    assert code == 1, report["summary"]
    assert report["verdict"] == "fail"
    assert check(report, "preemptions")["status"] == "fail"
    assert report["server"]["preemptions"] > 0
    assert check(report, "blocks_as_planned")["status"] == "fail"


def test_a_server_that_is_started_anew_is_no_pass(
    demo_workload: Path, engine_python: Path, verify: Verify, step_log: dict[str, str]
) -> None:
    """It is gone for as long as a start takes, which is a failure of its own: what came back is another process."""
    with serving(demo_workload, engine_python, step_log) as first:

        def stop() -> None:
            time.sleep(8)
            first.stop()

        code, report = verify(first, during=stop)
        assert code == 1, report["summary"]
        assert check(report, "engine_alive")["status"] == "fail"
        with start(first.command, wait=WAIT) as again:
            code, report = verify(again, "--phases", "warm_up,peak")
            assert code == 0, report["summary"]


def test_gate_is_one_command(demo_workload: Path, engine_python: Path, tmp_path: Path) -> None:
    arguments = ["gate", "--profile", str(demo_workload), "--engine", str(engine_python), "--port", str(free_port())]
    done = subprocess.run(
        [sys.executable, "-m", "kvadvise", *arguments, "--out", str(tmp_path / "out"), "--json"],
        env=os.environ | ENV | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path)}, capture_output=True,
        text=True, timeout=500, check=False,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert done.returncode == 0, report["summary"]
    assert report["verdict"] == "pass"
    assert check(report, "no_oom")["status"] == "pass"
    assert "equal" in done.stderr
    assert "the engine is stopped" in done.stderr
    assert report["plan"]["num_blocks"] == report["kv"]["num_blocks"]


def test_gate_names_what_keeps_the_engine_from_starting(
    demo_workload: Path, engine_python: Path, tmp_path: Path
) -> None:
    (Path(demo_workload).parent / "broken").mkdir()
    arguments = ["gate", "--profile", str(demo_workload), "--engine", str(engine_python), "--port", str(free_port())]
    broken = ["--set", f"model.path={_without_weights(demo_workload)}", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "kvadvise", *arguments, *broken], capture_output=True, text=True, timeout=500,
        env=os.environ | ENV | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path)}, check=False,
    )  # fmt: skip
    assert done.returncode == 69, done.stdout + done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert report["verdict"] == "fail"
    assert check(report, "engine_alive")["status"] == "fail"
    assert report["diagnosis"]["code"]
    assert report["diagnosis"]["remedy"]


def _without_weights(workload: Path) -> Path:
    """The demo's model with its weights cut in the middle."""
    model, broken = workload.parent / "model", workload.parent / "broken"
    for path in model.iterdir():
        data = path.read_bytes()
        (broken / path.name).write_bytes(data[: len(data) // 2] if path.suffix == ".safetensors" else data)
    return broken
