"""A verification on a terminal: what will be sent, and how it goes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from verify.load.types import Phase, Schedule
    from verify.record.types import Served, Snapshot
    from verify.running.player import Record

_EVERY_S = 10.0


class Commentary:
    """Says what a run does, once a phase and every ten seconds."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._began = time.monotonic()
        self._said = 0.0
        self._phase: Phase | None = None
        self._rows_before = 0

    def schedule(self, schedule: Schedule, served: Served) -> None:
        """The plan of the run, before anything is sent."""
        from verify.load.describe import describe

        version = f", vLLM {served.vllm_version}" if served.vllm_version else ""
        self._say(f"{served.model} at {served.url}{version}")
        for line in describe(schedule):
            self._say(f"  {line}")

    def phase(self, phase: Phase) -> None:
        """A phase begins."""
        self._phase, self._said = phase, time.monotonic()
        self._rows_before = -1
        what = f"{len(phase.requests):,} requests" if phase.requests else f"up to {phase.seconds or 0:.0f} s"
        self._say(f"{self._elapsed()}  {phase.name}: {what}")

    def snapshot(self, seen: Snapshot, record: Record) -> None:
        """How it stands, now and then."""
        if self._phase is None or not self._phase.requests:
            return
        if self._rows_before < 0:
            self._rows_before = len(record.rows)
        if time.monotonic() - self._said < _EVERY_S:
            return
        self._said = time.monotonic()
        done = len(record.rows) - self._rows_before
        self._say(f"{self._elapsed()}    {done:,} of {len(self._phase.requests):,} answered, {_state(seen)}")

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._began:5.0f} s"


def _state(seen: Snapshot) -> str:
    m = seen.metrics
    if m is None:
        return f"the server's metrics cannot be read: {seen.error}"
    parts = [
        f"KV {m.kv_usage:.0%}" if m.kv_usage is not None else "KV use not said",
        f"{m.running:.0f} running" if m.running is not None else "",
        f"{m.waiting:.0f} waiting" if m.waiting is not None else "",
        f"{m.preemptions:.0f} preempted" if m.preemptions else "",
    ]
    return ", ".join(part for part in parts if part)
