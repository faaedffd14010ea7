"""Measurements on disk: one small JSON file a key, in the user's data directory, written whole or not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from advisor.errors import InvalidInput
from launch.measured import SCHEMA, MeasuredKey, Measurement, merge
from launch.user_dirs import write_whole

_LARGEST_BYTES = 64 * 1024


def measured_dir(env: Mapping[str, str]) -> Path:
    """`kvadvise/measured` in XDG_DATA_HOME, or in ~/.local/share."""
    given = env.get("XDG_DATA_HOME")
    if given and Path(given).is_absolute():  # the XDG rules ignore a relative path
        return Path(given) / "kvadvise" / "measured"
    home = env.get("HOME")
    return (Path(home) if home else Path.home()) / ".local" / "share" / "kvadvise" / "measured"


def load(directory: Path, key: MeasuredKey) -> Measurement | None:
    """What is known for a key; None where nothing is. Raises InvalidInput for a file that cannot be used."""
    data = load_bytes(directory, key)
    return _decoded(data, directory / key.file_name, key) if data is not None else None


def load_bytes(directory: Path, key: MeasuredKey) -> bytes | None:
    """The file's bytes as they are, for a plan's identity; None where there is none."""
    return _bytes(directory / key.file_name)


def load_all(directory: Path) -> tuple[Measurement, ...]:
    """Every measurement kept, by file name. Raises InvalidInput for a file that cannot be used."""
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix == ".json" and path.name[:1] != ".")
    except (FileNotFoundError, NotADirectoryError):
        return ()
    files = ((path, _bytes(path)) for path in paths)
    return tuple(_decoded(data, path, None) for path, data in files if data is not None)


def keep(directory: Path, new: Measurement) -> Measurement:
    """Add a measurement to what is known of its key, and give back what is known now.

    A file that cannot be used is replaced: it told nothing. Raises InvalidInput where the directory cannot be written.
    """
    path = directory / new.key.file_name
    try:
        with _alone(directory):
            known = _usable(directory, new.key)
            kept = new if known is None else merge(known, new)
            write_whole(path, _encoded(kept))
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", where=str(path)) from None
    return kept


def forget(directory: Path, key: MeasuredKey) -> bool:
    """Delete what is known of a key; whether there was anything."""
    try:
        (directory / key.file_name).unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One writer at a time: the directory itself is the lock, so that none is left behind."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _bytes(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    if len(data) > _LARGEST_BYTES:
        raise InvalidInput("is larger than any measurement", where=str(path), hint="delete it")
    return data


def _usable(directory: Path, key: MeasuredKey) -> Measurement | None:
    try:
        return load(directory, key)
    except InvalidInput:
        return None


def _encoded(measurement: Measurement) -> bytes:
    return msgspec.json.format(msgspec.json.encode(measurement), indent=2) + b"\n"


def _decoded(data: bytes, path: Path, key: MeasuredKey | None) -> Measurement:
    try:
        read = msgspec.json.decode(data, type=Measurement)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"is no measurement: {error}", where=str(path), hint="delete it; it is made anew") from None
    if read.schema != SCHEMA:
        raise InvalidInput(f"schema {read.schema!r}, {SCHEMA!r} expected", where=str(path), hint="delete it")
    if key is not None and read.key != key:
        raise InvalidInput("holds another key than its name says", where=str(path), hint="delete it")
    return read
