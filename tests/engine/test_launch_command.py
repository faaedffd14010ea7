"""`kvadvise launch` and `stop` as real processes around the real engine."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kvadvise.processes import Shell

WORKLOAD = """model: {{id: tiny, path: {model}}}
gpu: cpu
workload:
  prompt_tokens: {{p95: 200, max: 256}}
  output_tokens: {{p95: 200, max: 256}}
  concurrency: 8
engine: {{kv_cache_memory_bytes: 67108864, enforce_eager: true}}
"""


@pytest.fixture
def shell(tmp_path: Path, engine_python: Path, tiny_model: Path) -> Shell:
    made = Shell(tmp_path)
    made.env |= {
        "KVADVISE_ENGINE": str(engine_python),
        "VLLM_NO_USAGE_STATS": "1",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_RUNTIME_DIR": str(tmp_path),  # the lock of starts: other engines on this machine are not waited for
    }
    made.write("w.yaml", WORKLOAD.format(model=tiny_model))
    return made


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_a_plan_becomes_a_server_with_the_blocks_that_were_planned(shell: Shell) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kvadvise", "launch", "--profile", "w.yaml", "--json", "--port", str(_free_port())],
        cwd=shell.folder,
        env=shell.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert ready["schema"] == "kvadvise.launch/1"
    assert ready["state"] == "ready"
    figures = ("num_blocks", "block_size", "capacity_tokens", "max_concurrency", "max_model_len")
    assert [ready["actual"][name] for name in figures] == [ready["planned"][name] for name in figures]
    assert ready["planned"]["num_blocks"] == 256
    assert (ready["arguments"], ready["findings"]) == ([], [])
    assert [json.loads(line)["state"] for line in rest.splitlines()] == ["stopped"]
    assert process.returncode == 0
    _hold_the_next_plan_to(shell, ready)


def _hold_the_next_plan_to(shell: Shell, ready: dict[str, Any]) -> None:
    """What the start cost is in the store, and the next plan of that key has it, basis `measured`."""
    kept = json.loads(Path(ready["measured"]).read_bytes())
    assert Path(ready["measured"]).is_relative_to(shell.folder / "data" / "kvadvise" / "measured")
    assert kept["key"]["vllm_version"] == "0.32.0"
    held = kept["non_torch"]["value"]
    assert held == ready["actual"]["non_torch_bytes"]
    assert 1 << 30 < held < 3 << 30  # three processes that have imported torch
    again = json.loads(shell.run("plan", "w.yaml", "--json").stdout)
    part = again["memory"]["non_torch_bytes"]
    assert (part["value"], part["basis"]) == (held, "measured")
    assert part["low"] < held < part["high"]
    assert again["measured"] == {"key": kept["key"], "file": Path(ready["measured"]).name, "starts": 1}


def test_a_server_is_left_running_and_stopped_later(shell: Shell) -> None:
    port = str(_free_port())
    left = subprocess.run(
        [sys.executable, "-m", "kvadvise", "launch", "--profile", "w.yaml", "--detach", "--port", port],
        cwd=shell.folder, env=shell.env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert left.returncode == 0, left.stderr
    well = shell.run("diagnose", "--url", f"http://127.0.0.1:{port}", "--interval", "1", "--json")
    seen = json.loads(well.stdout)
    assert (well.returncode, seen["findings"], seen["server"]["version"]) == (0, [], "0.32.0")
    assert {"preemptions", "engine-died", "server-restarted"} <= set(seen["not_seen"])
    stopped = shell.run("stop", "--port", port)
    assert (stopped.returncode, "stopped after" in stopped.stdout) == (0, True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", int(port)))
    assert shell.run("stop").returncode == 2


def test_a_start_that_fails_names_the_flag(shell: Shell) -> None:
    port = _free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        failed = shell.run("launch", "--profile", "w.yaml", "--json", "--host", "127.0.0.1", "--port", str(port))
    assert failed.returncode == 69
    line = json.loads(failed.stdout)
    assert line["state"] == "failed"
    assert line["diagnosis"]["code"] == "port-in-use"
    assert str(port) in line["diagnosis"]["message"]


def test_the_command_is_shown_without_a_start(shell: Shell, tiny_model: Path) -> None:
    shown = shell.run("launch", "--profile", "w.yaml", "--dry-run")
    assert shown.returncode == 0
    assert "vllm.entrypoints.openai.api_server" in shown.stdout
    assert f"--model {tiny_model}" in shown.stdout
    assert "--kv-cache-memory-bytes 67108864" in shown.stdout
