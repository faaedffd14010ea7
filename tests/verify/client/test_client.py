"""The client at work: what it stamps, sends, gives up and says of itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from advisor.errors import EngineUnavailable, InvalidInput
from tests.verify.client.harness import closed, opened, play, request, target
from tests.verify.fake_vllm import serving
from verify.client.pool import Client
from verify.load.types import Phase
from verify.record.types import RequestRow

TLS = Path(__file__).resolve().parents[2] / "data" / "tls"


def lag_of(row: RequestRow) -> float:
    assert row.sent_s is not None
    assert row.scheduled_s is not None
    return row.sent_s - row.scheduled_s


def test_stamps_are_the_servers_times() -> None:
    with serving(step_s=0.02) as fake:
        played = play(fake.url, closed(12, 1, output=15))
        jobs = fake.log[1:]  # after the probe
    assert played.outcomes == {"ok"}
    first, last, stall = [], [], []
    for row, job in zip(played.rows, jobs, strict=True):
        assert row.first_token_s is not None
        assert row.last_token_s is not None
        assert row.max_stall_s is not None
        first.append(played.zero + row.first_token_s - job.token_times[0])
        last.append(played.zero + row.last_token_s - job.token_times[-1])
        gaps = [b - a for a, b in zip(job.token_times, job.token_times[1:], strict=False)]
        stall.append(abs(row.max_stall_s - max(gaps)))
        assert (row.streamed_tokens, row.chunks, row.first_chunk_tokens) == (15, 15, 1)
    assert min(first + last) >= 0
    assert statistics.median(first) < 0.004
    assert statistics.median(last) < 0.004
    assert statistics.median(stall) < 0.004


def test_planted_pace_is_measured() -> None:
    with serving(step_s=0.03) as fake:
        played = play(fake.url, closed(4, 4, output=20))
    for row in played.rows:
        assert row.chunk_gaps_s is not None
        assert row.chunk_gaps_s[0] == pytest.approx(0.03, abs=0.008)


def test_five_hundred_streams_at_once_from_one_process() -> None:
    with serving(step_s=0.1, max_num_seqs=600, num_blocks=8192, max_num_batched_tokens=65536) as fake:
        played = play(fake.url, closed(500, 500, output=20))
        peak = max(fake.engine.counters.iteration_tokens, 0)
    assert played.outcomes == {"ok"}
    assert played.facts.max_in_flight == 500
    assert played.facts.connections == 500
    assert sum(row.streamed_tokens for row in played.rows) == 500 * 20
    assert peak > 500 * 20


def test_an_open_loop_waits_for_nobody() -> None:
    times = [i * 0.01 for i in range(60)]

    async def end(_client: Client, stop: asyncio.Event, _rows: list[RequestRow]) -> None:
        await asyncio.sleep(1.2)
        stop.set()

    with serving(faults={"hang": 0}, fault_after=1) as fake:
        played = play(fake.url, opened(times), meanwhile=end, grace_s=0.1)
        reached = len(fake.log) - 1
    assert reached == 60
    assert played.facts.max_in_flight == 60
    assert played.outcomes == {"abandoned"}
    assert played.facts.stopped_early
    assert statistics.median(map(lag_of, played.rows)) < 0.01


def test_a_schedule_is_kept_and_counted_from_the_phases_start() -> None:
    times = [0.0, 0.0, 0.05, 0.2, 0.2, 0.5]
    with serving(step_s=0.005) as fake:
        played = play(fake.url, opened(times))
    began = played.facts.began_s
    assert began is not None
    assert [row.scheduled_s for row in played.rows] == pytest.approx([began + at for at in times])
    assert all(-0.001 <= lag_of(row) < 0.1 for row in played.rows)
    assert played.facts.unsent == 0


def test_requests_go_round_the_processes_and_places_are_divided() -> None:
    with serving(step_s=0.005) as fake:
        played = play(fake.url, closed(30, 5), processes=3)
    assert played.outcomes == {"ok"}
    assert [row.index for row in played.rows] == list(range(30))
    assert [row.process for row in played.rows] == [i % 3 for i in range(30)]
    assert (played.facts.processes, played.facts.max_in_flight) == (3, 5)


def test_more_processes_than_places() -> None:
    with serving(step_s=0.002) as fake:
        played = play(fake.url, closed(4, 1), processes=2)
    assert played.facts.max_in_flight == 1
    assert len(played.rows) == 4


def test_cancelled_requests_leave_and_the_server_sees_it() -> None:
    with serving(step_s=0.01, num_blocks=512) as fake:
        played = play(fake.url, closed(6, 3, output=400, expect="cancel", cancel_after_tokens=5))
        before = play(fake.url, closed(3, 1, output=400, expect="cancel", cancel_after_tokens=0))
        time.sleep(0.2)
        assert fake.engine.pool.usage == 0.0
        assert not fake.engine.running
        aborted = fake.engine.counters.done["abort"]
    assert aborted == 9
    assert played.outcomes == before.outcomes == {"cancelled"}
    assert all(5 <= row.streamed_tokens < 20 for row in played.rows)
    assert all(row.streamed_tokens <= 2 for row in before.rows)
    assert {row.error for row in played.rows} == {None}


def test_who_is_to_leave_and_gets_a_whole_answer_is_no_cancellation() -> None:
    with serving(faults={"coalesced": 50}, fault_after=1) as fake:
        played = play(fake.url, closed(1, output=4, expect="cancel", cancel_after_tokens=3))
    assert played.row.outcome == "ok"


def test_a_stop_lets_open_requests_end_and_sends_no_more() -> None:
    async def end(_client: Client, stop: asyncio.Event, rows: list[RequestRow]) -> None:
        while not rows:
            await asyncio.sleep(0.01)
        stop.set()

    with serving(step_s=0.01) as fake:
        played = play(fake.url, closed(100, 2, output=20), meanwhile=end, grace_s=5.0)
        seen = len(fake.log) - 1
    assert played.outcomes == {"ok"}
    assert len(played.rows) == seen < 20
    assert played.facts.unsent == 100 - seen
    assert played.facts.stopped_early


def test_what_is_open_after_the_grace_is_abandoned() -> None:
    async def end(_client: Client, stop: asyncio.Event, _rows: list[RequestRow]) -> None:
        await asyncio.sleep(0.4)
        stop.set()

    with serving(step_s=0.02) as fake:
        began = time.perf_counter()
        played = play(fake.url, closed(3, 3, output=3000), meanwhile=end, grace_s=0.2)
        took = time.perf_counter() - began
        time.sleep(0.2)
        assert not fake.engine.running
    assert played.outcomes == {"abandoned"}
    assert all(row.streamed_tokens > 5 and row.first_token_s is not None for row in played.rows)
    assert took < 5


@pytest.mark.parametrize("processes", [1, 2])
def test_a_process_that_dies_is_never_silent(processes: int) -> None:
    async def kill(client: Client, _stop: asyncio.Event, _rows: list[RequestRow]) -> None:
        await asyncio.sleep(0.4)
        os.kill(client.pids[0], signal.SIGKILL)

    with serving(step_s=0.01) as fake:
        played = play(fake.url, closed(8, 4, output=60), processes=processes, meanwhile=kill)
    assert len(played.rows) == 8
    lost = [row for row in played.rows if row.outcome == "abandoned"]
    assert lost
    assert {row.error for row in lost} == {"client process 0 ended by signal 9"}
    assert {row.outcome for row in played.rows if row.process == 1} <= {"ok"}
    assert "signal 9" in played.facts.faults[0]


def test_after_a_death_the_next_phase_has_a_new_process() -> None:
    async def run(url: str) -> list[str]:
        client = Client(target(url), seed=1, version="test")
        try:
            await client.start()
            os.kill(client.pids[0], signal.SIGKILL)
            rows: list[RequestRow] = []
            zero = time.perf_counter()
            for _ in range(2):
                await asyncio.sleep(0.2)
                await client.run(closed(2), began=zero, zero=zero, on_rows=rows.extend, stop=asyncio.Event())
            return [row.outcome for row in rows]
        finally:
            await client.close()

    with serving(step_s=0.002) as fake:
        assert asyncio.run(run(fake.url)) == ["ok"] * 4


def test_a_slow_client_says_so() -> None:
    async def hold_up(client: Client, _stop: asyncio.Event, rows: list[RequestRow]) -> None:
        while len(rows) < 40:
            os.kill(client.pids[0], signal.SIGSTOP)
            await asyncio.sleep(0.15)
            os.kill(client.pids[0], signal.SIGCONT)
            await asyncio.sleep(0.1)

    times = [i * 0.02 for i in range(40)]
    with serving(step_s=0.005) as fake:
        quick = play(fake.url, opened(times))
        slow = play(fake.url, opened(times), meanwhile=hold_up)
    assert slow.outcomes == {"ok"}
    assert slow.facts.loop_lag_p99_s is not None
    assert quick.facts.loop_lag_p99_s is not None
    assert slow.facts.loop_lag_p99_s > 0.1 > quick.facts.loop_lag_p99_s
    assert max(map(lag_of, slow.rows)) > 0.08
    assert 0 < quick.facts.cpu_fraction < 1


def test_an_idle_phase_sends_nothing_and_ends_on_time() -> None:
    with serving() as fake:
        played = play(fake.url, Phase(name="baseline", mode="idle", seconds=0.2))
        assert len(fake.log) == 1
    assert played.rows == []
    assert played.facts.wall_s == pytest.approx(0.2, abs=0.1)


def test_connections_are_kept() -> None:
    with serving(step_s=0.002) as fake:
        played = play(fake.url, closed(40, 4))
    assert played.facts.connections == 4
    assert {row.retries for row in played.rows} == {0}


def test_new_connections_for_every_answer_leave_nobody_waiting() -> None:
    with serving(step_s=0.0005, faults={"until_close": 0}) as fake:
        played = play(fake.url, closed(400, 12, output=2))
    assert played.outcomes == {"ok"}
    assert played.facts.connections >= 400


def test_a_connection_cap_of_the_server_is_not_ours() -> None:
    with serving(step_s=0.02, faults={"connection_cap": 10}) as fake:
        played = play(fake.url, closed(15, 15, output=10), request_timeout_s=1.0)
    assert played.facts.max_in_flight == 15
    assert sorted({row.outcome for row in played.rows}) == ["client_timeout", "ok"]


# What is sent


def test_the_body_asks_for_exact_lengths() -> None:
    with serving(step_s=0.002) as fake:
        play(fake.url, closed(1, prompt=30, output=5), api_key="sk-very-secret")
        body, headers = fake.bodies[-1], fake.headers[-1]
    salt = body.pop("cache_salt")
    prompt = body.pop("prompt")
    assert len(prompt) == 30
    assert all(isinstance(token, int) and 0 <= token < 1024 for token in prompt)
    assert salt.startswith("run-")
    assert body == {
        "model": "fake",
        "max_tokens": 5,
        "min_tokens": 5,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    assert headers["user-agent"] == "kvadvise/test (verify)"
    assert headers["authorization"] == "Bearer sk-very-secret"
    assert headers["host"] == fake.url.removeprefix("http://")


def test_beyond_the_limit_it_asks_as_others_do() -> None:
    with serving(step_s=0.002) as fake:
        play(fake.url, closed(1, expect="refusal_or_shortened"))
        assert "min_tokens" not in fake.bodies[-1]


def test_a_recorded_request_goes_as_it_was() -> None:
    recorded = {"model": "theirs", "messages": [{"role": "user", "content": "hé\u2028"}], "max_tokens": 6, "top_p": 0.9}
    body = json.dumps(recorded).encode()
    with serving(step_s=0.002) as fake:
        played = play(
            fake.url, Phase(name="tail", mode="closed", requests=(request(body=body, output=6),), concurrency=1)
        )
        sent = fake.bodies[-1]
    assert played.row.outcome == "ok"
    assert played.row.is_recorded
    assert (sent["messages"], sent["max_tokens"], sent["top_p"]) == (recorded["messages"], 6, 0.9)
    assert (sent["model"], sent["stream"]) == ("fake", True)
    assert "ignore_eos" not in sent


def test_a_recorded_request_that_is_none_is_the_users_to_mend() -> None:
    with serving() as fake, pytest.raises(InvalidInput, match="no JSON"):
        play(fake.url, closed(1, body=b"{nonsense"))


def test_prefixes_are_shared_within_a_run_and_not_between_runs() -> None:
    with serving(step_s=0.002, prompt_tokens_details=True) as fake:
        same = tuple(
            msgspec.structs.replace(request(i, prompt=64), parts=request(0, prompt=64).parts) for i in range(3)
        )
        phase = Phase(name="peak", mode="closed", requests=same, concurrency=1)
        first, second = play(fake.url, phase), play(fake.url, phase)
    assert [row.served_cached_tokens for row in first.rows] == [0, 48, 48]
    assert [row.served_cached_tokens for row in second.rows] == [0, 48, 48]


# What the server takes


def test_a_server_that_refuses_fields_is_asked_without_them() -> None:
    with serving(step_s=0.002, forbids_extra=("return_token_ids", "cache_salt")) as fake:
        played = play(fake.url, closed(2))
    assert played.outcomes == {"ok"}
    assert played.probe.counts_by == "running_usage"
    assert len(played.probe.notes) == 2
    assert played.rows[0].chunks == 8


def test_a_server_that_ignores_token_ids_counts_itself() -> None:
    with serving(step_s=0.002, ignores=("return_token_ids",)) as fake:
        played = play(fake.url, closed(2))
    assert played.outcomes == {"ok"}
    assert played.probe.counts_by == "running_usage"
    assert {row.streamed_tokens for row in played.rows} == {8}


def test_what_is_wrong_with_the_server_is_known_before_the_run() -> None:
    with serving(faults={"http_500": 0}) as fake:
        assert play(fake.url, Phase(name="baseline", mode="idle")).probe.outcome == "http_5xx"
    with serving(api_key="right") as fake:
        probe = play(fake.url, Phase(name="baseline", mode="idle"), api_key="wrong-key").probe
    assert (probe.outcome, probe.status) == ("http_4xx", 401)


# Secrets, certificates, addresses


def test_the_key_is_in_nothing_that_leaves_the_client() -> None:
    key = "sk-0123456789-secret"
    seen = []
    for faults in ({}, {"error_event": 0.0}, {"http_400": 0.0}, {"stream_breaks": 0.0}):
        with serving(step_s=0.002, api_key=key, faults=faults, fault_after=1) as fake:
            played = play(fake.url, closed(2), api_key=key)
            seen.append(repr((played.rows, played.facts, played.probe)))
    with serving(api_key="another") as fake:
        seen.append(repr(play(fake.url, closed(1), api_key=key).rows))
    assert key not in "".join(seen)
    assert "401" in seen[-1]


def test_a_proxy_of_the_environment_plays_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with serving(step_s=0.002) as fake:
        assert play(fake.url, closed(1)).row.outcome == "ok"


def test_tls_with_an_authority_of_ones_own() -> None:
    certificate, key = str(TLS / "certificate.pem"), str(TLS / "key.pem")
    with serving(step_s=0.002, tls=(certificate, key)) as fake:
        trusted = play(fake.url, closed(6, 2), ca_file=certificate)
        by_name = play(fake.url.replace("127.0.0.1", "localhost"), closed(1), ca_file=certificate)
        untrusted = play(fake.url, closed(1))
    assert trusted.outcomes == by_name.outcomes == {"ok"}
    assert trusted.facts.connections == 2
    assert untrusted.row.outcome == "connect_error"
    assert "TLS: self-signed certificate" in (untrusted.row.error or "")


@pytest.mark.parametrize(
    ("url", "more", "kind"),
    [
        ("ftp://127.0.0.1", {}, InvalidInput),
        ("http://me:pw@127.0.0.1", {}, InvalidInput),
        ("http://127.0.0.1:99999", {}, InvalidInput),
        ("https://127.0.0.1", {"ca_file": "/nowhere.pem"}, InvalidInput),
        ("http://no-such-host.invalid", {}, EngineUnavailable),
    ],
)
def test_addresses_that_cannot_be_asked(url: str, more: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        play(url, closed(1), **more)


# Processes


def test_children_end_with_their_parent() -> None:
    script = (
        "import asyncio, sys\n"
        "from tests.verify.client.harness import target\n"
        "from verify.client.pool import Client\n"
        "async def main():\n"
        "    client = Client(target(sys.argv[1]), seed=1, processes=2, version='test')\n"
        "    await client.start()\n"
        "    print(*client.pids, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    root = str(Path(__file__).resolve().parents[3])
    with serving() as fake:
        parent = subprocess.Popen([sys.executable, "-c", script, fake.url], stdout=subprocess.PIPE, cwd=root)
        assert parent.stdout is not None
        with parent.stdout:
            pids = [int(word) for word in parent.stdout.readline().split()]
            assert len(pids) == 2
            for pid in pids:
                os.kill(pid, signal.SIGINT)
            time.sleep(0.3)
            assert all(Path(f"/proc/{pid}").exists() for pid in pids)
            parent.kill()
            parent.wait()
        deadline = time.monotonic() + 5
        while any(_runs(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)
    assert not any(_runs(pid) for pid in pids)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_too_few_files_is_said_before_anything_is_sent() -> None:
    script = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))\n"
        "from tests.verify.client.harness import closed, play\n"
        "from advisor.errors import InvalidInput\n"
        "try:\n"
        "    play(sys.argv[1], closed(300, 300))\n"
        "except InvalidInput as error:\n"
        "    print(error.what, '|', error.hint)\n"
    )
    root = str(Path(__file__).resolve().parents[3])
    with serving() as fake:
        done = subprocess.run(
            [sys.executable, "-c", script, fake.url], capture_output=True, text=True, cwd=root, timeout=60, check=True
        )
        assert len(fake.log) == 1
    assert "300 requests at once need as many open files, and this process may have 128" in done.stdout
    assert "ulimit -n 364" in done.stdout


def test_no_more_files_in_the_middle_is_this_machines_fault() -> None:
    script = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))\n"
        "from tests.verify.client.harness import opened, play\n"
        "played = play(sys.argv[1], opened([0.0] * 80), request_timeout_s=2)\n"
        "print(sorted(played.outcomes), played.facts.faults)\n"
    )
    root = str(Path(__file__).resolve().parents[3])
    with serving(faults={"hang": 0}, fault_after=1) as fake:
        done = subprocess.run(
            [sys.executable, "-c", script, fake.url], capture_output=True, text=True, cwd=root, timeout=60, check=True
        )
    assert "['abandoned', 'client_timeout']" in done.stdout
    assert "this process may open no more files" in done.stdout
