"""A file as lines, one at a time, however large it is: text or gzip, UTF-8, none of them endless."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from advisor.errors import InvalidInput

LONGEST_LINE_BYTES = 64 * 2**20  # a recorded request with pictures in it
_GZIP = b"\x1f\x8b"
_HINT = "a CSV or JSONL file in UTF-8, plain or gzip"


def lines(path: Path, *, where: str) -> Iterator[str]:
    """Every line with its end. Raises InvalidInput with the line's number for what is no text, and where `path` cannot
    be read at all, naming `where` as what asked for it.
    """
    try:
        with _opened(path) as file:
            number = 0
            while line := file.readline(LONGEST_LINE_BYTES):
                number += 1
                yield _text(line, f"{path}:{number}", is_first=number == 1)
    except OSError as error:
        raise InvalidInput(
            f"cannot read the trace: {error.strerror or error}", where=f"{where}: {path}", hint=_HINT
        ) from error
    except (EOFError, zlib.error) as error:
        raise InvalidInput(f"is broken gzip: {error}", where=str(path), hint=_HINT) from error


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_gzip = file.read(2) == _GZIP
    return cast("IO[bytes]", gzip.open(path)) if is_gzip else path.open("rb")


def _text(line: bytes, where: str, *, is_first: bool) -> str:
    if len(line) >= LONGEST_LINE_BYTES and not line.endswith(b"\n"):
        raise InvalidInput(f"is a line of more than {LONGEST_LINE_BYTES // 2**20} MiB", where=where, hint=_HINT)
    try:
        return line.decode("utf-8-sig" if is_first else "utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"holds the byte 0x{line[error.start]:02x}, which is no text in UTF-8", where=where, hint=_HINT
        ) from error
