"""One phase at a time, idle between them, and a record that is complete however a run ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.verify.scripted import ScriptedServer
from verify.client.types import ClientFacts
from verify.load.types import Part, Phase, PlannedRequest, Schedule
from verify.record.types import Outcome, RequestRow
from verify.running.player import Player, Record
from verify.watch.probes import NOTHING, Probes
from verify.watch.watcher import Watcher


def request(index: int) -> PlannedRequest:
    return PlannedRequest(
        index=index, phase="peak", prompt_tokens=4, output_tokens=2, parts=(Part(f"r{index}", 4),)
    )  # fmt: skip


def sending(name: str, n: int, first: int = 0) -> Phase:
    return Phase(name=name, mode="closed", concurrency=2, requests=tuple(request(first + i) for i in range(n)))  # type: ignore[arg-type]


def row(wanted: PlannedRequest, outcome: Outcome = "ok", status: int = 200) -> RequestRow:
    return RequestRow(
        index=wanted.index, phase=wanted.phase, prompt_tokens=4, output_tokens=2, outcome=outcome, status=status,
        error=None if outcome == "ok" else "the model does not exist",
    )  # fmt: skip


class Stub:
    """Answers requests one after another, a moment apart; the server is busy meanwhile, and a moment longer."""

    def __init__(self, server: ScriptedServer, *, outcome: Outcome = "ok", pause_s: float = 0.0) -> None:
        self.server = server
        self.outcome: Outcome = outcome
        self.pause_s = pause_s
        self.phases: list[str] = []
        self.busy_at_start: list[float] = []

    async def run(
        self, phase: Phase, *, began: float, zero: float, on_rows: Callable[[list[RequestRow]], None],
        stop: asyncio.Event,
    ) -> ClientFacts:  # fmt: skip
        assert zero < began
        self.phases.append(phase.name)
        self.busy_at_start.append(self.server.gauges["num_requests_running"])
        self.server.gauges["num_requests_running"] = 1
        for wanted in phase.requests:
            if stop.is_set():
                on_rows([row(wanted, "abandoned")])
                continue
            await asyncio.sleep(self.pause_s)
            on_rows([row(wanted, self.outcome, 200 if self.outcome == "ok" else 404)])
        asyncio.get_running_loop().call_later(0.3, self.server.gauges.update, {"num_requests_running": 0.0})
        return ClientFacts(
            phase=phase.name, processes=1, loop="asyncio", wall_s=1, cpu_s=0, cpu_fraction=0, loop_lag_p99_s=0,
            max_in_flight=1, connections=1, coalesced_fraction=0, stopped_early=stop.is_set(),
        )  # fmt: skip


def play(
    phases: tuple[Phase, ...], stub: Stub, *, probes: Probes = NOTHING, limit_s: float | None = None,
    during: Callable[[Player], None] | None = None, after_s: float = 0.0,
) -> Player:  # fmt: skip
    made: list[Player] = []

    async def run() -> None:
        zero = time.perf_counter()
        watcher = Watcher(stub.server.client(), "http://s", zero=zero, probes=probes)
        player = Player(Schedule(seed=0, sha256="x", phases=phases), stub, watcher, zero=zero, limit_s=limit_s)
        made.append(player)
        if during is not None:
            asyncio.get_running_loop().call_later(after_s, during, player)
        await asyncio.wait_for(player.play(), 30)

    asyncio.run(run())
    return made[0]


def test_phases_are_played_in_order_on_an_idle_engine() -> None:
    stub = Stub(ScriptedServer())
    idle = Phase(name="baseline", mode="idle", seconds=0.2)
    drain = Phase(name="drain", mode="idle", seconds=5)
    player = play((idle, sending("regular", 3), sending("peak", 2, 3), drain), stub)
    record = player.record
    assert stub.phases == ["regular", "peak"]
    assert stub.busy_at_start == [0, 0]
    assert [mark.name for mark in record.marks] == ["baseline", "regular", "peak", "drain"]
    assert all(mark.ended_s is not None and mark.ended_s >= mark.began_s for mark in record.marks)
    assert [r.index for r in record.rows] == [0, 1, 2, 3, 4]
    assert [facts.phase for facts in record.client] == ["regular", "peak"]
    assert (record.ended, record.ending_text) == ("finished", "every phase was played")


def test_a_drain_ends_with_the_last_block() -> None:
    server = ScriptedServer()
    server.gauges["kv_cache_usage_perc"] = 0.5

    def release(_: Player) -> None:
        server.gauges["kv_cache_usage_perc"] = 0.0

    began = time.perf_counter()
    play((Phase(name="drain", mode="idle", seconds=20),), Stub(server), during=release, after_s=0.8)
    assert 0.8 < time.perf_counter() - began < 5


def test_a_drain_that_never_comes_is_bounded() -> None:
    server = ScriptedServer()
    server.gauges["kv_cache_usage_perc"] = 0.5
    player = play((Phase(name="drain", mode="idle", seconds=0.5),), Stub(server))
    assert player.record.ended == "finished"


def test_a_signal_ends_it_in_order() -> None:
    stub = Stub(ScriptedServer(), pause_s=0.1)
    player = play(
        (sending("peak", 50), sending("tail", 5, 50)), stub,
        during=lambda p: p.end("interrupted", "interrupted by SIGINT"), after_s=0.45,
    )  # fmt: skip
    record = player.record
    assert record.ended == "interrupted"
    assert stub.phases == ["peak"]
    assert len(record.rows) == 50, "every request has its row, sent or not"
    assert {r.outcome for r in record.rows} == {"ok", "abandoned"}
    assert record.marks[-1].ended_s is not None


def test_a_limit_of_time_ends_it() -> None:
    record = play((sending("peak", 50),), Stub(ScriptedServer(), pause_s=0.1), limit_s=0.6).record
    assert record.ended == "time_limit"
    assert "0.01 minutes" in record.ending_text


def test_an_engine_that_is_gone_ends_it() -> None:
    exits = iter([None, None])
    probes = Probes(engine_exit=lambda: next(exits, "killed by SIGKILL"))
    record = play((sending("peak", 100),), Stub(ScriptedServer(), pause_s=0.05), probes=probes).record
    assert record.ended == "engine_lost"
    assert "killed by SIGKILL" in record.ending_text


@pytest.mark.parametrize("n", [3, 40])
def test_a_load_that_is_refused_from_the_first_is_not_sent_on(n: int) -> None:
    stub = Stub(ScriptedServer(), outcome="http_4xx", pause_s=0.01)
    record = play((sending("warm_up", n), sending("peak", 5, n)), stub).record
    assert record.ended == "load_refused"
    assert "404 the model does not exist" in record.ending_text
    assert stub.phases == ["warm_up"]


def test_the_first_reason_stands() -> None:
    def twice(player: Player) -> None:
        player.end("interrupted", "first")
        player.end("time_limit", "second")

    record = play((sending("peak", 50),), Stub(ScriptedServer(), pause_s=0.1), during=twice, after_s=0.3).record
    assert (record.ended, record.ending_text) == ("interrupted", "first")


def test_a_record_says_nothing_good_before_its_end() -> None:
    """Whatever kills the run in the middle leaves a record that is no pass."""
    assert Record().ended == "interrupted"
