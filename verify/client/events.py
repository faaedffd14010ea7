"""Server-sent events from the bytes of a body, however these are cut.

Only blank lines part events, only LF and CRLF end lines: U+2028 and its like are text. A comment or a field other than
`data` is read over. Source: the HTML standard, "server-sent events".
"""

from __future__ import annotations

MAX_LINE_BYTES = 16 * 1024 * 1024


class LineTooLong(Exception):
    """A line that does not end; in words for a row's `error`."""


class EventSplitter:
    """Bytes in, the data of whole events out."""

    __slots__ = ("_buffer", "_data", "_scanned")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._data: list[bytes] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing of an event has been seen yet."""
        return not self._buffer and not self._data

    def feed(self, part: bytes) -> list[bytes]:
        """The data of every event that ends in `part`. Raises LineTooLong."""
        buffer = self._buffer
        buffer += part
        events: list[bytes] = []
        start = 0
        while (end := buffer.find(b"\n", max(start, self._scanned))) >= 0:
            stop = end - 1 if end > start and buffer[end - 1] == 13 else end
            self._line(bytes(buffer[start:stop]), events)
            start = end + 1
            self._scanned = start
        del buffer[:start]
        self._scanned = len(buffer)
        if len(buffer) > MAX_LINE_BYTES:
            raise LineTooLong(f"a line of more than {MAX_LINE_BYTES // 2**20} MiB")
        return events

    def _line(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
        elif line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            self._data.append(b"")
