"""Files that are there whole or not at all: written beside their place, then put into it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from advisor.errors import InvalidInput

_SHORTEST_SECRET = 6  # what is shorter is no key, and would be found in every other word


def replace_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write files into a directory, made where it is missing. All are written before the first is put into place, in
    the order given; whoever reads in between sees the old ones. Raises InvalidInput where they cannot be written.
    """
    waiting: list[tuple[Path, Path]] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            beside = directory / f".{name}.{os.getpid()}.tmp"
            waiting.append((beside, directory / name))
            beside.write_bytes(data)
        for beside, place in waiting:
            beside.replace(place)
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", where=str(directory)) from error
    finally:
        for beside, _ in waiting:
            beside.unlink(missing_ok=True)


def without_secrets(data: bytes, secrets: Iterable[str]) -> bytes:
    """The text without these words, wherever they have got into it."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            data = data.replace(secret.encode(), b"[redacted]")
    return data
