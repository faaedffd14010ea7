"""Where launch keeps things: caches, state, locks. Directories by the XDG rules, files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def cache_dir(env: Mapping[str, str]) -> Path:
    """`kvadvise` in the user's cache directory: what can be made again."""
    return _base(env, "XDG_CACHE_HOME", ".cache") / "kvadvise"


def state_dir(env: Mapping[str, str]) -> Path:
    """`kvadvise` in the user's state directory: logs, and which servers run."""
    return _base(env, "XDG_STATE_HOME", ".local/state") / "kvadvise"


def runtime_dir(env: Mapping[str, str]) -> Path:
    """Where locks live: XDG_RUNTIME_DIR where it can be written, else the directory for temporary files."""
    given = env.get("XDG_RUNTIME_DIR")
    if given and os.access(given, os.W_OK | os.X_OK):
        return Path(given)
    return Path(env.get("TMPDIR") or tempfile.gettempdir())


def write_whole(path: Path, data: bytes) -> None:
    """A reader sees the old file or the new one; readable by the user only. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _base(env: Mapping[str, str], name: str, below_home: str) -> Path:
    given = env.get(name)
    if given and Path(given).is_absolute():  # the XDG rules ignore a relative path
        return Path(given)
    home = env.get("HOME")
    try:
        return (Path(home) if home else Path.home()) / below_home
    except RuntimeError:  # no HOME and no such user
        return Path(tempfile.gettempdir()) / f"kvadvise-{os.getuid()}" / below_home
