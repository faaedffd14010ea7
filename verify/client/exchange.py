"""One request on its way and its answer: bytes are kept with the time they came at, and read when there is time.

The end of an answer is looked for in each read; everything else waits until enough has come, or the end.
"""

from __future__ import annotations

from enum import Enum
from time import perf_counter
from typing import TYPE_CHECKING

from verify.client.events import EventSplitter, LineTooLong
from verify.client.framing import Body, FramingError, Head, read_head
from verify.client.tally import BadEvent, Tally
from verify.load.types import PlannedRequest

if TYPE_CHECKING:
    from verify.client.connection import Connection

_KEPT_ERROR_BYTES = 64 * 1024


class End(Enum):
    """How an exchange ended, as far as the connection goes."""

    WHOLE = "whole"  # the body came to its end as framed
    LOST = "lost"  # the connection ended before
    NO_CONNECTION = "no_connection"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    UNREADABLE = "unreadable"  # no HTTP, no server-sent events


class Exchange:
    """A request that was sent, or is about to be, and what has come back."""

    __slots__ = (
        "_start", "begun_at", "body", "connection", "connection_use", "end", "ended_at", "error_body", "head",
        "is_eager", "is_queued", "last_read_at", "pieces", "problem", "request", "retries", "scheduled_at", "sent_at",
        "splitter", "stamps", "tally",
    )  # fmt: skip

    def __init__(self, request: PlannedRequest, scheduled_at: float | None) -> None:
        self.request = request
        self.scheduled_at = scheduled_at
        self.begun_at = perf_counter()
        self.sent_at: float | None = None
        self.ended_at: float | None = None
        self.last_read_at: float | None = None
        self.retries = 0
        self.connection: Connection | None = None
        self.connection_use = 0  # answers its connection had carried before
        self.head: Head | None = None
        self.body: Body | None = None
        self.splitter = EventSplitter()
        self.tally = Tally()
        self.error_body = b""
        self.end: End | None = None
        self.problem = ""
        self.pieces: list[bytes] = []
        self.stamps: list[float] = []
        self.is_queued = False  # for being read in a quiet moment
        self.is_eager = True  # each read is looked into at once; for a stream until its head is there
        self._start = b""

    def read(self) -> bool:
        """Look into everything that has come; whether that was the end."""
        pieces, stamps = self.pieces, self.stamps
        self.pieces, self.stamps = [], []
        if stamps:
            self.last_read_at = stamps[-1]
        at, count = 0, len(pieces)
        try:
            while at < count:
                if self._expects_events():
                    at = self.tally.usual(pieces, stamps, at)
                if at < count:
                    self._read(pieces[at], stamps[at])
                    at += 1
        except (FramingError, BadEvent, LineTooLong) as error:
            self.end, self.problem = End.UNREADABLE, str(error)
        return self.end is not None

    def _expects_events(self) -> bool:
        """Whether the next read may be the usual one: a chunk that is an event."""
        body, head = self.body, self.head
        return (
            body is not None
            and body.at_boundary
            and self.splitter.is_empty
            and head is not None
            and head.status == 200
            and head.is_event_stream
        )

    def _read(self, piece: bytes, at: float) -> None:
        if self.body is None:
            self._read_head(self._start + piece, at)
        else:
            self._read_body(self.body, piece, at)

    def _read_head(self, data: bytes, at: float) -> None:
        found = read_head(data)
        if found is None:
            self._start = data
            return
        self._start = b""
        head, start = found
        if 100 <= head.status < 200:
            self._read_head(data[start:], at)
            return
        self.head, self.body = head, Body(head)
        self.is_eager = self.request.expect == "cancel" or not self.body.is_streamed
        if self.body.ended:
            self.end = End.WHOLE
        elif start < len(data):
            self._read_body(self.body, data[start:], at)

    def _read_body(self, body: Body, piece: bytes, at: float) -> None:
        head = self.head
        is_answer = head is not None and head.status == 200 and head.is_event_stream
        for part in body.feed(piece):
            if not is_answer:
                self.error_body += part[: _KEPT_ERROR_BYTES - len(self.error_body)]
                continue
            for event in self.splitter.feed(part):
                self.tally.event(event, at)
        if body.ended and self.end is None:
            self.end = End.WHOLE
