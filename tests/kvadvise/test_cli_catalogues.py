"""`kvadvise gpus`, `models`, `profiles` and `completion` as processes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kvadvise.processes import ROOT, Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_gpus(shell: Shell) -> None:
    done = shell.run("gpus")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1 + len(list((ROOT / "profiles" / "gpus").glob("*.yaml")))
    one = shell.run("gpus", "rtx", "4090", "laptop").stdout.splitlines()
    assert one[1].startswith("RTX 4090 Laptop")
    assert any("source:" in line for line in one)


def test_gpus_as_json(shell: Shell) -> None:
    rows = json.loads(shell.run("gpus", "--json").stdout)
    by_id = {row["id"]: row for row in rows}
    assert by_id["rtx-4090"]["memory_gib"] == 23.52
    assert by_id["rtx-4090"]["compute_capability"] == "8.9"
    assert json.loads(shell.run("gpus", "no-such", "--json").stdout) == []


def test_a_gpu_that_is_not_there(shell: Shell) -> None:
    done = shell.run("gpus", "no-such")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no GPU has 'no-such' in its name" in done.stderr


def test_models(shell: Shell) -> None:
    assert shell.run("models").stdout == shell.run("models", "list").stdout
    rows = json.loads(shell.run("models", "list", "qwen2.5-7b", "--json").stdout)
    assert "Qwen/Qwen2.5-7B-Instruct" in [row["id"] for row in rows]
    facts = json.loads(shell.run("models", "show", "Qwen/Qwen2.5-7B-Instruct").stdout)
    assert facts["resolved_from"] == "catalogue"
    assert facts["config"]["num_hidden_layers"] == 28


def test_a_model_that_is_not_there(shell: Shell) -> None:
    done = shell.run("models", "show", "Qwen/Qwen2.5-7B-Instuct")
    assert done.returncode == 2
    assert "Qwen/Qwen2.5-7B-Instruct" in done.stderr


def test_a_model_is_added_from_its_directory(shell: Shell) -> None:
    shutil.copytree(ROOT / "tests" / "data" / "tiny-llama", shell.folder / "tiny-llama")
    done = shell.run("models", "add", "./tiny-llama")
    assert done.returncode == 0
    assert Path(done.stdout.strip()).is_relative_to(shell.folder / "config" / "kvadvise" / "models")
    shutil.rmtree(shell.folder / "tiny-llama")
    rows = json.loads(shell.run("models", "list", "tiny-llama", "--json").stdout)
    assert [row["origin"] for row in rows] == ["user"]
    assert json.loads(shell.run("models", "show", rows[0]["id"]).stdout)["config"]["vocab_size"] == 1000


def test_profiles(shell: Shell) -> None:
    assert shell.run("profiles").stdout == shell.run("profiles", "list").stdout
    shell.write("config/kvadvise/profiles/broken.yaml", "model: [")
    rows = {row["name"]: row for row in json.loads(shell.run("profiles", "list", "--json").stdout)}
    assert rows["chat-8k"]["origin"] == "bundled"
    assert rows["broken"]["description"].startswith("cannot be read")
    bundled = (ROOT / "profiles" / "workloads" / "chat-8k.yaml").read_text()
    assert shell.run("profiles", "show", "chat-8k").stdout == bundled
    missing = shell.run("profiles", "show", "chat-9k")
    assert missing.returncode == 2
    assert "did you mean chat-8k" in missing.stderr


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_scripts(name: str, shell: Shell) -> None:
    done = shell.run("completion", name)
    assert done.returncode == 0
    assert "_KVADVISE_COMPLETE" in done.stdout
    if shutil.which(name):
        script = shell.write("completion", done.stdout)
        subprocess.run([name, "-n", str(script)], check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("kvadvise ", {"plain,plan", "plain,gpus", "plain,completion"}),
        ("kvadvise plan chat", {"plain,chat-8k"}),
        ("kvadvise plan x.y", {"file,x.y"}),
        ("kvadvise plan --format ", {"plain,argv", "plain,env", "plain,vllm-config", "plain,markdown"}),
    ],
)
def test_words_complete(words: str, expected: set[str], shell: Shell) -> None:
    shell.env |= {
        "_KVADVISE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    assert set(shell.run().stdout.splitlines()) >= expected
