"""The commands around a running engine, as far as they need none: diagnose, stop, and what launch refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvadvise.figures import actual_figures, side_by_side
from tests.kvadvise.processes import Shell

LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"
TOO_MUCH = """model: Qwen/Qwen2.5-7B-Instruct
gpu: L4
workload: {prompt_tokens: {p95: 8000}, output_tokens: {p95: 500}, concurrency: 500}
policy: {kv_cache_quantization: never}
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made.env |= {"XDG_STATE_HOME": str(tmp_path / "state")}
    return made


@pytest.mark.parametrize(
    ("log", "code", "finding"),
    [
        ("p02-cpu-37376.log", 1, "kv-pool-too-small"),
        ("cpu-no-weights.log", 1, "weights-missing"),
        ("cpu-unknown-flag.log", 1, "argument-removed"),
        ("healthy-0.32.0.log", 0, None),
        ("healthy-0.8.5.log", 0, None),
    ],
)
def test_diagnose(shell: Shell, log: str, code: int, finding: str | None) -> None:
    page = shell.run("diagnose", "--log", str(LOGS / log))
    data = shell.run("diagnose", "--log", str(LOGS / log), "--json")
    assert (page.returncode, data.returncode) == (code, code)
    found = json.loads(data.stdout)["findings"]
    assert ([f["code"] for f in found if f["severity"] == "error"] or [None])[0] == finding
    assert ("Nothing is wrong" in page.stdout) is (not found)
    for said in found:
        assert said["remedy"] in page.stdout
        assert said["evidence"] in page.stdout


def test_a_log_that_is_none_is_not_a_clean_one(shell: Shell) -> None:
    shell.write("other.log", "nginx started\n" * 10)
    assert shell.run("diagnose", "--log", "other.log").returncode == 75
    assert shell.run("diagnose", "--log", "-", stdin=b"").returncode == 75
    missing = shell.run("diagnose", "--log", "nowhere.log")
    assert missing.returncode == 2
    assert "nowhere.log: cannot be read" in missing.stderr


def test_there_is_nothing_to_stop(shell: Shell) -> None:
    done = shell.run("stop", "--port", "8000")
    assert done.returncode == 2
    assert "no server was left running" in done.stderr


def test_a_plan_that_does_not_fit_is_not_started(shell: Shell) -> None:
    shell.write("w.yaml", TOO_MUCH)
    done = shell.run("launch", "--profile", "w.yaml")
    assert done.returncode == 3
    assert "not started: the outcome is does not fit" in done.stderr
    shell.write("w.yaml", TOO_MUCH.replace("gpu: L4", "gpus: L4"))
    assert shell.run("launch", "--profile", "w.yaml").returncode == 2


def test_what_the_engine_does_not_say_is_unknown() -> None:
    silent = actual_figures([])
    assert set(silent.values()) == {None}
    said = actual_figures((LOGS / "healthy-0.32.0.log").read_text(encoding="utf-8").splitlines())
    assert said["capacity_tokens"]
    lines = side_by_side({"num_blocks": 10, "kv_cache_bytes": 1 << 30}, {"num_blocks": 9, "kv_cache_bytes": None})
    assert lines[1].split() == ["num_blocks", "10", "9", "-10.00%"]
    assert lines[2].split() == ["kv_cache_bytes", "1.00", "GiB", "not", "said"]


SMALL = """model: Qwen/Qwen2.5-7B-Instruct
gpu: L40S
workload: {prompt_tokens: {p95: 3000}, output_tokens: {p95: 500}, concurrency: 8}
"""


def test_a_plan_is_rendered_without_an_engine(shell: Shell) -> None:
    import yaml

    shell.write("w.yaml", SMALL)
    shown = shell.run("launch", "--profile", "w.yaml", "--render", "vllm-config", "--port", "9000", "--host", "::")
    assert shown.returncode == 0
    config = yaml.safe_load(shown.stdout)
    assert (config["model"], config["port"], config["host"]) == ("Qwen/Qwen2.5-7B-Instruct", 9000, "::")
    assert config["max-num-seqs"] == 8
    line = shell.run("launch", "--profile", "w.yaml", "--render", "argv", "--port", "9000").stdout
    assert line.startswith("vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len ")
    assert line.endswith("--port 9000\n")
    assert "VLLM_ARGS=" in shell.run("launch", "--profile", "w.yaml", "--render", "env").stdout
    written = shell.run("launch", "--profile", "w.yaml", "--render", "vllm-config", "--out", "vllm.yaml")
    assert (written.returncode, written.stdout) == (0, "")
    assert yaml.safe_load((shell.folder / "vllm.yaml").read_text(encoding="utf-8"))["max-num-seqs"] == 8


def test_a_port_that_the_plan_pins_is_not_said_twice(shell: Shell) -> None:
    shell.write("w.yaml", SMALL + "engine: {port: 8123}\n")
    line = shell.run("launch", "--profile", "w.yaml", "--render", "argv").stdout
    assert line.count("--port") == 1
    clash = shell.run("launch", "--profile", "w.yaml", "--render", "argv", "--port", "9000")
    assert clash.returncode == 2
    assert "the plan pins port 8123" in clash.stderr


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--render", "compose"), 2, "'vllm-config', 'argv', 'env'"),
        (("--out", "x"), 2, "--out belongs to --render"),
        (("--render", "argv", "--detach"), 2, "--detach does not go with it"),
        (("--render", "argv", "--out", "/proc/none/x"), 2, "/proc/none/x: cannot be written"),
    ],
)
def test_what_cannot_be_rendered_is_a_usage_error(shell: Shell, options: tuple[str, ...], code: int, says: str) -> None:
    shell.write("w.yaml", SMALL)
    done = shell.run("launch", "--profile", "w.yaml", *options)
    assert done.returncode == code
    assert says in " ".join(done.stderr.split())


def test_a_plan_that_does_not_fit_is_not_rendered(shell: Shell) -> None:
    shell.write("w.yaml", TOO_MUCH)
    done = shell.run("launch", "--profile", "w.yaml", "--render", "argv")
    assert (done.returncode, done.stdout) == (3, "")
    assert "not rendered: the outcome is does not fit" in done.stderr
