"""Phases made by hand and played by the real client, processes and all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgspec

from verify.client.pool import Client
from verify.client.types import ClientFacts, Probe, Target
from verify.load.types import Part, Phase, PlannedRequest
from verify.record.types import RequestRow

VOCABULARY = 1024


class Played(msgspec.Struct):
    """What came of it."""

    rows: list[RequestRow]
    facts: ClientFacts
    probe: Probe
    zero: float

    @property
    def outcomes(self) -> set[str]:
        return {row.outcome for row in self.rows}

    @property
    def row(self) -> RequestRow:
        assert len(self.rows) == 1
        return self.rows[0]


def request(index: int = 0, prompt: int = 24, output: int = 8, **more: Any) -> PlannedRequest:
    return PlannedRequest(
        index=index,
        phase=more.pop("phase", "peak"),
        prompt_tokens=prompt,
        output_tokens=output,
        parts=(Part(f"own-{index}", prompt),),
        **more,
    )


def closed(count: int = 1, places: int = 1, **more: Any) -> Phase:
    return Phase(
        name="peak", mode="closed", requests=tuple(request(i, **more) for i in range(count)), concurrency=places
    )


def opened(times: list[float], **more: Any) -> Phase:
    requests = tuple(request(i, scheduled_s=at, **more) for i, at in enumerate(times))
    return Phase(name="tail", mode="open", requests=requests)


def target(url: str, **more: Any) -> Target:
    settings = {"request_timeout_s": 20.0, **more}
    return Target(url=url, model="fake", vocab_size=VOCABULARY, salt=f"run-{time.time_ns()}", **settings)


def play(
    url: str,
    phase: Phase,
    *,
    processes: int = 1,
    meanwhile: Callable[[Client, asyncio.Event, list[RequestRow]], Any] | None = None,
    grace_s: float = 1.0,
    **more: Any,
) -> Played:
    """The phase, from start to close. `meanwhile` is a coroutine function that may stop it."""

    async def run() -> Played:
        client = Client(target(url, **more), seed=7, processes=processes, version="test", grace_s=grace_s)
        rows: list[RequestRow] = []
        stop = asyncio.Event()
        try:
            await client.start(probe_timeout_s=5)
            zero = time.perf_counter()
            other = asyncio.create_task(meanwhile(client, stop, rows)) if meanwhile is not None else None
            facts = await client.run(phase, began=zero + 0.05, zero=zero, on_rows=rows.extend, stop=stop)
            if other is not None:
                await other
            assert client.probe is not None
            return Played(sorted(rows, key=lambda row: row.index), facts, client.probe, zero)
        finally:
            await client.close()

    return asyncio.run(run())
