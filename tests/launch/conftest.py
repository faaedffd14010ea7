"""Directories of a test's own for what launch keeps: state, caches, locks, temporary files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """XDG directories and a temporary directory below a short path; no temporary file and no lock is left."""
    with tempfile.TemporaryDirectory(prefix="kl-", dir="/tmp") as short:
        for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"):
            folder = Path(short) / name.replace("XDG_", "").split("_")[0].lower()
            folder.mkdir(mode=0o700)
            monkeypatch.setenv(name, str(folder))
        monkeypatch.setattr(tempfile, "tempdir", None)
        yield Path(short)
        left = [str(path) for path in (Path(short) / "tmpdir").iterdir()]
        locks = [str(path) for path in (Path(short) / "runtime").iterdir()]
    assert left == []
    assert locks == []
