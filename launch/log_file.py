# ruff: noqa: PTH105, PTH110, PTH116, PTH123
"""The engine's log on disk: written with rotation, and read while it grows.

Standard library only: the supervisor writes it without site-packages. The first part of a log says what was
started and how much memory it found, so it is kept as NAME.start however long the server runs; after it NAME is
the newest part and NAME.1, NAME.2, ... are older ones.
"""

from __future__ import annotations

import os
from typing import IO

LARGEST_LINE_BYTES = 1 << 16
_READ_BYTES = 1 << 20


class RotatingLog:
    """Takes bytes and never fails: what cannot be written (a full disk) is counted and dropped, and said later."""

    def __init__(self, path: str, *, max_bytes: int = 64 << 20, keep: int = 3) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.keep = keep
        self.dropped_bytes = 0
        self._has_start = os.path.exists(f"{path}.start")
        self._file: IO[bytes] | None = None
        self._size = 0
        self._open()

    def write(self, data: bytes) -> None:
        """Append, turning the file over at a line's end where it has grown beyond its size."""
        if self._size and self._size + len(data) > self.max_bytes:
            head, newline, data = data.partition(b"\n")
            self._append(head + newline)
            self._turn_over()
        self._append(data)

    def close(self) -> None:
        """Close the file; a later write opens nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, data: bytes) -> None:
        if not data:
            return
        note = b""
        if self.dropped_bytes:
            note = f"\n[kvadvise] {self.dropped_bytes} bytes of log could not be written here\n".encode()
        written = self._write_what_fits(note + data)
        self._size += written
        if written == len(note) + len(data):
            self.dropped_bytes = 0
        else:
            self.dropped_bytes += len(data) - max(0, written - len(note))

    def _write_what_fits(self, data: bytes) -> int:
        written = 0
        while self._file is not None and written < len(data):
            try:
                written += self._file.write(data[written:])
            except OSError:
                break
        return written

    def _open(self) -> None:
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._file = os.fdopen(handle, "ab", buffering=0)
            self._size = os.fstat(handle).st_size
        except OSError:
            self._file = None

    def _turn_over(self) -> None:
        self.close()
        try:
            if not self._has_start:
                os.replace(self.path, f"{self.path}.start")
                self._has_start = True
            else:
                for n in range(self.keep - 1, 0, -1):
                    _replace_if_there(f"{self.path}.{n}", f"{self.path}.{n + 1}")
                _replace_if_there(self.path, f"{self.path}.1")
        except OSError:  # may not rename here: go on in the same file
            self.max_bytes *= 2
        self._open()


class LogTail:
    """New lines of a growing log, from byte `begin` on and across a turn-over. Carriage returns end a line as well:
    progress bars use them.
    """

    def __init__(self, path: str, *, begin: int = 0) -> None:
        self.path = path
        self._begin = begin
        self._file: IO[bytes] | None = None
        self._rest = b""

    def lines(self) -> list[str]:
        """The lines that were finished since the last call; empty ones are left out."""
        data = self._read()
        if not data:
            return []
        whole, _, self._rest = (self._rest + data).replace(b"\r", b"\n").rpartition(b"\n")
        if len(self._rest) > LARGEST_LINE_BYTES:
            whole, self._rest = whole + b"\n" + self._rest, b""
        return _texts(whole)

    def last(self) -> list[str]:
        """As `lines`, and the unfinished line at the end of a log that grows no more."""
        found = self.lines()
        rest, self._rest = self._rest, b""
        return found + _texts(rest)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> bytes:
        if self._file is None:
            self._file = _open_or_none(self.path)
            if self._file is None:
                return b""
            self._file.seek(self._begin)
        parts = [self._file.read()]
        while self._was_turned_over():
            newer = _open_or_none(self.path)
            if newer is None:
                break
            parts.append(self._file.read())
            self._file.close()
            self._file = newer
            parts.append(newer.read())
        return b"".join(parts)

    def _was_turned_over(self) -> bool:
        if self._file is None:
            return False
        try:
            there, here = os.stat(self.path), os.fstat(self._file.fileno())
        except OSError:
            return False
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)


def read_end(path: str, n_bytes: int = 1 << 20) -> list[str]:
    """The last lines of a log, at most `n_bytes` of them; nothing where there is no log."""
    file = _open_or_none(path)
    if file is None:
        return []
    with file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - n_bytes))
        data = file.read()
    return _texts(data.replace(b"\r", b"\n"))


def read_whole(path: str, *, begin: int = 0, largest_bytes: int = 16 << 20) -> list[str]:
    """A log from its first part to its newest, for diagnosis: the start, then the end, at most `largest_bytes` each.

    From byte `begin` on, where the log has not been turned over since.
    """
    file = _open_or_none(path) if begin else None
    if file is not None:
        with file:
            size = file.seek(0, os.SEEK_END)
            if begin <= size <= begin + largest_bytes:
                file.seek(begin)
                return _texts(file.read().replace(b"\r", b"\n"))
    start = _open_or_none(f"{path}.start")
    first: list[str] = []
    if start is not None:
        with start:
            first = _texts(start.read(largest_bytes).replace(b"\r", b"\n"))
    return first + read_end(path, largest_bytes)


def _texts(data: bytes) -> list[str]:
    return [line for line in data.decode("utf-8", errors="replace").split("\n") if line.strip()]


def _open_or_none(path: str) -> IO[bytes] | None:
    try:
        return open(path, "rb")
    except OSError:
        return None


def _replace_if_there(old: str, new: str) -> None:
    if os.path.exists(old):
        os.replace(old, new)
