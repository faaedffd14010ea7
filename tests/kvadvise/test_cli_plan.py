"""`kvadvise plan` as a process: what it prints where, and what it exits with."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvadvise.profile_store import bundled_dir
from tests.kvadvise.processes import ROOT, Shell

FITS = """model: Qwen/Qwen2.5-7B-Instruct
gpu: H100 80GB
workload:
  prompt_tokens: {p50: 500, p95: 1500, max: 2048}
  output_tokens: {p95: 400, max: 512}
  concurrency: 8
"""
TOO_MANY = FITS.replace("concurrency: 8", "concurrency: 100000")
WRONG = FITS.replace("p95: 1500", "p95: 100").replace("gpu:", "gpus:")
REFUSED = FITS + "engine: {tensor_parallel_size: 3}\n"
UNKNOWN = {"architectures": ["FancyForCausalLM"], "model_type": "fancy", "hidden_size": 64, "num_hidden_layers": 2}

KEYS = {
    *("schema", "kvadvise_version", "inputs_sha256", "outcome", "flags", "argv", "steps", "memory", "kv"),
    *("concurrency", "starts", "findings", "alternatives", "assumptions"),
}
FLAGS = {
    *("max_model_len", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype"),
    *("block_size", "tensor_parallel_size", "pipeline_parallel_size"),
}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    for name, text in {"fits": FITS, "too_many": TOO_MANY, "wrong": WRONG, "refused": REFUSED}.items():
        shell.write(f"{name}.yaml", text)
    shell.write("fancy/config.json", json.dumps(UNKNOWN))
    shell.write("unknown.yaml", FITS.replace("Qwen/Qwen2.5-7B-Instruct", "./fancy"))
    return shell


def plan_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(done.stdout)
    return plan


@pytest.mark.parametrize(
    ("name", "outcome", "code", "starts"),
    [
        ("fits", "fits", 0, {True}),
        ("too_many", "does_not_fit", 3, {True, None}),
        ("wrong", "invalid", 2, {False}),
        ("refused", "invalid", 2, {False}),
        ("unknown", "not_understood", 3, {None}),
    ],
)
def test_outcome_and_exit_code(name: str, outcome: str, code: int, starts: set[bool | None], shell: Shell) -> None:
    done = shell.run("plan", f"{name}.yaml", "--json")
    plan = plan_of(done)
    assert (plan["outcome"], done.returncode) == (outcome, code)
    assert plan["starts"] in starts
    assert plan.keys() >= KEYS
    assert plan["schema"] == "kvadvise.plan/1"
    assert len(plan["inputs_sha256"]) == 64
    errors = [finding for finding in plan["findings"] if finding["severity"] == "error"]
    assert bool(errors) == (code != 0)
    assert all(finding.keys() >= {"code", "severity", "message", "remedy", "source"} for finding in plan["findings"])


def test_a_plan_that_fits_is_complete(shell: Shell) -> None:
    done = shell.run("plan", "fits.yaml", "--json")
    plan = plan_of(done)
    assert done.stderr == ""
    assert plan["flags"].keys() >= FLAGS
    assert plan["argv"][:3] == ["vllm", "serve", "Qwen/Qwen2.5-7B-Instruct"]
    assert [step["parameter"] for step in plan["steps"]][:4] == [
        *("max_model_len", "gpu_memory_utilization", "max_num_seqs", "kv_cache_dtype")
    ]
    assert plan["concurrency"]["promised"] >= plan["concurrency"]["target"] == 8
    assert plan["assumptions"][0].startswith("vLLM 0.32.0")


def test_every_problem_of_a_file_is_told_with_its_line(shell: Shell) -> None:
    done = shell.run("plan", "wrong.yaml", "--json")
    messages = [finding["message"] for finding in plan_of(done)["findings"]]
    assert len(messages) >= 2
    assert any(message.startswith("wrong.yaml:2: gpus") for message in messages)
    assert any(message.startswith("wrong.yaml:4: workload.prompt_tokens") for message in messages)
    assert all(f"error: {message}" in done.stderr for message in messages)


def test_several_files_are_an_array_in_order_and_a_bad_one_stops_nothing(shell: Shell) -> None:
    names = ["fits", "wrong", "too_many", "nowhere", "unknown"]
    done = shell.run("plan", *(f"{name}.yaml" for name in names), "--json")
    plans = json.loads(done.stdout)
    expected = ["fits", "invalid", "does_not_fit", "invalid", "not_understood"]
    assert [plan["outcome"] for plan in plans] == expected
    assert done.returncode == 2
    assert "No such file" in plans[3]["findings"][0]["message"]
    assert shell.run("plan", "fits.yaml", "too_many.yaml", "--json").returncode == 3
    assert shell.run("plan", "fits.yaml", "fits.yaml", "--json").returncode == 0


def test_the_same_input_gives_the_same_bytes(shell: Shell) -> None:
    one = shell.run("plan", "fits.yaml", "--json").stdout
    assert one == shell.run("plan", "fits.yaml", "--json").stdout
    assert one == shell.run("plan", "-", "--json", stdin=FITS.encode()).stdout
    shell.write("elsewhere/other.yaml", FITS)
    assert one == shell.run("plan", "elsewhere/other.yaml", "--json").stdout
    changed = plan_of(shell.run("plan", "-", "--json", stdin=FITS.replace("8\n", "9\n").encode()))
    assert changed["inputs_sha256"] != json.loads(one)["inputs_sha256"]


def test_the_page_has_the_verdict_and_the_command_first(shell: Shell) -> None:
    done = shell.run("plan", "fits.yaml")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("FITS  Qwen/Qwen2.5-7B-Instruct on 1 x H100")
    assert lines[3].strip().startswith("vllm serve Qwen/Qwen2.5-7B-Instruct")
    assert "\x1b" not in done.stdout


def test_several_pages_say_whose_they_are(shell: Shell) -> None:
    done = shell.run("plan", "fits.yaml", "wrong.yaml")
    assert done.returncode == 2
    assert "fits.yaml" in done.stdout
    assert "INVALID" in done.stdout


def test_argv_is_the_json_s(shell: Shell) -> None:
    line = shell.run("plan", "fits.yaml", "--format", "argv").stdout
    assert shlex.split(line) == plan_of(shell.run("plan", "fits.yaml", "--json"))["argv"]


def test_vllm_config_holds_the_flags(shell: Shell) -> None:
    document = yaml.safe_load(shell.run("plan", "fits.yaml", "--format", "vllm-config").stdout)
    flags = plan_of(shell.run("plan", "fits.yaml", "--json"))["flags"]
    assert document.pop("model") == "Qwen/Qwen2.5-7B-Instruct"
    assert {key.replace("-", "_"): value for key, value in document.items()} == {
        key: value for key, value in flags.items() if value is not None
    }


@pytest.mark.parametrize("form", ["argv", "env", "vllm-config"])
@pytest.mark.parametrize(("name", "code"), [("too_many", 3), ("wrong", 2), ("unknown", 3)])
def test_a_form_to_run_is_not_printed_for_what_does_not_fit(form: str, name: str, code: int, shell: Shell) -> None:
    done = shell.run("plan", f"{name}.yaml", "--format", form)
    assert (done.returncode, done.stdout) == (code, "")
    assert f"no {form}: " in done.stderr


def test_markdown(shell: Shell) -> None:
    done = shell.run("plan", "fits.yaml", "--format", "markdown")
    assert done.stdout.startswith("## Fits: Qwen/Qwen2.5-7B-Instruct on 1 x H100")


def test_set_changes_the_question(shell: Shell) -> None:
    done = shell.run("plan", "fits.yaml", "--json", "--set", "workload.concurrency=100000", "--set", "gpu.count=2")
    plan = plan_of(done)
    assert (done.returncode, plan["concurrency"]["target"]) == (3, 100000)
    assert shell.run("plan", "fits.yaml", "--json", "--set", "workload.concurency=1").returncode == 2
    bad = shell.run("plan", "fits.yaml", "--json", "--set", "nonsense")
    assert bad.returncode == 2
    assert "--set" in plan_of(bad)["findings"][0]["message"]


def test_a_plan_in_place_of_a_workload_is_told_apart(shell: Shell) -> None:
    shell.write("plan.json", shell.run("plan", "fits.yaml", "--json").stdout)
    done = shell.run("plan", "plan.json")
    assert done.returncode == 2
    assert "this is a plan, not a workload" in done.stdout


def test_explain(shell: Shell) -> None:
    done = shell.run("plan", "fits.yaml", "--explain", "--max-num-seqs")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("max_num_seqs = ")
    wrong = shell.run("plan", "fits.yaml", "--explain", "max_num_sequences")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "max_num_seqs" in wrong.stderr
    assert shell.run("plan", "wrong.yaml", "--explain", "block_size").stdout.startswith("INVALID")


def test_save_and_plan_again(shell: Shell) -> None:
    first = shell.run("plan", "fits.yaml", "--save", "mine", "--json")
    assert first.returncode == 0
    path = shell.folder / "config" / "kvadvise" / "profiles" / "mine.yaml"
    assert f"saved {path}" in first.stderr
    assert path.read_text().startswith(FITS)
    assert yaml.safe_load(path.read_text())["plan"] == plan_of(first)
    for reference in (("mine",), ("--profile", "mine"), (str(path),)):
        assert shell.run("plan", *reference, "--json").stdout == first.stdout
    again = shell.run("plan", "fits.yaml", "--save", "mine", "--set", "workload.concurrency=9")
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert (
        shell.run("plan", "fits.yaml", "--save", "mine", "--set", "workload.concurrency=9", "--force").returncode == 0
    )
    assert yaml.safe_load(path.read_text())["workload"]["concurrency"] == 9
    assert "fits" in shell.run("profiles", "list").stdout


@pytest.mark.parametrize(("name", "code"), [("too_many", 3), ("wrong", 2), ("nowhere", 2)])
def test_what_does_not_fit_is_not_saved(name: str, code: int, shell: Shell) -> None:
    done = shell.run("plan", f"{name}.yaml", "--save", "mine")
    assert done.returncode == code
    assert "not saved" in done.stderr
    assert not (shell.folder / "config").exists()


def test_a_profile_with_a_relative_model_works_from_anywhere(shell: Shell) -> None:
    config = (ROOT / "tests" / "data" / "tiny-llama" / "config.json").read_bytes()
    shell.write("sub/tiny/config.json", config)
    model = "{path: ./tiny, weights_gib_per_gpu: 0.01}"
    text = FITS.replace("Qwen/Qwen2.5-7B-Instruct", model).replace("max: 2048", "max: 1536")
    shell.write("sub/local.yaml", text)
    done = shell.run("plan", "sub/local.yaml", "--save", "local")
    assert done.returncode == 0, done.stdout + done.stderr
    saved = yaml.safe_load((shell.folder / "config" / "kvadvise" / "profiles" / "local.yaml").read_text())
    assert saved["model"]["path"] == str(shell.folder / "sub" / "tiny")
    assert plan_of(shell.run("plan", "local", "--json")) == saved["plan"]


@pytest.mark.parametrize("path", sorted(bundled_dir().glob("*.yaml")), ids=lambda path: path.stem)
def test_bundled_profiles_are_understood(path: Path, shell: Shell) -> None:
    plan = plan_of(shell.run("plan", path.stem, "--json"))
    assert plan["outcome"] in ("fits", "fits_with_loss", "does_not_fit")
    assert plan["kv"]["bytes_per_block"] > 0


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"\xff\xfe\x00", b"a: [", b"- 1", b"a: &x [*x]", b"x" * (1024**2 + 1), b"[" * 3000, b"{}", b"null"],
    ids=["empty", "nul", "utf16", "open", "list", "alias", "large", "deep", "bare", "null"],
)
def test_any_bytes_on_stdin_are_one_clear_answer(data: bytes, shell: Shell) -> None:
    shell.write("odd.yaml", data)
    done = shell.run("plan", "odd.yaml", "--json")
    assert done.returncode == 2
    assert plan_of(done)["outcome"] == "invalid"
    assert done.stderr.startswith("error: odd.yaml")


@pytest.mark.parametrize("path", sorted(bundled_dir().glob("*.yaml")), ids=lambda path: path.stem)
def test_the_sum_on_the_page_can_be_done_by_hand(path: Path, shell: Shell) -> None:
    plan = plan_of(shell.run("plan", path.stem, "--json"))
    held, pool = plan["concurrency"], plan["kv"]
    free = max(0, pool["num_blocks_low"] - 1 - held["shared_blocks"])
    assert free // held["blocks_per_request"] == held["at_p95"]
    assert int(held["at_p95"] * plan["workload"]["policy"]["headroom"] + 1e-9) == held["promised"]


def test_diff(shell: Shell) -> None:
    shell.write("plan.json", shell.run("plan", "fits.yaml", "--json").stdout)
    shell.run("plan", "fits.yaml", "--save", "mine", "--set", "workload.concurrency=9")
    same = shell.run("diff", "fits.yaml", "plan.json")
    assert (same.returncode, same.stderr) == (0, "")
    assert "The plans are the same." in same.stdout
    done = shell.run("diff", "plan.json", "mine", "--json")
    document = json.loads(done.stdout)
    changes = {row["path"]: (row["before"], row["after"]) for row in document["differences"]}
    assert document["schema"] == "kvadvise.diff/1"
    assert changes["concurrency.target"] == (8, 9)
    assert document["before"]["inputs_sha256"] != document["after"]["inputs_sha256"]
    page = shell.run("diff", "fits.yaml", "wrong.yaml")
    assert page.returncode == 1
    assert "after  wrong.yaml: invalid" in page.stdout
    assert shell.run("diff", "fits.yaml", "nowhere.yaml").returncode == 2


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("fits", "too_many", 1),
        ("fits", "refused", 1),
        ("too_many", "fits", 0),
        ("too_many", "too_many", 0),
        ("fits", "fits", 0),
    ],
)
def test_diff_fails_where_a_change_costs_the_target(shell: Shell, before: str, after: str, code: int) -> None:
    assert shell.run("diff", f"{before}.yaml", f"{after}.yaml").returncode == code


def test_a_plan_of_another_form_is_told(shell: Shell) -> None:
    shell.write("old.json", '{"schema": "kvadvise.plan/1", "outcome": "maybe"}')
    done = shell.run("diff", "fits.yaml", "old.json")
    assert done.returncode == 2
    assert "its plan cannot be read" in done.stderr
