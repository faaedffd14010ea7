"""A Run in a directory, to be judged again: requests.jsonl.gz, timeline.jsonl.gz, and run.json for the rest.

run.json comes last and holds the digests of the other two, so a directory in which a writer was interrupted, or of
which a file was lost or changed, is known for what it is.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from advisor.errors import InvalidInput
from verify.record.files import replace_files, without_secrets
from verify.record.text import encodable, without_user_info
from verify.record.types import PhaseMark, RequestRow, Run, Snapshot

REQUESTS, TIMELINE, RUN = "requests.jsonl.gz", "timeline.jsonl.gz", "run.json"
RUN_SCHEMA = "kvadvise.run/1"

_T = TypeVar("_T", bound=msgspec.Struct)


class TimelineLine(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of the timeline: a look at the server, or a phase."""

    snapshot: Snapshot | None = None
    mark: PhaseMark | None = None


class StoredFile(msgspec.Struct, frozen=True):
    """What a file beside run.json must be."""

    lines: int
    sha256: str


class StoredRun(msgspec.Struct, frozen=True):
    """run.json: the run without its rows and its timeline, and what those files are."""

    run: Run
    files: dict[str, StoredFile]


def run_files(run: Run, secrets: Iterable[str] = ()) -> dict[str, bytes]:
    """The files of a run by name, run.json last. Equal runs give equal bytes. `secrets` are cut out of every text."""
    words = tuple(secrets)
    marks = (TimelineLine(mark=mark) for mark in run.marks)
    looks = (TimelineLine(snapshot=seen) for seen in run.snapshots)
    rows = _packed(run.rows, words)
    timeline = _packed((*marks, *looks), words)
    rest = msgspec.structs.replace(
        run, rows=(), snapshots=(), marks=(),
        served=msgspec.structs.replace(run.served, url=without_user_info(run.served.url)),
    )  # fmt: skip
    stored = StoredRun(
        run=rest,
        files={
            REQUESTS: StoredFile(len(run.rows), _digest(rows)),
            TIMELINE: StoredFile(len(run.marks) + len(run.snapshots), _digest(timeline)),
        },
    )
    text = msgspec.json.format(msgspec.json.encode(encodable(stored)), indent=2) + b"\n"
    return {REQUESTS: rows, TIMELINE: timeline, RUN: without_secrets(text, words)}


def write_run(directory: Path, run: Run, secrets: Iterable[str] = ()) -> None:
    """Put a run into a directory. Raises InvalidInput where it cannot be written."""
    replace_files(directory, run_files(run, secrets))


def read_run(directory: Path) -> Run:
    """A run as it was stored. Raises InvalidInput where there is none, or it is damaged or not whole."""
    path = directory / RUN
    try:
        stored = msgspec.json.decode(_bytes(path), type=StoredRun)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidInput(f"is no stored run: {error}", where=str(path), hint=_AGAIN) from error
    if stored.run.schema != RUN_SCHEMA:
        raise InvalidInput(
            f"is a run of {stored.run.schema}, which this kvadvise does not know", where=str(path), hint=_AGAIN
        )
    rows = tuple(_lines(directory, REQUESTS, stored, RequestRow))
    timeline = tuple(_lines(directory, TIMELINE, stored, TimelineLine))
    return msgspec.structs.replace(
        stored.run,
        rows=rows,
        snapshots=tuple(line.snapshot for line in timeline if line.snapshot is not None),
        marks=tuple(line.mark for line in timeline if line.mark is not None),
    )


_AGAIN = "give the --out directory of a run; one that was damaged has to be run again"


def _packed(values: Iterable[msgspec.Struct], secrets: tuple[str, ...]) -> bytes:
    encode = msgspec.json.Encoder().encode
    text = b"".join(encode(encodable(value)) + b"\n" for value in values)
    return gzip.compress(without_secrets(text, secrets), compresslevel=6, mtime=0)


def _lines(directory: Path, name: str, stored: StoredRun, kind: type[_T]) -> Iterator[_T]:
    path = directory / name
    expected = stored.files.get(name)
    data = _bytes(path)
    if expected is None or _digest(data) != expected.sha256:
        raise InvalidInput(f"is not the file that {RUN} was written with", where=str(path), hint=_AGAIN)
    decode: Any = msgspec.json.Decoder(kind).decode
    number = 0
    try:
        for number, line in enumerate(gzip.decompress(data).splitlines(), 1):  # noqa: B007 - told where it breaks
            yield decode(line)
    except (OSError, EOFError, zlib.error, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InvalidInput(f"cannot be read, line {number}: {error}", where=str(path), hint=_AGAIN) from error
    if number != expected.lines:
        raise InvalidInput(f"has {number} lines, not {expected.lines}", where=str(path), hint=_AGAIN)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise InvalidInput("is missing: no whole run is stored here", where=str(path), hint=_AGAIN) from error
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(path)) from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
