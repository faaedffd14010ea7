"""The wheel holds everything: built, installed apart from the checkout, and used from another folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without a network: the build backend is one of the development tools."""
    out = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out), str(ROOT))
    (built,) = out.glob("kvadvise-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    pip("install", "--no-deps", "--no-index", "--target", str(target), str(wheel))
    return target


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The installed command; what is installed here comes before a checkout in development mode."""
    env = os.environ | {"PYTHONPATH": str(installed), "XDG_CONFIG_HOME": str(folder / "config")}
    script = str(installed / "bin" / "kvadvise")
    return subprocess.run(
        [sys.executable, script, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def test_the_wheel_holds_packages_data_and_licence(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("kvadvise", "advisor", "launch", "verify", "profiles"):
        there = {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).rglob("*") if _is_ours(p)}
        assert there <= names
    assert "profiles/workloads/chat-8k.yaml" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {
        *("kvadvise", "advisor", "launch", "verify", "profiles"),
        f"{wheel.name.removesuffix('-py3-none-any.whl')}.dist-info",
    }


def _is_ours(path: Path) -> bool:
    return path.is_file() and path.suffix in (".py", ".yaml", ".json", ".typed") and "__pycache__" not in path.parts


def test_it_says_its_version(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, "kvadvise 0.1.0\n")


def test_it_plans_a_bundled_profile_from_another_folder(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "plan", "chat-8k", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["schema"] == "kvadvise.plan/1"
    assert plan["outcome"] in ("fits", "fits_with_loss")


def test_what_ran_was_the_installed_package(installed: Path, tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(installed)}
    script = "import advisor, kvadvise, profiles; print(advisor.__file__, kvadvise.__file__, profiles.__file__)"
    out = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    ).stdout
    assert all(Path(place).is_relative_to(installed) for place in out.split())
