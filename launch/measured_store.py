"""Measurements on disk: one small JSON file a key, in the user's data directory, written whole or not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from advisor.errors import InvalidInput
from advisor.measured import LARGEST_BYTES, MeasuredKey, Measurement, decode_measurement
from launch.measured import merge
from launch.user_dirs import write_whole


def load(directory: Path, key: MeasuredKey) -> Measurement | None:
    """What is known for a key; None where nothing is. Raises InvalidInput for a file that cannot be used."""
    path = directory / key.file_name
    data = _bytes(path)
    return decode_measurement(data, str(path), key) if data is not None else None


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a key now, in which file, why the file before it was replaced ("" where it was not), and whether
    the same start had been kept before, so that nothing was.
    """

    measurement: Measurement
    path: Path
    replaced: str = ""
    was_known: bool = False


def keep(directory: Path, new: Measurement) -> Kept:
    """Add a measurement to what is known of its key.

    A start whose source is known already is not counted twice. A file that cannot be used is replaced: it told nothing.
    Raises InvalidInput where the directory cannot be written.
    """
    path = directory / new.key.file_name
    try:
        with _alone(directory):
            known, replaced = _usable(directory, new.key)
            if known is not None and new.sources and set(new.sources) <= set(known.sources):
                return Kept(measurement=known, path=path, was_known=True)
            kept = new if known is None else merge(known, new)
            write_whole(path, _encoded(kept))
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", where=str(path)) from None
    return Kept(measurement=kept, path=path, replaced=replaced)


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
            data = file.read(LARGEST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    if len(data) > LARGEST_BYTES:
        raise InvalidInput("is larger than any measurement", where=str(path), hint="delete it")
    return data


def _usable(directory: Path, key: MeasuredKey) -> tuple[Measurement | None, str]:
    try:
        return load(directory, key), ""
    except InvalidInput as error:
        return None, error.what


def _encoded(measurement: Measurement) -> bytes:
    return msgspec.json.format(msgspec.json.encode(measurement), indent=2) + b"\n"
