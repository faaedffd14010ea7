"""`kvadvise judge` as a process: a stored run is judged again, under the same thresholds or others."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from advisor.workload_yaml import read_workload
from tests.kvadvise.processes import Shell
from tests.verify.runs import healthy, set_metric
from verify.judge.thresholds import thresholds_of
from verify.judge.verdict import judge
from verify.record.types import Run
from verify.reports.writer import write_reports

WORKLOAD = """\
model: some/model
gpu: cpu
workload:
  prompt_tokens: {p50: 400, p95: 1000}
  output_tokens: {p95: 200}
  concurrency: 8
  requests_per_s: 2
slo: {ttft_p95_s: 1}
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def stored(place: Path, run: Run, text: str = WORKLOAD) -> None:
    limits = thresholds_of(read_workload(text, "w.yaml"))
    write_reports(place, run, judge(run, limits))


@pytest.mark.parametrize(
    ("run", "verdict", "code"),
    [
        (healthy(), "pass", 0),
        (healthy(ended="engine_lost", ending_text="the engine's process ended"), "fail", 1),
        (healthy(metric=set_metric(kv_usage=None)), "inconclusive", 75),
    ],
    ids=["pass", "fail", "inconclusive"],
)
def test_the_exit_code_is_the_verdict(shell: Shell, tmp_path: Path, run: Run, verdict: str, code: int) -> None:
    stored(tmp_path / "out", run)
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    done = shell.run("judge", str(tmp_path / "out"), "--json")
    assert (done.returncode, done.stderr) == (code, "")
    document = json.loads(done.stdout)
    assert (document["schema"], document["verdict"]) == ("kvadvise.verdict/1", verdict)
    assert done.stdout.encode() == before["report.json"]
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == before


def test_people_get_lines(shell: Shell, tmp_path: Path) -> None:
    stored(tmp_path / "out", healthy())
    done = shell.run("judge", str(tmp_path / "out"))
    assert done.returncode == 0
    assert done.stdout.startswith("PASS: every check holds")


def test_other_thresholds_change_the_verdict_and_the_reports(shell: Shell, tmp_path: Path) -> None:
    stored(tmp_path / "out", healthy())
    (tmp_path / "strict.yaml").write_text(WORKLOAD.replace("ttft_p95_s: 1", "ttft_p95_s: 0.1"))
    done = shell.run("judge", str(tmp_path / "out"), "--workload", "strict.yaml", "--out", "again", "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    failed = [check["id"] for check in document["checks"] if check["status"] == "fail"]
    assert failed == ["ttft_p95_s"]
    assert json.loads((tmp_path / "again" / "report.json").read_text()) == document
    assert shell.run("judge", str(tmp_path / "again")).returncode == 1


@pytest.mark.parametrize("change", ["concurrency: 9", "concurrency: 8\n  shared_prefix_tokens: 16"])
def test_another_load_is_refused(shell: Shell, tmp_path: Path, change: str) -> None:
    stored(tmp_path / "out", healthy())
    (tmp_path / "other.yaml").write_text(WORKLOAD.replace("concurrency: 8", change))
    done = shell.run("judge", str(tmp_path / "out"), "--workload", "other.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is another load than the run" in done.stderr
    assert "other.yaml" in done.stderr


@pytest.mark.parametrize("name", ["run.json", "requests.jsonl.gz", "timeline.jsonl.gz", "report.json"])
@pytest.mark.parametrize("content", [None, b"{}", b"\xff"], ids=["missing", "empty", "garbage"])
def test_a_damaged_directory_is_one_clear_error(shell: Shell, tmp_path: Path, name: str, content: bytes | None) -> None:
    stored(tmp_path / "out", healthy())
    path = tmp_path / "out" / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    done = shell.run("judge", str(tmp_path / "out"))
    assert (done.returncode, done.stdout) == (2, "")
    assert name in done.stderr
    assert "Traceback" not in done.stderr


def test_no_directory(shell: Shell) -> None:
    done = shell.run("judge", "nowhere")
    assert done.returncode == 2
    assert "nowhere" in done.stderr


def test_an_interrupted_run_is_inconclusive(shell: Shell, tmp_path: Path) -> None:
    run = msgspec.structs.replace(healthy(), ended="interrupted", ending_text="interrupted by SIGINT")
    stored(tmp_path / "out", run)
    done = shell.run("judge", str(tmp_path / "out"))
    assert done.returncode == 75
    assert "run_complete: the run was interrupted" in done.stdout
