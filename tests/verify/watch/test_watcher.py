"""When a server is gone, when it hangs, and when it is only slow, idle or mute."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from tests.verify.scripted import ScriptedServer
from verify.record.types import Ending, GpuMemory
from verify.watch.probes import NOTHING, Probes
from verify.watch.watcher import LOST_AFTER_S, Watcher

HANG_S = 50.0


class Hours:
    """Looks at a scripted server at times of the test's own choosing: the run's clock is moved, nothing waits."""

    def __init__(self, server: ScriptedServer, probes: Probes = NOTHING) -> None:
        self.watcher = Watcher(
            server.client(), "http://s", zero=time.perf_counter(), probes=probes, hang_after_s=HANG_S
        )

    def end_after(self, seconds: float) -> tuple[Ending, str] | None:
        """One look so much later; how the run ends, if it does."""

        async def look() -> tuple[Ending, str] | None:
            self.watcher._zero -= seconds
            return await self.watcher._end(await self.watcher.look())

        return asyncio.run(look())


@pytest.fixture
def server() -> ScriptedServer:
    return ScriptedServer()


def busy(server: ScriptedServer) -> None:
    server.gauges["num_requests_running"] = 3


def test_a_frozen_engine_hangs_however_healthy_it_is(server: ScriptedServer) -> None:
    """P67: /health 200, requests running, no counter moves."""
    hours = Hours(server)
    busy(server)
    assert hours.end_after(0) is None
    assert hours.end_after(HANG_S - 1) is None
    ended = hours.end_after(2)
    assert ended is not None
    assert ended[0] == "hung"
    assert "3 requests running" in ended[1]
    assert "/health: 200" in ended[1]


@pytest.mark.parametrize("counter", ["generation_tokens", "prompt_tokens"])
def test_an_engine_that_moves_does_not_hang(server: ScriptedServer, counter: str) -> None:
    hours = Hours(server)
    busy(server)
    for _ in range(5):
        server.counters[counter] += 1
        assert hours.end_after(HANG_S - 1) is None


def test_an_idle_engine_does_not_hang(server: ScriptedServer) -> None:
    hours = Hours(server)
    assert hours.end_after(0) is None
    assert hours.end_after(10 * HANG_S) is None


def test_the_clock_of_a_hang_starts_when_work_comes(server: ScriptedServer) -> None:
    hours = Hours(server)
    assert hours.end_after(10 * HANG_S) is None
    busy(server)
    assert hours.end_after(1) is None
    assert hours.end_after(HANG_S - 2) is None
    assert hours.end_after(3) is not None


def test_answers_that_come_back_are_movement(server: ScriptedServer) -> None:
    """Frozen metrics alone are not a frozen engine."""
    hours = Hours(server)
    busy(server)
    hours.end_after(0)
    for _ in range(4):
        hours.watcher.rows_seen += 1
        assert hours.end_after(HANG_S - 1) is None


def test_a_queue_that_is_never_begun_hangs(server: ScriptedServer) -> None:
    hours = Hours(server)
    server.gauges["num_requests_waiting"] = 2
    hours.end_after(0)
    ended = hours.end_after(HANG_S + 1)
    assert ended is not None
    assert "2 waiting" in ended[1]


def test_a_server_nobody_listens_at_is_lost(server: ScriptedServer) -> None:
    hours = Hours(server)
    hours.end_after(0)
    server.error = server.health_error = httpx.ConnectError
    assert hours.end_after(1) is None
    ended = hours.end_after(LOST_AFTER_S + 1)
    assert ended is not None
    assert ended[0] == "engine_lost"


def test_one_refused_connection_is_not_a_loss(server: ScriptedServer) -> None:
    hours = Hours(server)
    hours.end_after(0)
    server.error = httpx.ConnectError
    hours.end_after(1)
    server.error = None
    hours.end_after(LOST_AFTER_S)
    server.error = httpx.ConnectError
    assert hours.end_after(1) is None


def test_a_healthy_server_without_metrics_is_not_lost(server: ScriptedServer) -> None:
    hours = Hours(server)
    server.error = httpx.ReadError
    hours.end_after(1)
    assert hours.end_after(10 * LOST_AFTER_S) is None


def test_a_server_that_never_answers_hangs(server: ScriptedServer) -> None:
    """SIGSTOP: connections are accepted by the kernel, and nothing comes back."""
    hours = Hours(server)
    hours.end_after(0)
    server.error = server.health_error = httpx.ReadTimeout
    assert hours.end_after(HANG_S - 1) is None
    ended = hours.end_after(2)
    assert ended is not None
    assert ended[0] == "hung"


def test_a_mute_server_is_judged_by_its_answers_only(server: ScriptedServer) -> None:
    """No /metrics at all: nothing can be said, so nothing is."""
    server.metrics_status = 404
    hours = Hours(server)
    hours.end_after(0)
    assert hours.end_after(10 * HANG_S) is None
    assert all(seen.metrics is None and seen.error == "/metrics answers 404" for seen in hours.watcher.snapshots)


@pytest.mark.parametrize("text", ["<html>no</html>", "vllm:num_requests_running{engine=", "\x00\xff"])
def test_garbage_is_no_reading(server: ScriptedServer, text: str) -> None:
    server.metrics_text = text
    hours = Hours(server)
    hours.end_after(0)
    seen = hours.watcher.snapshots[-1]
    assert seen.metrics is None or seen.metrics.running is None
    assert seen.metrics is not None or seen.error


def test_a_process_that_has_ended_is_lost_at_once(server: ScriptedServer) -> None:
    hours = Hours(server, Probes(engine_exit=lambda: "killed by SIGKILL"))
    ended = hours.end_after(0)
    assert ended == ("engine_lost", "the engine's process ended during the run: killed by SIGKILL")


def test_memory_is_written_down_as_it_is_seen(server: ScriptedServer) -> None:
    gpu = GpuMemory("GPU-1", 5, 10)
    hours = Hours(server, Probes(resident_bytes=lambda: 7, gpus=lambda: (gpu,)))
    hours.end_after(0)
    assert hours.watcher.snapshots[-1].resident_bytes == 7
    assert hours.watcher.snapshots[-1].gpus == (gpu,)
    without = Hours(server)
    without.end_after(0)
    assert without.watcher.snapshots[-1].resident_bytes is None
    assert without.watcher.snapshots[-1].gpus is None


def test_looks_once_a_second_and_says_once_how_it_ends(server: ScriptedServer) -> None:
    ends: list[tuple[Ending, str]] = []
    exits = iter([None, None, "exit code 1"])

    async def watch() -> None:
        watcher = Watcher(
            server.client(), "http://s", zero=time.perf_counter(), probes=Probes(engine_exit=lambda: next(exits))
        )
        await asyncio.wait_for(watcher.watch(lambda ended, text: ends.append((ended, text))), 10)
        times = [seen.at_s for seen in watcher.snapshots]
        assert [round(at) for at in times] == [0, 1, 2]

    asyncio.run(watch())
    assert [ended for ended, _ in ends] == ["engine_lost"]
