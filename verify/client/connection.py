"""Connections to one server: kept alive, opened ahead of need, stamped at each read.

Nothing is sent twice: a connection that is seen to be broken before a request is written to it is replaced (`retries`),
one that breaks later ends its request. Proxies of the environment play no part.
"""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import cast

from verify.client.address import Address
from verify.client.exchange import End, Exchange

READ_AFTER = 16  # reads kept before they are looked into
IDLE_S = 1.5  # a used connection is not used again after so long: uvicorn closes after 5 s, others sooner
_TRIM_S = IDLE_S - 0.4  # by then it no longer counts as spare
_LOCAL_FAULTS = (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM)


# One buffer for all reads: what is in it is copied before the next. asyncio's other way allocates 256 KiB a read, which
# costs ten times a token's stamp.
_BUFFER = memoryview(bytearray(256 * 1024))


class Connection(asyncio.BufferedProtocol):
    """One connection; at most one exchange on it at a time."""

    __slots__ = ("exchange", "free_since", "is_lost", "owner", "transport", "uses")

    def __init__(self, owner: Connections) -> None:
        self.owner = owner
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.exchange: Exchange | None = None
        self.uses = 0
        self.free_since = 0.0
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Where to read into."""
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Stamp first."""
        now = perf_counter()
        data = bytes(_BUFFER[:nbytes])
        exchange = self.exchange
        if exchange is None:  # an answer that nobody asked for
            self.transport.abort()
            return
        exchange.stamps.append(now)
        exchange.pieces.append(data)
        if exchange.is_eager or data.endswith(b"\r\n\r\n") or len(data) < 4:
            self.owner.on_read(exchange)
        elif len(exchange.pieces) >= READ_AFTER and not exchange.is_queued:
            self.owner.read_later(exchange)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self.is_lost = True
        self.owner.on_lost(self, exc)

    def send(self, exchange: Exchange, data: bytes) -> None:
        """Write a request."""
        self.exchange = exchange
        exchange.connection = self
        exchange.connection_use = self.uses
        self.uses += 1
        exchange.sent_at = perf_counter()
        self.transport.write(data)

    @property
    def is_usable(self) -> bool:
        """Whether it is still open, as far as can be seen without writing to it."""
        if self.is_lost or self.transport.is_closing():
            return False
        if self.transport.get_extra_info("ssl_object") is not None:
            return True  # what waits may be a session ticket
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)  # a connection at rest has nothing to say but its end


