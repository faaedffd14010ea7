"""A schedule played phase by phase: one load at a time, an idle engine between them, every moment written down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from verify.client.types import ClientFacts
from verify.load.types import Phase, Schedule
from verify.record.types import Ending, PhaseMark, RequestRow, Snapshot
from verify.watch.watcher import Watcher

SETTLE_S = 30.0  # between two phases: an engine that is still at work then is told of, not waited for
_LOOK_S = 0.25
_REFUSED_FIRST = 10  # when so many of the first answers are all 4xx, the rest would be too


class Sender(Protocol):
    """Sends a phase's requests; verify.client.Client, or whatever stands in for it."""

    async def run(
        self,
        phase: Phase,
        *,
        began: float,
        zero: float,
        on_rows: Callable[[list[RequestRow]], None],
        stop: asyncio.Event,
    ) -> ClientFacts:
        """Returns when every request has ended, or soon after `stop` is set."""
        ...


class Record(msgspec.Struct):
    """What has been written down so far; complete at any moment."""

    rows: list[RequestRow] = []
    marks: list[PhaseMark] = []
    client: list[ClientFacts] = []
    ended: Ending = "interrupted"  # until it is known better
    ending_text: str = "the run did not come to its end"


class Player:
    """Plays one schedule. `end` may be called at any time, from a signal too: the run then ends early and in order."""

    def __init__(
        self,
        schedule: Schedule,
        sender: Sender,
        watcher: Watcher,
        *,
        zero: float,
        limit_s: float | None = None,
        on_phase: Callable[[Phase], None] | None = None,
    ) -> None:
        self.record = Record()
        self._schedule = schedule
        self._sender = sender
        self._watcher = watcher
        self._zero = zero
        self._limit_s = limit_s
        self._on_phase = on_phase
        self._stop = asyncio.Event()
        self._ending: tuple[Ending, str] | None = None

    def end(self, ended: Ending, text: str) -> None:
        """The run ends now, for this reason; the first reason stands."""
        if self._ending is None:
            self._ending = (ended, text)
            self._stop.set()

    async def play(self) -> None:
        """Every phase, or as many as there are before the run is ended."""
        watching = asyncio.create_task(self._watcher.watch(self.end))
        limit = asyncio.create_task(self._end_in_time()) if self._limit_s is not None else None
        try:
            for phase in self._schedule.phases:
                await self._play(phase)
                if self._stop.is_set():
                    break
            await self._watcher.look()
            ended, text = self._ending if self._ending is not None else ("finished", "every phase was played")
            self.record.ended, self.record.ending_text = ended, text
        finally:
            for task in (watching, limit):
                if task is not None:
                    task.cancel()
            await asyncio.gather(*(t for t in (watching, limit) if t is not None), return_exceptions=True)

    async def _play(self, phase: Phase) -> None:
        if self._on_phase is not None:
            self._on_phase(phase)
        self._watcher.phase = phase.name
        began = time.perf_counter()
        mark = PhaseMark(
            name=phase.name,
            began_s=began - self._zero,
            concurrency=phase.concurrency,
            mode=phase.mode,
            planned_requests=len(phase.requests),
        )
        self.record.marks.append(mark)
        if phase.requests:
            await self._send(phase)
        elif phase.name == "drain":
            await self._until_idle(phase.seconds if phase.seconds is not None else SETTLE_S)
        else:
            await self._pause(phase.seconds or 0.0)
        await self._watcher.look()
        self.record.marks[-1] = msgspec.structs.replace(mark, ended_s=time.perf_counter() - self._zero)
        if phase.requests and not self._stop.is_set():
            self._watcher.phase = None
            await self._until_idle(SETTLE_S)

    async def _send(self, phase: Phase) -> None:
        """The phase's clock starts a little ahead, so that its first requests are not late from the beginning."""
        await self._watcher.look()
        facts = await self._sender.run(
            phase, began=time.perf_counter() + 0.1, zero=self._zero, on_rows=self._take, stop=self._stop
        )
        self.record.client.append(facts)
        self._end_if_refused(len(self.record.rows))

    def _take(self, rows: list[RequestRow]) -> None:
        self.record.rows += rows
        self._watcher.rows_seen += len(rows)
        if len(self.record.rows) >= _REFUSED_FIRST:
            self._end_if_refused(_REFUSED_FIRST)

    def _end_if_refused(self, first: int) -> None:
        """Where nothing but 4xx comes back the load or the address is wrong, and more of it would tell no more."""
        rows = self.record.rows[:first]
        if rows and all(row.outcome == "http_4xx" for row in rows):
            text = f"the server refuses the load: {rows[0].status} {rows[0].error or ''}"
            self.end("load_refused", text.strip())

    async def _until_idle(self, seconds: float) -> None:
        """Returns once nothing runs, waits or holds blocks, twice in a row; after `seconds` anyway."""
        deadline = time.perf_counter() + seconds
        idle = 0
        while not self._stop.is_set():
            idle = idle + 1 if _is_idle(await self._watcher.look()) else 0
            if idle >= 2 or time.perf_counter() >= deadline:
                return
            await self._pause(_LOOK_S)

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return

    async def _end_in_time(self) -> None:
        await asyncio.sleep(self._limit_s or 0.0)
        self.end("time_limit", f"the limit of {(self._limit_s or 0.0) / 60:.3g} minutes was reached")


def _is_idle(seen: Snapshot) -> bool:
    """What cannot be read is not waited for."""
    m = seen.metrics
    return m is None or not (m.running or m.waiting or (m.kv_usage or 0.0) > 0.0)
