"""One process's share of a phase: requests out on time, answers in, rows as they end.

Open: each request goes out at its time, whatever is still open. Closed: so many places, each with one request at a
time. No request ever waits for another one's end but for its own place.
"""

from __future__ import annotations

import asyncio
import gc
from array import array
from collections import deque
from collections.abc import Callable
from functools import partial
from math import ceil
from time import perf_counter, process_time

from verify.client.address import Address
from verify.client.bodies import CHAT, COMPLETIONS, BodyStore, Fields, PromptIds, chat_body, completion_body
from verify.client.connection import Connection, Connections, lost_end
from verify.client.exchange import End, Exchange
from verify.client.messages import Finished, Prepare
from verify.client.outcome import row_of
from verify.client.types import Target
from verify.record.types import RequestRow

TICK_S = 0.02
FLUSH_TICKS = 5
AHEAD_S = 0.3  # connections are opened so long before they are needed
AHEAD_MOST = 2000
BREATH_S = 0.1  # a place whose request failed before its first token waits so long, not to hammer a server that is down
PATIENCE_S = 1.0  # who leaves before the first token leaves after so long, or when the answer begins
OVERDUE_S = 5.0  # beyond the time for a connection, nothing waits for one
_EARLY_S = 0.0005


class Sender:
    """Sends shares of phases, one after another."""

    def __init__(
        self,
        target: Target,
        address: Address,
        *,
        version: str,
        process: int,
        prompt_ids: PromptIds,
        on_rows: Callable[[list[RequestRow]], None],
    ) -> None:
        self._target = target
        self._process = process
        self._prompt_ids = prompt_ids
        self.on_rows = on_rows
        self._heads = {path: _head(target, address, path, version) for path in (COMPLETIONS, CHAT)}
        self.connections = Connections(
            address,
            target.connect_timeout_s,
            on_read=self._on_read,
            on_lost=self._on_lost,
            read_later=self._read_later,
        )
        self._share = Prepare(name="baseline", mode="idle", requests=(), places=0, fields=Fields(), keeps_alive=True)
        self._bodies = BodyStore()
        self._open: dict[Exchange, None] = {}  # in the order they were begun
        self._rows: list[RequestRow] = []
        self._unread: deque[Exchange] = deque()
        self._lags = array("d")
        self.counts_tokens = True  # the server has always said how many tokens an event holds
        self._reset()

    def _reset(self) -> None:
        self._next = self._opened_before = 0
        self._ahead = 0
        self._in_flight = self._max_in_flight = 0
        self._chunks = self._coalesced = self._unsent = 0
        self._stopping = False
        self._faults: dict[str, int] = {}
        self._began = self._zero = 0.0
        self._finished: asyncio.Future[None] | None = None
        self._lags = array("d")

    # Before

    def prepare(self, share: Prepare) -> None:
        """Encode every body of the share and open the first connections. Raises ValueError for a body that is none."""
        self._reset()
        self._opened_before = self.connections.opened
        self._share = share
        self._bodies.close()
        self._bodies = BodyStore()
        for request in share.requests:
            if request.body is not None:
                self._bodies.put(chat_body(request.body, self._target, share.fields))
            else:
                ids = self._prompt_ids(request)
                self._bodies.put(completion_body(request, ids, self._target, share.fields))
        self.connections.keeps_alive = share.keeps_alive
        first = share.places
        if share.mode == "open":
            first = sum((r.scheduled_s or 0.0) < AHEAD_S for r in share.requests)
        self.connections.open_ahead(min(first, len(share.requests), AHEAD_MOST))

    # While

    async def play(self, *, began: float, zero: float) -> Finished:
        """Send it all; returns when every request has ended."""
        loop = asyncio.get_running_loop()
        self._began, self._zero = began, zero
        self._finished = loop.create_future()
        cpu = process_time()
        gc.collect()
        gc.freeze()
        gc.disable()
        ticking = loop.create_task(self._tick())
        try:
            if not self._share.requests:
                self._finished.set_result(None)
            elif self._share.mode == "open":
                self._send_due()
            else:
                loop.call_later(max(0.0, began - perf_counter()), self._fill_places)
            await self._finished
        finally:
            ticking.cancel()
            gc.enable()
            gc.unfreeze()
        self._flush()
        wall = perf_counter() - began
        return Finished(
            wall_s=wall,
            cpu_s=process_time() - cpu,
            lag_p99_s=sorted(self._lags)[ceil(0.99 * len(self._lags)) - 1] if self._lags else None,
            max_in_flight=self._max_in_flight,
            connections=self.connections.opened - self._opened_before,
            chunks=self._chunks,
            coalesced=self._coalesced,
            unsent=self._unsent,
            stopped_early=self._stopping,
            faults=tuple(f"{count} requests: {text}" for text, count in self._faults.items()),
        )

    def stop(self, grace_s: float) -> None:
        """Send nothing more; give up what is open after the grace."""
        if self._stopping:
            return
        self._stopping = True
        self.connections.unwant()
        for exchange in [e for e in self._open if e.sent_at is None]:
            del self._open[exchange]
            self._unsent += 1
        self._unsent += len(self._share.requests) - self._next
        self._next = len(self._share.requests)
        asyncio.get_running_loop().call_later(max(0.0, grace_s), self._abandon)
        self._end_if_done()

    def _abandon(self) -> None:
        for exchange in list(self._open):
            if not exchange.read():
                exchange.end = End.ABANDONED
                exchange.problem = "still open when the run was stopped"
            self._complete(exchange)

    def _send_due(self) -> None:
        """Whatever is due now goes out; the timer is set for the next."""
        requests, began = self._share.requests, self._began
        now = perf_counter()
        while self._next < len(requests):
            due = began + (requests[self._next].scheduled_s or 0.0)
            if due > now + _EARLY_S:
                break
            self._begin(due)
            now = perf_counter()
        else:
            self._end_if_done()
            return
        self._open_ahead(now)
        asyncio.get_running_loop().call_later(max(0.0, min(due - now, AHEAD_S / 4)), self._send_due)

    def _open_ahead(self, now: float) -> None:
        requests = self._share.requests
        self._ahead = max(self._ahead, self._next)
        horizon = now - self._began + AHEAD_S
        while self._ahead < len(requests) and (requests[self._ahead].scheduled_s or 0.0) < horizon:
            self._ahead += 1
        self.connections.open_ahead(min(self._ahead - self._next, AHEAD_MOST))

    def _fill_places(self) -> None:
        for _ in range(self._share.places):
            self._fill_place()

    def _fill_place(self) -> None:
        if self._next < len(self._share.requests):
            self._begin(None)
        else:
            self._end_if_done()

    def _begin(self, due: float | None) -> None:
        index = self._next
        self._next += 1
        exchange = Exchange(self._share.requests[index], due)
        self._open[exchange] = None
        connection, exchange.retries = self.connections.take()
        if connection is not None:
            self._write(exchange, index, connection)
        else:
            self.connections.want(partial(self._write, exchange, index), partial(self._no_connection, exchange))

    def _write(self, exchange: Exchange, index: int, connection: Connection) -> None:
        if exchange.end is not None:
            self.connections.give_back(connection)
            return
        body = self._bodies.take(index)
        head = self._heads[CHAT if exchange.request.body is not None else COMPLETIONS]
        connection.send(exchange, b"%b%d\r\n\r\n%b" % (head, len(body), body))
        self._in_flight += 1
        self._max_in_flight = max(self._max_in_flight, self._in_flight)
        if exchange.request.cancel_after_tokens == 0:
            asyncio.get_running_loop().call_later(PATIENCE_S, self._leave, exchange)

    # Answers

    def _on_read(self, exchange: Exchange) -> None:
        if exchange.read():
            self._complete(exchange)
        elif exchange.request.expect == "cancel" and exchange.head is not None and exchange.head.status == 200:
            tally = exchange.tally
            if tally.tokens >= (exchange.request.cancel_after_tokens or 0) and tally.finish_reason is None:
                self._leave(exchange)

    def _leave(self, exchange: Exchange) -> None:
        if exchange.end is None:
            exchange.end = End.CANCELLED
            self._complete(exchange)

    def _on_lost(self, exchange: Exchange, exc: Exception | None) -> None:
        lost_end(exchange, exc)
        self._complete(exchange)

    def _no_connection(self, exchange: Exchange, why: str, is_ours: bool) -> None:
        exchange.end, exchange.problem = End.NO_CONNECTION, why
        if is_ours:
            exchange.end = End.ABANDONED
            self._faults[why] = self._faults.get(why, 0) + 1
        self._complete(exchange)

    def _read_later(self, exchange: Exchange) -> None:
        """Look into it in a quiet moment; in small steps, so that no stamp waits for long."""
        exchange.is_queued = True
        self._unread.append(exchange)
        if len(self._unread) == 1:
            asyncio.get_running_loop().call_soon(self._read_one)

    def _read_one(self) -> None:
        exchange = self._unread[0]
        exchange.is_queued = False
        if exchange.end is None and exchange.read():
            self._complete(exchange)
        self._unread.popleft()
        if self._unread:
            asyncio.get_running_loop().call_soon(self._read_one)

    def _complete(self, exchange: Exchange) -> None:
        """An exchange has ended: its row, its connection, its place."""
        if exchange not in self._open:
            return
        del self._open[exchange]
        exchange.ended_at = exchange.last_read_at if exchange.end in (End.WHOLE, End.UNREADABLE) else perf_counter()
        if exchange.sent_at is not None:
            self._in_flight -= 1
        self._release(exchange)
        self._chunks += exchange.tally.chunks
        self._coalesced += exchange.tally.coalesced
        self.counts_tokens = self.counts_tokens and exchange.tally.has_counts
        self._rows.append(row_of(exchange, zero=self._zero, process=self._process, secret=self._target.api_key))
        if self._share.mode == "closed" and not self._stopping:
            failed = exchange.tally.tokens == 0 and exchange.end is not End.CANCELLED
            asyncio.get_running_loop().call_later(BREATH_S if failed else 0.0, self._fill_place)
        self._end_if_done()

    def _release(self, exchange: Exchange) -> None:
        connection, exchange.connection = exchange.connection, None
        if connection is None:
            return
        head, body = exchange.head, exchange.body
        is_whole = exchange.end is End.WHOLE and body is not None and body.ended and not body.extra
        if is_whole and head is not None and head.keeps_alive:
            self.connections.give_back(connection)
        else:
            connection.exchange = None
            connection.transport.abort()

    def _end_if_done(self) -> None:
        finished = self._finished
        if finished is None or finished.done() or self._open or self._next < len(self._share.requests):
            return
        finished.set_result(None)

    # Beside

    async def _tick(self) -> None:
        """How late a timer is, timeouts, rows on their way."""
        due, ticks = perf_counter() + TICK_S, 0
        while True:
            await asyncio.sleep(max(0.0, due - perf_counter()))
            now = perf_counter()
            if now >= self._began:
                self._lags.append(max(0.0, now - due))
            due = max(due + TICK_S, now)
            ticks += 1
            self._time_out(now)
            if ticks % FLUSH_TICKS == 0:
                self._flush()
                self.connections.trim()

    def _time_out(self, now: float) -> None:
        oldest, late = now - self._target.request_timeout_s, []
        for exchange in self._open:
            if exchange.sent_at is None:
                if exchange.begun_at < now - self._target.connect_timeout_s - OVERDUE_S:
                    late.append(exchange)
            elif exchange.sent_at > oldest:
                break
            else:
                late.append(exchange)
        for exchange in late:
            if exchange.sent_at is None:
                exchange.end, exchange.problem = End.NO_CONNECTION, "no connection"
            elif not exchange.read():
                exchange.end = End.TIMEOUT
                seconds, tokens = self._target.request_timeout_s, exchange.tally.tokens
                exchange.problem = f"no whole answer within {seconds:g} s, {tokens} tokens so far"
            self._complete(exchange)

    def _flush(self) -> None:
        if self._rows:
            rows, self._rows = self._rows, []
            self.on_rows(rows)


def _head(target: Target, address: Address, path: str, version: str) -> bytes:
    """A request's headers but for the length's figure."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    lines = [
        f"POST {address.path}{path} HTTP/1.1",
        f"Host: {host}:{address.port}",
        f"User-Agent: kvadvise/{version} (verify)",
        "Accept: text/event-stream, application/json",
        "Content-Type: application/json",
    ]
    if target.api_key is not None:
        lines.append(f"Authorization: Bearer {target.api_key}")
    return ("\r\n".join([*lines, "Content-Length: "])).encode("latin-1")
