"""A start by a stand-in engine: it becomes a server, or one error says what happened; nothing is left either way."""

from __future__ import annotations

import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import msgspec
import pytest

from advisor.errors import EngineUnavailable, InvalidInput
from launch.engine_entry import docker_entry
from launch.process import Exit
from launch.progress import Phase
from launch.server import StartFailed, default_log_path, start
from launch.start_progress import StartProgress, Wait
from tests.launch.engines import QUICK, command, eventually, is_bound, mark_of, marked


def test_a_server_is_ready_and_stops_with_nothing_left(tmp_path: Path) -> None:
    wanted = command(drain_s=1)
    shown: list[StartProgress] = []
    server = start(wanted, wait=QUICK, on_progress=shown.append, log_path=tmp_path / "log")
    assert httpx.get(f"{server.url}/health", trust_env=False).status_code == 200
    assert server.max_model_len == 4096
    assert server.poll() is None
    assert server.resident_bytes() > 1 << 20
    assert 1 << 20 < (server.proportional_bytes() or 0) <= server.resident_bytes()
    phases = [p.progress.phase for p in shown]
    assert phases == sorted(phases)
    assert phases[-1] is Phase.READY
    stopped = server.stop()
    assert stopped.exit == Exit(code=0)
    assert stopped.findings == ()
    assert stopped.released_bytes > 1 << 20
    assert server.stop() is stopped
    assert marked(mark_of(wanted)) == []
    assert not is_bound(wanted.port)
    assert "Application startup complete" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("faults", "exit_state", "phase"),
    [
        pytest.param({"die": "begin"}, Exit(code=1), Phase.CONFIGURING, id="at-once"),
        pytest.param({"die": "load", "code": 3}, Exit(code=3), Phase.LOADING, id="while-loading"),
        pytest.param({"die": "load", "code": -9}, Exit(signal=9), Phase.LOADING, id="killed-while-loading"),
        pytest.param({"die": "pool", "code": -11}, Exit(signal=11), Phase.KV_POOL, id="crashed-after-the-pool"),
        pytest.param(
            {"die": "pool", "fork": "child"}, Exit(code=1, was_killed=True), Phase.KV_POOL, id="child-survives-it"
        ),
    ],
)
def test_an_engine_that_ends_is_a_failed_start(
    faults: dict[str, object], exit_state: Exit, phase: Phase, tmp_path: Path
) -> None:
    wanted = command(faults)
    with pytest.raises(StartFailed) as caught:
        start(wanted, wait=QUICK, log_path=tmp_path / "log")
    failure = caught.value.failure
    assert (failure.kind, failure.exit, failure.phase) == ("exited", exit_state, phase)
    assert any("told to die" in line for line in failure.lines())
    assert caught.value.exit_code == 69
    assert str(tmp_path / "log") in caught.value.hint
    assert marked(mark_of(wanted)) == []


@pytest.mark.parametrize(
    ("faults", "wait", "kind", "says"),
    [
        pytest.param({"hang": "load"}, Wait(stall_s=0.4, poll_s=0.02), "stalled", "loading weights", id="stands-still"),
        pytest.param(
            {"hang": "load", "repeat": 1}, Wait(stall_s=0.4, poll_s=0.02), "stalled", "loading", id="only-complains"
        ),
        pytest.param({"hang": "pool"}, Wait(limit_s=0.4, poll_s=0.02), "limit", "not ready after", id="limit"),
        pytest.param({"name": "other"}, QUICK, "refused", "models other, not org/model", id="other-model"),
        pytest.param({"token": 404}, QUICK, "refused", "does not complete text: 404", id="no-completions"),
        pytest.param({"token": 500}, Wait(stall_s=0.4, poll_s=0.02), "stalled", "answers 500", id="no-token"),
    ],
)
def test_a_start_that_leads_nowhere_is_ended(
    faults: dict[str, object], wait: Wait, kind: str, says: str, tmp_path: Path
) -> None:
    wanted = command(faults)
    with pytest.raises(StartFailed) as caught:
        start(wanted, wait=wait, log_path=tmp_path / "log")
    assert caught.value.failure.kind == kind
    assert says in str(caught.value)
    assert marked(mark_of(wanted)) == []
    assert not is_bound(wanted.port)


def test_a_start_that_moves_outlives_the_stall_limit(tmp_path: Path) -> None:
    wanted = command({"late_s": 1.0, "chatter": 20})
    with start(wanted, wait=Wait(stall_s=5.0, poll_s=0.02), log_path=tmp_path / "log") as server:
        assert server.seconds > 1.0
    assert marked(mark_of(wanted)) == []


