"""Looks at the server once a second, and sees when it is gone or stands still.

A slow answer is not a dead server, and a healthy server may be frozen: what counts is whether anybody listens, and
whether tokens are made while requests run (P67).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal

import httpx

from advisor.server_metrics import ServerMetrics
from verify.load.types import PhaseName
from verify.record.types import Ending, GpuMemory, Snapshot
from verify.watch.asking import is_healthy, read_server
from verify.watch.probes import Probes

INTERVAL_S = 1.0
HEALTH_EVERY_S = 5.0
LOST_AFTER_S = 5.0
HANG_AFTER_S = 120.0
_MOVING = ("generation_tokens", "prompt_tokens", "iterations", "iteration_tokens", "requests_done")

_Silence = Literal["speaks", "late", "gone"]
OnEnd = Callable[[Ending, str], None]


class Watcher:
    """Snapshots of one server. `phase` is set by whoever plays the load, `rows_seen` counts answers that came back."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        *,
        zero: float,
        probes: Probes,
        hang_after_s: float = HANG_AFTER_S,
        on_snapshot: Callable[[Snapshot], None] | None = None,
    ) -> None:
        self.snapshots: list[Snapshot] = []
        self.phase: PhaseName | None = None
        self.rows_seen = 0
        self._client = client
        self._url = url
        self._zero = zero
        self._probes = probes
        self._hang_after_s = hang_after_s
        self._on_snapshot = on_snapshot
        self._turn = asyncio.Lock()
        self._gone_since: float | None = None
        self._healthy: bool | None = None
        self._moved: tuple[object, ...] = ()
        self._moved_at = 0.0

    async def look(self) -> Snapshot:
        """One snapshot, kept."""
        async with self._turn:
            began = time.perf_counter()
            metrics, error, silence = await self._metrics(began - self._zero)
            snapshot = Snapshot(
                at_s=began - self._zero,
                phase=self.phase,
                metrics=metrics,
                error=error,
                scrape_s=time.perf_counter() - began,
                is_healthy=self._healthy if metrics is not None else await is_healthy(self._client, self._url),
                resident_bytes=self._probes.resident_bytes() if self._probes.resident_bytes is not None else None,
                gpus=self._gpus(),
            )
            self._note(snapshot, silence)
            self.snapshots.append(snapshot)
        if self._on_snapshot is not None:
            self._on_snapshot(snapshot)
        return snapshot

    async def watch(self, on_end: OnEnd) -> None:
        """Once a second until cancelled; `on_end` is called, once, where the run cannot go on."""
        health = asyncio.create_task(self._watch_health())
        try:
            await self._watch(on_end)
        finally:
            health.cancel()

    async def _watch_health(self) -> None:
        """Beside the looks: an answer that takes long must not hold them up."""
        while True:
            self._healthy = await is_healthy(self._client, self._url)
            await asyncio.sleep(HEALTH_EVERY_S)

    async def _watch(self, on_end: OnEnd) -> None:
        tick = 0
        while True:
            due = self._zero + tick * INTERVAL_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            snapshot = await self.look()
            reason = await self._end(snapshot)
            if reason is not None:
                on_end(*reason)
                return
            tick = max(tick + 1, int((time.perf_counter() - self._zero) // INTERVAL_S) + 1)

    async def _metrics(self, at_s: float) -> tuple[ServerMetrics | None, str | None, _Silence]:
        """The reading, else why there is none."""
        try:
            return await read_server(self._client, self._url, at_s), None, "speaks"
        except httpx.TimeoutException as error:
            return None, f"no answer in time ({type(error).__name__})", "late"
        except httpx.TransportError as error:
            return None, " ".join(str(error).split())[:200] or type(error).__name__, "gone"
        except (httpx.HTTPError, ValueError) as error:
            return None, " ".join(str(error).split())[:200], "speaks"

    def _gpus(self) -> tuple[GpuMemory, ...] | None:
        return self._probes.gpus() if self._probes.gpus is not None else None

    def _note(self, seen: Snapshot, silence: _Silence) -> None:
        """When it was last heard of, and when anything last moved. What is idle, or tells nothing, does not hang."""
        if silence != "gone":
            self._gone_since = None
        elif self._gone_since is None:
            self._gone_since = seen.at_s
        metrics = seen.metrics
        figures = tuple(getattr(metrics, name) for name in _MOVING) if metrics is not None else self._moved[1:]
        moved = (self.rows_seen, *figures)
        is_busy = bool(metrics.running or metrics.waiting) if metrics is not None else silence == "late"
        if moved != self._moved or not is_busy:
            self._moved, self._moved_at = moved, seen.at_s

    async def _end(self, seen: Snapshot) -> tuple[Ending, str] | None:
        exit_text = self._probes.engine_exit() if self._probes.engine_exit is not None else None
        if exit_text is not None:
            return "engine_lost", f"the engine's process ended during the run: {exit_text}"
        gone_s = seen.at_s - self._gone_since if self._gone_since is not None else 0.0
        if gone_s >= LOST_AFTER_S and await is_healthy(self._client, self._url) is False:
            return "engine_lost", f"nobody answers at {self._url} for {gone_s:.0f} s: {seen.error}"
        still_s = seen.at_s - self._moved_at
        if still_s < self._hang_after_s:
            return None
        health = {True: "200", False: "not 200", None: "nothing"}[await is_healthy(self._client, self._url)]
        if seen.metrics is None:
            return "hung", f"/metrics has not answered for {still_s:.0f} s, and no request has ended; /health: {health}"
        held = f"{seen.metrics.running or 0:.0f} requests running and {seen.metrics.waiting or 0:.0f} waiting"
        return "hung", f"no token for {still_s:.0f} s with {held}; /health: {health}"
