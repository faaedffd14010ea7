"""A failed start is always explained: by its log where that knows, else by what the launcher saw."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from launch.explain import explain
from launch.ports import ask_port
from launch.process import Exit
from launch.progress import Phase
from launch.server import StartFailed, StartFailure, start
from launch.start_progress import Wait
from launch.state_line import state_line
from tests.launch.engines import QUICK, command


@pytest.mark.parametrize(
    ("faults", "wait", "code"),
    [
        pytest.param({"die": "load", "code": -9}, QUICK, "killed-by-host", id="killed"),
        pytest.param({"die": "load", "code": 1}, QUICK, "unexplained", id="died"),
        pytest.param({"hang": "load"}, Wait(stall_s=0.3, poll_s=0.02), "start-stalled", id="stalled"),
        pytest.param({"hang": "load"}, Wait(limit_s=0.3, poll_s=0.02), "start-limit", id="limit"),
        pytest.param({"name": "other"}, QUICK, "wrong-server", id="other-model"),
        pytest.param({"token": 404}, QUICK, "no-completions", id="no-completions"),
    ],
)
def test_the_cause_comes_first(faults: dict[str, object], wait: Wait, code: str, tmp_path: Path) -> None:
    with pytest.raises(StartFailed) as caught:
        start(command(faults), wait=wait, log_path=tmp_path / "log")
    cause = explain(caught.value.failure)[0]
    assert cause.code == code
    assert cause.message
    assert cause.remedy
    assert cause.evidence
    line = state_line("failed", seconds=1.23456, diagnosis={"code": cause.code, "message": cause.message})
    assert line["schema"] == "kvadvise.launch/1"
    assert line["diagnosis"] == {"code": code, "message": cause.message, "remedy": None, "evidence": None}


def gone(log: Path, *, log_begin: int = 0, port: int | None = None) -> StartFailure:
    """An engine that has ended by itself with exit code 1."""
    return StartFailure(
        kind="exited",
        code="engine-ended",
        text="",
        exit=Exit(code=1),
        phase=Phase.LOADING,
        elapsed_s=5.0,
        log_path=log,
        log_begin=log_begin,
        host="127.0.0.1",
        port=port,
    )


LOST = "(APIServer pid=1) ERROR 01-02 03:04:05 [u.py:1] RuntimeError: Failed core proc(s): {}"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        pytest.param(
            "(EngineCore pid=2) INFO 01-02 03:04:05 [g.py:1] Starting to load model", "killed-by-host", id="silent"
        ),
        pytest.param("(EngineCore pid=2) ERROR 01-02 03:04:05 [g.py:1] ValueError: odd", "unexplained", id="it-spoke"),
    ],
)
def test_an_engine_that_vanishes_without_a_word_was_killed(said: str, code: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"earlier start\n{said}\n{LOST}\n")
    failure = gone(log, log_begin=len("earlier start\n"))
    assert failure.lines() == [said, LOST]
    assert explain(failure)[0].code == code


def test_a_port_in_use_is_answered_with_one_that_is_free(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        bind = f"error while attempting to bind on address ('127.0.0.1', {port}): address already in use"
        log.write_text(f"(APIServer pid=1) ERROR 01-02 03:04:05 [l.py:1] [Errno 98] {bind}\n")
        exited = {
            "kind": "exited",
            "code": "engine-ended",
            "text": "",
            "exit": Exit(code=1),
            "phase": Phase.CONFIGURING,
        }
        failure = StartFailure(**exited, elapsed_s=5.0, log_path=log, host="127.0.0.1", port=port)  # type: ignore[arg-type]
        [cause] = explain(failure)
        assert cause.change is not None
        assert port < cause.change["port"] <= port + 100
        assert ask_port("127.0.0.1", cause.change["port"]).state == "free"
        assert str(cause.change["port"]) in cause.remedy


def test_a_line_has_every_key_whatever_is_known() -> None:
    line = state_line("ready", seconds=2, url="u", pid=3, planned={"num_blocks": 4, "other": 5}, log_path="l")
    assert set(line) == {
        *("schema", "state", "url", "pid", "seconds", "diagnosis", "planned", "actual", "log_path"),
    }
    assert line["planned"]["num_blocks"] == 4
    assert "other" not in line["planned"]
    assert line["actual"] == dict.fromkeys(line["planned"])
    assert (line["diagnosis"], line["seconds"]) == (None, 2)
