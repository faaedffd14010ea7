"""`kvadvise calibrate`: somebody's log becomes costs for the next plan, or one error says what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kvadvise.processes import Shell
from tests.launch.logs import DIRECTORY

WORK = """model: Qwen/Qwen3-30B-A3B
gpu: H100 SXM 80GB
workload: {prompt_tokens: {p95: 4000}, output_tokens: {p95: 500}, concurrency: 32}
policy: {kv_cache_quantization: never}
engine: {vllm_version: "0.29.0", max_num_seqs: 1024, max_num_batched_tokens: 8192}
"""
LOG = str(DIRECTORY / "healthy-0.29.0.log")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made.env |= {"XDG_DATA_HOME": str(tmp_path / "data")}
    made.write("w.yaml", WORK)
    return made


def kept_files(shell: Shell) -> list[Path]:
    return sorted((shell.folder / "data").rglob("*.json"))


def test_a_log_feeds_the_next_plan(shell: Shell) -> None:
    before = json.loads(shell.run("plan", "w.yaml", "--json").stdout)
    done = shell.run("calibrate", "--log", LOG, "--gpu", "H100 80GB")
    assert done.returncode == 0, done.stderr
    [path] = kept_files(shell)
    assert done.stdout.startswith(f"kept in {path}\n")
    assert "activations                         2.11 GiB" in done.stdout
    assert path.name == before["measured"]["file"]
    after = json.loads(shell.run("plan", "w.yaml", "--json").stdout)
    assert after["memory"]["activation_bytes"]["basis"] == "measured"
    assert after["measured"]["starts"] == 1
    assert any("healthy-0.29.0.log" in line for line in after["assumptions"])


def test_the_same_log_is_not_counted_twice(shell: Shell) -> None:
    shell.run("calibrate", "--log", LOG, "--gpu", "H100 80GB")
    [path] = kept_files(shell)
    first = path.read_bytes()
    again = shell.run("calibrate", "--log", LOG, "--gpu", "H100 80GB")
    assert (again.returncode, path.read_bytes()) == (0, first)
    assert "known already" in again.stdout


def test_a_dry_run_keeps_nothing(shell: Shell) -> None:
    done = shell.run("calibrate", "--log", LOG, "--gpu", "H100 80GB", "--dry-run", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["schema"], answer["kept"]) == (0, "kvadvise.calibrate/1", False)
    assert answer["read"]["key"]["max_num_seqs"] == 1024
    assert kept_files(shell) == []
    page = shell.run("calibrate", "--log", LOG, "--gpu", "H100 80GB", "--dry-run").stdout
    assert page.startswith("would be kept in ")


def test_a_profile_says_what_the_log_does_not(shell: Shell) -> None:
    done = shell.run("calibrate", "--log", "-", "--profile", "w.yaml", "--json", stdin=Path(LOG).read_bytes())
    answer = json.loads(done.stdout)
    assert answer["kept"] is True
    assert answer["read"]["key"]["gpu"] == "H100 SXM 80GB"
    assert answer["read"]["sources"][0].startswith("stdin, sha256 ")
    assert kept_files(shell) == [Path(answer["file"])]


def test_a_broken_file_in_its_place_is_said_and_replaced(shell: Shell) -> None:
    shell.run("calibrate", "--log", LOG, "--gpu", "H100 80GB")
    [path] = kept_files(shell)
    good = json.loads(path.read_bytes())
    path.write_bytes(b"{")
    again = shell.run("calibrate", "--log", LOG, "--gpu", "H100 80GB")
    assert "is no measurement" in again.stderr
    assert json.loads(path.read_bytes())["activation"] == good["activation"]


@pytest.mark.parametrize(
    ("log", "options", "says"),
    [
        ("healthy-0.29.0", (), "does not say which GPU it was"),
        (
            "healthy-0.6-v0-3090", (),
            "which GPU it was, which model it was, tensor_parallel_size, max_num_batched_tokens, max_num_seqs "
            "hint: add --gpu NAME --model ID --pin tensor_parallel_size=...",
        ),
        ("healthy-0.29.0", ("--gpu", "L4"), "a GPU with 79.19 GiB, not 22.03 GiB as a L4 has"),
        ("healthy-0.29.0", ("--gpu", "H100 80GB", "--model", "Qwen/Qwen3-8B"), "the log is of a Qwen3MoeForCausalLM"),
        ("healthy-0.29.0", ("--gpu", "H1000"), "--gpu"),
        ("healthy-0.29.0", ("--gpu", "H100 80GB", "--pin", "max_num_sq=3"), "did you mean max_num_seqs?"),
        ("healthy-0.29.0", ("--gpu", "H100 80GB", "--pin", "x"), "'x' is no argument"),
        ("healthy-0.10.2-hybrid-tp2", ("--gpu", "H100 80GB"), "a GPU with 139.81 GiB, not 79.11 GiB as a H100"),
        ("p02-cpu-37376", ("--gpu", "cpu"), "start that failed (kv-pool-too-small)"),
        ("p20-5090-laptop", ("--gpu", "RTX 5090"), "start that failed (oom-graphs)"),
        ("healthy-0.32.0-cpu", ("--model", "Qwen/Qwen3-8B"), "the log is of a LlamaForCausalLM"),
        ("healthy-0.32.0-cpu", ("--model", "meta-llama/Llama-3.1-8B-Instruct"), "looks at the processes itself"),
    ],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_one_clear_error(
    shell: Shell, log: str, options: tuple[str, ...], says: str
) -> None:
    done = shell.run("calibrate", "--log", str(DIRECTORY / f"{log}.log"), *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in " ".join(done.stderr.split())
    assert kept_files(shell) == []


def test_a_log_of_something_else_is_no_start(shell: Shell) -> None:
    shell.write("other.log", "nginx started\n")
    done = shell.run("calibrate", "--log", "other.log", "--gpu", "L4")
    assert done.returncode == 2
    assert "shows no start of vLLM" in done.stderr
    assert "cannot be read" in shell.run("calibrate", "--log", "nowhere.log", "--gpu", "L4").stderr


def test_a_store_that_cannot_be_written_is_said(shell: Shell) -> None:
    shell.write("data", "a file")
    done = shell.run("calibrate", "--log", LOG, "--gpu", "H100 80GB")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
