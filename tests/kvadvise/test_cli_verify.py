"""verify as a process of its own against a fake server: exit codes, streams, files, and what an interrupt leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as Xml
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.kvadvise.processes import Shell
from tests.verify.fake_vllm import serving

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "profiles" / "schema" / "verdict-1.schema.json"
FILES = {
    "report.json", "junit.xml", "summary.md", "gate.prom", "report.html", "requests.jsonl.gz", "timeline.jsonl.gz",
    "run.json",
}  # fmt: skip
WORKLOAD = f"""
model: {{id: fake, path: {ROOT / "tests" / "data" / "tiny-llama"}}}
gpu: cpu
workload:
  prompt_tokens: {{p50: 60, p95: 120, max: 160}}
  output_tokens: {{p50: 10, p95: 20, max: 24}}
  concurrency: 4
engine: {{kv_cache_memory_bytes: 33554432, vllm_version: "0.32.0", max_model_len: 512}}
"""
FAKE: dict[str, Any] = {"max_model_len": 512, "num_blocks": 256, "block_size": 128, "step_s": 0.003}
SHORT = ("--phases", "warm_up,peak,over_limit")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made.write("w.yaml", WORKLOAD)
    return made


def test_a_pass_is_exit_code_0_and_all_its_files(shell: Shell, tmp_path: Path) -> None:
    with serving(**FAKE) as fake:
        done = shell.run(
            "verify", "--profile", "w.yaml", "--url", f"{fake.url}/v1/", "--served-model", "fake", "--json", *SHORT
        )
    verdict = json.loads(done.stdout)
    assert done.returncode == 0, verdict["summary"]
    assert verdict["verdict"] == "pass"
    jsonschema.validate(verdict, json.loads(SCHEMA.read_text(encoding="utf-8")))
    out = tmp_path / "kvadvise-report"
    assert {path.name for path in out.iterdir()} == FILES
    assert json.loads((out / "report.json").read_text(encoding="utf-8")) == verdict
    assert Xml.parse(out / "junit.xml").getroot() is not None  # noqa: S314 (our own)
    assert "peak" in done.stderr
    again = shell.run("judge", str(out))
    assert again.returncode == 0, again.stderr


def test_a_failed_check_is_exit_code_1(shell: Shell) -> None:
    with serving(**FAKE | {"faults": {"silent_preemptions": 0.0}}) as fake:
        done = shell.run("verify", "--profile", "w.yaml", "--url", fake.url, "--served-model", "fake", *SHORT)
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL: preemptions")


@pytest.mark.parametrize(("third", "code"), [("75", 75), ("fail", 1), ("pass", 0)])
def test_what_could_not_be_told_is_a_state_of_its_own(shell: Shell, third: str, code: int) -> None:
    with serving(**FAKE | {"faults": {"metrics_missing": 0.0}}) as fake:
        done = shell.run(
            "verify",
            "--profile",
            "w.yaml",
            "--url",
            fake.url,
            "--served-model",
            "fake",
            "--inconclusive",
            third,
            *SHORT,
        )
    assert done.returncode == code
    assert done.stdout.startswith("INCONCLUSIVE")


def test_nobody_there_is_exit_code_69_with_a_report(shell: Shell, tmp_path: Path) -> None:
    old = tmp_path / "out"
    old.mkdir()
    (old / "report.json").write_text('{"verdict": "pass"}')
    done = shell.run("verify", "--profile", "w.yaml", "--url", "http://127.0.0.1:9", "--out", "out")
    assert done.returncode == 69
    assert json.loads((old / "report.json").read_text(encoding="utf-8"))["verdict"] == "fail"
    assert "does not answer" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--url", "localhost:8000"), "no address"),
        (("--url", "http://127.0.0.1:9", "--phases", "peek"), "there is no phase 'peek'"),
        (("--url", "http://127.0.0.1:9", "--out", "w.yaml"), "cannot be written to"),
        (("--url", "http://127.0.0.1:9", "--set", "workload.concurrency=no"), "concurrency"),
        (("--url", "https://127.0.0.1:9", "--ca-file", "none.pem"), "none.pem"),
        (("--url", "http://127.0.0.1:9", "--log", "none.log"), "none.log"),
    ],
)
def test_what_is_wrong_with_the_call_is_exit_code_2(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    done = shell.run("verify", "--profile", "w.yaml", *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dry_run_asks_nobody(shell: Shell, tmp_path: Path) -> None:
    done = shell.run("verify", "--profile", "w.yaml", "--url", "http://127.0.0.1:9", "--dry-run", "--minutes", "3")
    assert done.returncode == 0
    assert "peak" in done.stdout
    assert "requests" in done.stdout
    assert not (tmp_path / "kvadvise-report").exists()


@pytest.mark.parametrize("after_s", [0.05, 0.4, 1.5, 3.5, 5.0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_whole_reports(
    shell: Shell, tmp_path: Path, after_s: float, number: signal.Signals
) -> None:
    """At any moment: before the first question, while connecting, in the baseline, under load."""
    with serving(**FAKE | {"step_s": 0.05}) as fake:
        process = subprocess.Popen(
            [sys.executable, "-m", "kvadvise", "verify", "--profile", "w.yaml", "--url", fake.url,
             "--served-model", "fake"],
            cwd=tmp_path, env=os.environ | shell.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        out = tmp_path / "kvadvise-report"
        deadline = time.monotonic() + 20
        while not out.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(after_s)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert {path.name for path in out.iterdir()} == FILES
    verdict = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert verdict["verdict"] == "inconclusive"
    assert "interrupted" in verdict["summary"]
