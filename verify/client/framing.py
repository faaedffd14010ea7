"""HTTP/1.1 responses from bytes: a head, and a body framed by chunks, by a length or by the connection's end.

Sources: RFC 9112, sections 4 to 7. Trailers are read over, other transfer codings are refused.
"""

from __future__ import annotations

import msgspec

MAX_HEAD_BYTES = 64 * 1024
_MAX_SIZE_LINE = 1024  # a chunk's size and its extensions


class FramingError(Exception):
    """What came is no HTTP/1.1 response, in words for a row's `error`."""


class Head(msgspec.Struct, frozen=True):
    """A response's status and headers; names in lower case, the last of equal names stands."""

    status: int
    version: str
    headers: dict[str, str]

    @property
    def keeps_alive(self) -> bool:
        """Whether the server means to answer another request on this connection."""
        connection = self.headers.get("connection", "").lower()
        if self.version == "HTTP/1.0":
            return "keep-alive" in connection
        return "close" not in connection

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is made of server-sent events."""
        return self.headers.get("content-type", "").lower().startswith("text/event-stream")


def read_head(data: bytes) -> tuple[Head, int] | None:
    """The head at the start of `data` and where the body begins; None while it is not whole. Raises FramingError."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if len(data) > MAX_HEAD_BYTES:
            raise FramingError(f"headers longer than {MAX_HEAD_BYTES} bytes")
        if data and not b"HTTP/1.".startswith(data[:7]) and not data.startswith(b"HTTP/1."):
            raise FramingError("the answer is no HTTP/1.1")
        return None
    lines = data[:end].decode("latin-1").split("\r\n")
    version, _, rest = lines[0].partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit() and len(status) == 3):
        raise FramingError("the answer is no HTTP/1.1")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise FramingError("a header line without a colon")
        headers[name.strip().lower()] = value.strip()
    return Head(int(status), version, headers), end + 4


class Body:
    """The body of one response, unframed as it comes. `ended` once its last byte was seen."""

    __slots__ = ("_left", "_line", "_state", "ended", "extra")

    def __init__(self, head: Head) -> None:
        self.ended = False
        self.extra = b""  # what came after the end
        self._line = b""
        self._left = 0
        coding = head.headers.get("transfer-encoding", "").lower()
        length = head.headers.get("content-length")
        if coding == "chunked":
            self._state = "size"
        elif coding not in ("", "identity"):
            raise FramingError(f"transfer coding {coding[:40]!r}")
        elif head.status in (204, 304):
            self._state, self.ended = "length", True
        elif length is not None:
            if not (length.isascii() and length.isdigit()):
                raise FramingError(f"content-length {length[:40]!r}")
            self._state, self._left = "length", int(length)
            self.ended = self._left == 0
        else:
            self._state = "close"

    @property
    def ends_with_connection(self) -> bool:
        """Whether only the connection's end says where the body ends."""
        return self._state == "close"

    @property
    def is_streamed(self) -> bool:
        """Whether its length was not said at its start."""
        return self._state != "length"

    @property
    def at_boundary(self) -> bool:
        """Whether the next byte begins a chunk."""
        return self._state == "size" and not self._line

    def feed(self, data: bytes) -> list[bytes]:
        """The parts of the body in `data`. Raises FramingError."""
        if self.ended:
            self.extra += data[:100]
            return []
        if self._state == "close":
            return [data]
        if self._state == "length":
            part = data[: self._left]
            self._left -= len(part)
            if self._left == 0:
                self.ended = True
                self.extra = data[len(part) : len(part) + 100]
            return [part]
        return self._feed_chunks(data)

    def _feed_chunks(self, data: bytes) -> list[bytes]:
        parts: list[bytes] = []
        at = 0
        while at < len(data) and not self.ended:
            if self._state == "data":
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                if self._left == 0:
                    self._state = "gap"
                continue
            end = data.find(b"\n", at)
            if end < 0:
                self._line += data[at:]
                if len(self._line) > _MAX_SIZE_LINE:
                    raise FramingError("a chunk without a size")
                return parts
            line = (self._line + data[at:end]).rstrip(b"\r")
            self._line = b""
            at = end + 1
            self._take_line(line)
        if self.ended:
            self.extra = data[at : at + 100]
        return parts

    def _take_line(self, line: bytes) -> None:
        if self._state == "gap":
            if line:
                raise FramingError("a chunk longer than its size")
            self._state = "size"
        elif self._state == "trailer":
            self.ended = not line
        else:
            digits = line.partition(b";")[0].strip()
            if not digits or not all(c in b"0123456789abcdefABCDEF" for c in digits) or len(digits) > 15:
                raise FramingError("a chunk without a size")
            self._left = int(digits, 16)
            self._state = "data" if self._left else "trailer"