def test_another_server_on_the_port_is_not_taken_for_ours(tmp_path: Path) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"data": [{"id": "org/model"}]}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        wanted = command({"hang": "begin"}, port=other.server_port)
        with pytest.raises(StartFailed, match=f"answered by another server .pid {os.getpid()}"):
            start(wanted, wait=QUICK, log_path=tmp_path / "log")
        other.shutdown()
    assert marked(mark_of(wanted)) == []


@pytest.mark.parametrize(
    ("faults", "was_killed"),
    [
        pytest.param({"ignore_sigterm": 1}, True, id="ignores-sigterm"),
        pytest.param({"fork": "child"}, True, id="leaves-a-child"),
        pytest.param({"fork": "leaver"}, True, id="leaves-one-in-another-session"),
        pytest.param({"fork": "child leaver", "ignore_sigterm": 1}, True, id="all-of-it"),
        pytest.param({"drain_s": 0.5}, False, id="takes-its-time"),
    ],
)
def test_a_stop_ends_all_that_was_started(faults: dict[str, object], was_killed: bool, tmp_path: Path) -> None:
    wanted = command(faults)
    server = start(wanted, wait=QUICK, log_path=tmp_path / "log")
    stopped = server.stop(grace_s=2.0)
    assert stopped.exit.was_killed == was_killed
    assert stopped.findings == ()
    assert marked(mark_of(wanted)) == []
    assert not is_bound(wanted.port)


def test_an_engine_that_dies_later_is_seen(tmp_path: Path) -> None:
    wanted = command()
    server = start(wanted, wait=QUICK, log_path=tmp_path / "log")
    os.kill(server.pid, 9)
    assert server.wait(20.0) == Exit(signal=9)
    assert server.stop().exit == Exit(signal=9)
    assert marked(mark_of(wanted)) == []


def test_much_output_never_blocks_the_engine(tmp_path: Path) -> None:
    wanted = command({"chatter": 40_000})  # 6 MB, a pipe holds 64 KiB
    with start(wanted, wait=QUICK, log_path=tmp_path / "log"):
        assert (tmp_path / "log").stat().st_size > 5 << 20


def test_an_earlier_log_in_the_same_file_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("INFO Application startup complete.\n")
    wanted = command({"die": "load"})
    with pytest.raises(StartFailed) as caught:
        start(wanted, wait=QUICK, log_path=tmp_path / "log")
    assert caught.value.failure.phase is Phase.LOADING
    assert "version 0.32.0" in caught.value.failure.lines()[0]


def test_the_engine_gives_up_no_sooner_than_the_launcher(tmp_path: Path) -> None:
    show = (sys.executable, "-I", "-S", "-c", "import os; print('is', os.environ['VLLM_ENGINE_READY_TIMEOUT_S'])")
    for stated, wait, least in (
        ("", Wait(), 86_400),
        ("999999", Wait(limit_s=100.0), 999_999),
        ("5", Wait(limit_s=900.0), 900),
    ):
        shown = msgspec.structs.replace(command(), argv=show)
        with pytest.raises(StartFailed) as caught:
            start(shown, wait=wait, log_path=tmp_path / "log", env=os.environ | {"VLLM_ENGINE_READY_TIMEOUT_S": stated})
        line = [line for line in caught.value.failure.lines() if line.startswith("is ")][-1]
        assert int(line.split()[1]) >= least


def test_what_cannot_be_run_is_an_error(tmp_path: Path) -> None:
    missing = msgspec.structs.replace(command(), argv=("/nowhere/python", "-m", "x"))
    with pytest.raises(EngineUnavailable, match="cannot be run: No such file"):
        start(missing, log_path=tmp_path / "log")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot be written"):
        start(command(), log_path=tmp_path / "file" / "log")
    with pytest.raises(InvalidInput, match="outlive its client"):
        start(msgspec.structs.replace(command(), entry=docker_entry("image", "test", {})), log_path=tmp_path / "log")


def test_an_interrupt_ends_the_engine(tmp_path: Path) -> None:
    wanted = command({"hang": "load", "fork": "child"})

    def interrupt(shown: StartProgress) -> None:
        if shown.progress.phase is Phase.LOADING:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(wanted, wait=QUICK, on_progress=interrupt, log_path=tmp_path / "log")
    assert eventually(lambda: marked(mark_of(wanted)) == [])


def test_logs_of_earlier_starts_do_not_pile_up(tmp_path: Path) -> None:
    folder = tmp_path / "kvadvise" / "logs"
    folder.mkdir(parents=True)
    for i in range(40):
        for ending in ("", ".start", ".1"):
            path = folder / f"{i:02d}.log{ending}"
            path.write_text("")
            os.utime(path, (i, i))
    new = default_log_path({"XDG_STATE_HOME": str(tmp_path)}, 8000)
    assert new.parent == folder
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{i:02d}.log{ending}" for i in range(11, 40) for ending in ("", ".1", ".start")
    ]
