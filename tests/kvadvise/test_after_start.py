"""A server just become ready: planned beside actual, arguments that differ, and what its start cost, kept or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from advisor.plan_types import Plan
from kvadvise.after_start import Started, keep_cost, look_at
from kvadvise.figures import planned_bands, side_by_side
from kvadvise.launch_report import LaunchReport
from kvadvise.pipeline import plan
from launch.progress import Progress
from launch.running_server import RunningServer
from launch.server import start
from launch.start_progress import StartProgress
from tests.launch.engines import QUICK, command
from tests.launch.logs import DIRECTORY

GIB = 1024**3
WORK: dict[str, Any] = {
    "model": "Qwen/Qwen3-14B",
    "gpu": {"name": "H100 80GB"},
    "workload": {"prompt_tokens": {"p95": 4000}, "output_tokens": {"p95": 500}, "concurrency": 32},
    "engine": {
        "vllm_version": "0.16.0", "max_num_seqs": 1024, "max_num_batched_tokens": 8192, "max_model_len": 8192,
        "gpu_memory_utilization": 0.95,
    },
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("own_directories", "store")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data" / "kvadvise" / "measured"


@pytest.fixture
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


PROFILE = (
    "(EngineCore_DP0 pid=271) DEBUG 09-15 10:12:54 [gpu_worker.py:3] Memory profiling takes 5.00 seconds. Total non KV "
    "cache memory: 33.41GiB; torch peak memory increase: 5.64GiB; non-torch forward increase memory: 0.25GiB; weights "
    "memory: 27.52GiB."
)


@pytest.fixture
def debug_log(tmp_path: Path) -> Path:
    """A healthy start that prints its profile too."""
    recorded = tmp_path / "recorded.log"
    text = (DIRECTORY / "healthy-0.16.0.log").read_text(encoding="utf-8")
    recorded.write_text(f"{text}{PROFILE}\n", encoding="utf-8")
    return recorded


@contextmanager
def serving(recorded: Path, tmp_path: Path) -> Iterator[RunningServer]:
    """A stand-in that prints a recorded start."""
    with start(command({"log": recorded}), wait=QUICK, log_path=tmp_path / "engine.log") as server:
        yield server


def looked_at(made: Plan, recorded: Path, tmp_path: Path) -> Started:
    with serving(recorded, tmp_path) as server:
        return look_at(server, made)


def test_every_component_is_compared_and_kept_for_the_next_plan(tmp_path: Path, store: Path, debug_log: Path) -> None:
    before = plan(WORK)
    started = looked_at(before, debug_log, tmp_path)
    assert started.figures["weights_bytes"] == round(27.52 * GIB)
    assert started.figures["num_blocks"] == 100  # /metrics
    assert started.figures["activation_bytes"] == round(5.64 * GIB)
    assert started.figures["non_torch_bytes"] == round(0.25 * GIB)
    assert started.figures["cuda_graph_bytes"]
    assert started.findings == ()
    kept = keep_cost(started)
    assert kept is not None
    assert kept.path.parent == store
    after = plan(WORK)
    assert after.memory is not None
    assert after.memory.activation_bytes.basis == "measured"
    assert after.memory.activation_bytes.value == started.figures["activation_bytes"]


def test_a_start_is_counted_once_and_another_widens(tmp_path: Path, debug_log: Path) -> None:
    made = plan(WORK)
    started = looked_at(made, debug_log, tmp_path)
    keep_cost(started)
    again = keep_cost(started)
    assert again is not None
    assert (again.was_known, again.measurement.starts) == (True, 1)
    assert started.cost is not None
    other = msgspec.structs.replace(started.cost, sources=("another",))
    both = keep_cost(msgspec.structs.replace(started, cost=other))
    assert both is not None
    assert both.measurement.starts == 2


def test_arguments_that_are_not_the_plan_s_are_named(tmp_path: Path) -> None:
    made = msgspec.structs.replace(plan(WORK), flags=plan(WORK).flags | {"max_model_len": 4096, "block_size": 32})
    started = looked_at(made, DIRECTORY / "healthy-0.16.0.log", tmp_path)
    assert {(one.name, one.planned, one.actual) for one in started.differing} == {("max_model_len", 4096, 8192)}


def test_a_start_of_another_release_is_kept_under_its_own_key(tmp_path: Path, capsys: Any) -> None:
    made = plan(WORK | {"engine": WORK["engine"] | {"vllm_version": "0.17.0"}})
    with serving(DIRECTORY / "healthy-0.16.0.log", tmp_path) as server:
        started = look_at(server, made)
        kept = keep_cost(started)
        LaunchReport(made, as_json=False).ready(server, started, kept)
    assert kept is not None
    assert kept.measurement.key.vllm_version == "0.16.0"
    assert "it holds for vllm_version 0.16.0 instead of 0.17.0" in capsys.readouterr().err
    assert plan(WORK | {"engine": WORK["engine"] | {"vllm_version": "0.17.0"}}) == made


def test_what_a_neighbour_disturbed_is_not_kept(tmp_path: Path, debug_log: Path) -> None:
    shaken = (DIRECTORY / "p12-memory-given-back.log").read_text(encoding="utf-8").splitlines()
    said = next(line for line in shaken if "Error in memory profiling" in line)
    debug_log.write_text(f"{debug_log.read_text(encoding='utf-8')}{said}\n", encoding="utf-8")
    started = looked_at(plan(WORK), debug_log, tmp_path)
    assert "neighbour-changed" in {finding.code for finding in started.findings}
    assert started.cost is None
    assert "another process" in started.not_measured
    assert keep_cost(started) is None


def test_a_start_on_another_gpu_is_not_kept_for_this_one(tmp_path: Path, debug_log: Path) -> None:
    made = plan(WORK | {"gpu": {"name": "H200"}})
    text = debug_log.read_text(encoding="utf-8")
    summary = (DIRECTORY / "healthy-0.29.0.log").read_text(encoding="utf-8")
    said = next(line for line in summary.splitlines() if "Actual usage is" in line)
    debug_log.write_text(f"{text}{said}\n", encoding="utf-8")
    started = looked_at(made, debug_log, tmp_path)
    assert started.cost is None
    assert "the log is of a GPU with 79.19 GiB, not 139." in started.not_measured


def test_a_log_that_tells_no_cost_keeps_nothing(tmp_path: Path, store: Path) -> None:
    recorded = tmp_path / "recorded.log"
    recorded.write_text("", encoding="utf-8")
    started = looked_at(plan(WORK), recorded, tmp_path)
    assert started.cost is None
    assert "prints no activation" in started.not_measured
    assert keep_cost(started) is None
    assert not store.exists()


def test_a_store_that_cannot_be_written_is_one_clear_error(tmp_path: Path, store: Path) -> None:
    from advisor.errors import InvalidInput

    started = looked_at(plan(WORK), DIRECTORY / "healthy-0.16.0.log", tmp_path)
    store.parent.mkdir(parents=True)
    store.write_text("a file", encoding="utf-8")
    with pytest.raises(InvalidInput, match="cannot be written"):
        keep_cost(started)


def test_the_json_line_has_every_figure_and_where_it_is_kept(tmp_path: Path, debug_log: Path, capsys: Any) -> None:
    made = plan(WORK)
    with serving(debug_log, tmp_path) as server:
        started = look_at(server, made)
        kept = keep_cost(started)
        report = LaunchReport(made, as_json=True)
        report.ready(server, started, kept)
        report.stopped(server, server.stop(), 3.0)
    ready, stopped = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert kept is not None
    assert (ready["state"], stopped["state"]) == ("ready", "stopped")
    assert ready["measured"] == str(kept.path)
    assert ready["arguments"] == []
    assert ready["planned"].keys() == ready["actual"].keys() == stopped["actual"].keys()
    assert ready["actual"] == stopped["actual"]
    assert ready["actual"]["activation_bytes"] > GIB


def test_the_table_says_whether_a_band_holds_what_was_met() -> None:
    made = plan(WORK)
    assert made.memory is not None
    band = made.memory.activation_bytes
    lines = side_by_side(
        {"activation_bytes": band.value, "num_blocks": 5}, {"activation_bytes": band.high, "num_blocks": 5},
        planned_bands(made),
    )  # fmt: skip
    assert ", within " in lines[1]
    assert lines[2].endswith("equal")
    outside = side_by_side(
        {"activation_bytes": band.value}, {"activation_bytes": 2 * band.high + GIB}, planned_bands(made)
    )
    assert ", outside " in outside[1]


def test_a_wait_is_told_once_every_half_minute(capsys: Any) -> None:
    report = LaunchReport(plan(WORK), as_json=False)
    for second in range(100):
        seen = StartProgress(progress=Progress(), waiting_for="news", elapsed_s=float(second), still_s=float(second))
        report.progress(seen)
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in told] == ["0", "30", "60", "90"]
