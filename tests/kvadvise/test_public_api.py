"""The public Python API: exactly the names of __all__, each imported only when used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kvadvise


def test_all_is_exact() -> None:
    assert kvadvise.__all__ == sorted(kvadvise.__all__)
    assert dir(kvadvise) == kvadvise.__all__
    assert set(kvadvise.__all__) == {
        "EngineRefuses",
        "InvalidInput",
        "KvadviseError",
        "NotUnderstood",
        "Plan",
        "plan",
    }


@pytest.mark.parametrize("name", kvadvise.__all__)
def test_every_name_is_there_and_documented(name: str) -> None:
    assert getattr(kvadvise, name).__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        _ = kvadvise.plans


def test_importing_the_package_imports_nothing_else() -> None:
    script = "import sys, kvadvise; print([m for m in sys.modules if m.split('.')[0] in ('advisor', 'click', 'yaml')])"
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_the_version_is_the_distribution_s() -> None:
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    assert kvadvise.__version__ == project["version"]
