"""Where measured starts are kept, and the one file that a plan looks up. Writing is launch/measured_store.py's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from advisor.errors import InvalidInput
from advisor.measured import LARGEST_BYTES, MeasuredKey, Measurement, decode_measurement


class LookedUp(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the store: its bytes, and what they say or why they say nothing."""

    path: Path
    data: bytes = b""
    measurement: Measurement | None = None
    problem: str = ""


def measured_dir(env: Mapping[str, str]) -> Path | None:
    """`kvadvise/measured` in XDG_DATA_HOME, or in ~/.local/share; None for a user without a home."""
    given = env.get("XDG_DATA_HOME")
    if given and Path(given).is_absolute():  # the XDG rules ignore a relative path
        return Path(given) / "kvadvise" / "measured"
    home = env.get("HOME")
    try:
        return (Path(home) if home else Path.home()) / ".local" / "share" / "kvadvise" / "measured"
    except RuntimeError:
        return None


def look_up(directory: Path, key: MeasuredKey) -> LookedUp | None:
    """What is kept under a key; None where there is no such file. Never raises: a file that cannot be used has a
    `problem`.
    """
    path = directory / key.file_name
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return LookedUp(path=path, problem=f"cannot be read: {error.strerror or error}")
    if len(data) > LARGEST_BYTES:
        return LookedUp(path=path, data=data, problem="is larger than any measurement")
    try:
        return LookedUp(path=path, data=data, measurement=decode_measurement(data, "", key))
    except InvalidInput as error:
        return LookedUp(path=path, data=data, problem=error.what)