class Connections:
    """All connections of one process to one server."""

    def __init__(
        self,
        address: Address,
        connect_timeout_s: float,
        *,
        on_read: Callable[[Exchange], None],
        on_lost: Callable[[Exchange, Exception | None], None],
        read_later: Callable[[Exchange], None],
    ) -> None:
        self._address = address
        self._timeout_s = connect_timeout_s
        self._idle: deque[Connection] = deque()  # the last one used at the right
        self._wanting: deque[tuple[Callable[[Connection], None], Callable[[str, bool], None]]] = deque()
        self._opening = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_lost = on_lost
        self.on_read = on_read
        self.read_later = read_later
        self.all: set[Connection] = set()
        self.opened = 0
        self.keeps_alive = True

    @property
    def spare(self) -> int:
        """Connections that wait for a request, or will soon."""
        return len(self._idle) + self._opening - len(self._wanting)

    def open_ahead(self, count: int) -> None:
        """See to it that so many connections are spare soon."""
        for _ in range(count - self.spare):
            self._open()

    def take(self) -> tuple[Connection | None, int]:
        """A connection at rest and how many were found broken on the way; None where there is none."""
        broken = 0
        oldest = perf_counter() - IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.uses and connection.free_since < oldest:
                connection.transport.close()
            elif connection.is_usable:
                return connection, broken
            else:
                connection.transport.abort()
                broken += 1
        return None, broken

    def want(self, use: Callable[[Connection], None], fail: Callable[[str, bool], None]) -> None:
        """Call `use` with the next connection there is, or `fail` with why there is none and whether that is ours."""
        self._wanting.append((use, fail))
        if len(self._wanting) > self._opening:
            self._open()

    def unwant(self) -> None:
        """Forget who waits for a connection."""
        self._wanting.clear()

    def give_back(self, connection: Connection) -> None:
        """An answer is whole: the connection may carry another request."""
        connection.exchange = None
        if connection.is_lost or connection.transport.is_closing():
            return
        if not self.keeps_alive:
            connection.transport.close()
            return
        connection.free_since = perf_counter()
        self._rest(connection)

    def trim(self) -> None:
        """Close what has been at rest too long."""
        oldest = perf_counter() - _TRIM_S
        old = [c for c in self._idle if c.uses and c.free_since < oldest]
        if old:
            self._idle = deque(c for c in self._idle if not c.uses or c.free_since >= oldest)
        for connection in old:
            connection.transport.close()

    def close(self) -> None:
        """Close everything."""
        for task in self._tasks:
            task.cancel()
        for connection in list(self.all):
            connection.transport.abort()

    def on_lost(self, connection: Connection, exc: Exception | None) -> None:
        """A connection is gone; who used it is told."""
        self.all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        exchange, connection.exchange = connection.exchange, None
        if exchange is not None:
            self._on_lost(exchange, exc)

    def _rest(self, connection: Connection) -> None:
        if connection.is_lost:
            self._failed("connection closed at once", is_ours=False)
        elif self._wanting:
            self._wanting.popleft()[0](connection)
        else:
            self._idle.append(connection)

    def _open(self) -> None:
        self._opening += 1  # until its outcome is known, and no longer: who wants one then must open another
        task = asyncio.get_running_loop().create_task(self._connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self) -> None:
        found = await self._try()
        self._opening -= 1
        if isinstance(found, Connection):
            self.opened += 1
            if not found.is_lost:
                self.all.add(found)
            self._rest(found)
        else:
            self._failed(*found)

    async def _try(self) -> Connection | tuple[str, bool]:
        """A connection, or why there is none and whether that is this machine's fault."""
        address = self._address
        try:
            async with asyncio.timeout(self._timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self),
                    address.ip,
                    address.port,
                    ssl=address.tls,
                    server_hostname=address.host if address.tls is not None else None,
                )
        except TimeoutError:
            return f"no connection within {self._timeout_s:g} s", False
        except (OSError, ssl.SSLError) as error:
            return _why(error)
        return connection

    def _failed(self, why: str, is_ours: bool) -> None:
        if self._wanting:
            self._wanting.popleft()[1](why, is_ours)


def _why(error: OSError) -> tuple[str, bool]:
    """In words, and whether it is this machine that cannot."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message or 'certificate verify failed'}", False
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or 'handshake failed'}", False
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "this process may open no more files (raise `ulimit -n`)", True
    if error.errno in _LOCAL_FAULTS:
        return f"this machine cannot open another connection: {error.strerror}", True
    if isinstance(error, ConnectionRefusedError):
        return "connection refused", False
    if isinstance(error, socket.gaierror):
        return "the host's name is not known", False
    return f"connection failed: {error.strerror or type(error).__name__}", False


def lost_end(exchange: Exchange, exc: Exception | None) -> None:
    """What an exchange is when its connection ended: whole where only that end says so, else lost."""
    if exchange.read():
        return
    if exchange.body is not None and exchange.body.ends_with_connection and exc is None:
        exchange.end = End.WHOLE
        return
    exchange.end = End.LOST
    how = "reset" if isinstance(exc, ConnectionResetError | BrokenPipeError) else "closed"
    if exchange.head is None:
        kept = f" (used {exchange.connection_use} times before)" if exchange.connection_use else ""
        exchange.problem = f"connection {how} before any answer{kept}"
    else:
        exchange.problem = f"connection {how} after {exchange.tally.tokens} tokens"
