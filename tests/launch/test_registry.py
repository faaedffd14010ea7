"""A detached server lives on without its launcher, is found again, and only it is ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import msgspec
import pytest

from advisor.errors import EngineUnavailable
from launch.process_tree import boot_id, read_process
from launch.registry import ServerRecord, leave_running, running_servers, stop_server
from launch.server import start
from launch.user_dirs import state_dir, write_whole
from tests.launch.engines import QUICK, command, eventually, is_bound, mark_of, marked

ROOT = Path(__file__).resolve().parents[2]
DETACHER = """
import os, pathlib, sys, msgspec
from launch.engine_command import EngineCommand
from launch.registry import leave_running
from launch.server import start
from tests.launch.engines import QUICK
wanted = msgspec.json.decode(pathlib.Path(sys.argv[1]).read_bytes(), type=EngineCommand)
leave_running(start(wanted, wait=QUICK, log_path=pathlib.Path(sys.argv[2])), os.environ)
"""


def detach(faults: dict[str, object], folder: Path) -> tuple[str, int]:
    """Start the stand-in from a process that ends at once; its mark and port."""
    wanted = command(faults, drain_s=1)
    (folder / "command.json").write_bytes(msgspec.json.encode(wanted))
    subprocess.run(
        [sys.executable, "-W", "error", "-c", DETACHER, str(folder / "command.json"), str(folder / "log")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
        timeout=60,
    )
    return mark_of(wanted), wanted.port


@pytest.mark.parametrize(
    ("faults", "grace_s"),
    [({}, None), ({"fork": "leaver"}, None), ({"ignore_sigterm": 1, "fork": "child"}, 0.2)],
    ids=["orderly", "leaves-one-behind", "deaf"],
)
def test_a_detached_server_lives_until_it_is_stopped(
    faults: dict[str, object], grace_s: float | None, tmp_path: Path
) -> None:
    mark, port = detach(faults, tmp_path)
    [record] = running_servers(os.environ)
    assert (record.port, record.model) == (port, "org/model")
    assert record.log_path == str(tmp_path / "log")
    assert httpx.get(f"{record.url}/health", trust_env=False).status_code == 200
    outcome = stop_server(record, os.environ, grace_s=grace_s)
    assert outcome.left == ()
    assert eventually(lambda: marked(mark) == [])
    assert not is_bound(port)
    assert running_servers(os.environ) == []
    assert list((state_dir(os.environ) / "servers").iterdir()) == []


def test_an_engine_that_ends_by_itself_is_struck_off(tmp_path: Path) -> None:
    mark, _ = detach({}, tmp_path)
    [record] = running_servers(os.environ)
    os.kill(record.pid, 9)
    assert eventually(lambda: marked(mark) == [])
    assert list((state_dir(os.environ) / "servers").iterdir()) == []
    assert "the engine ended: signal 9" in (tmp_path / "log").read_text()
    assert stop_server(record, os.environ).seconds < 1.0


def test_a_server_whose_supervisor_is_gone_is_ended_all_the_same(tmp_path: Path) -> None:
    mark, _ = detach({"ignore_sigterm": 1, "fork": "child"}, tmp_path)
    [record] = running_servers(os.environ)
    os.kill(record.supervisor_pid, 9)
    assert eventually(lambda: read_process(record.supervisor_pid) is None or len(marked(mark)) == 2)
    assert running_servers(os.environ) == [record]
    outcome = stop_server(record, os.environ, grace_s=0.2)
    assert outcome.was_killed
    assert eventually(lambda: marked(mark) == [])
    for folder in (Path(os.environ["TMPDIR"])).iterdir():  # its supervisor would have removed it
        folder.rmdir()


def record(**changed: object) -> ServerRecord:
    plain = ServerRecord(
        url="http://127.0.0.1:1",
        port=1,
        model="m",
        pid=1 << 22,
        pid_ticks=1,
        supervisor_pid=1 << 22,
        supervisor_ticks=1,
        boot=boot_id(),
        log_path="",
        started_unix_s=0.0,
    )
    return msgspec.structs.replace(plain, **changed)


def test_another_process_with_that_pid_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as bystander:
        try:
            time.sleep(0.05)
            seen = read_process(bystander.pid)
            assert seen is not None
            stale = record(pid=bystander.pid, pid_ticks=seen.start_ticks + 1, supervisor_pid=bystander.pid)
            elsewhen = record(pid=bystander.pid, pid_ticks=seen.start_ticks, boot="another boot")
            for old in (stale, elsewhen):
                assert not old.is_running
                assert stop_server(old, os.environ).was_killed is False
            assert bystander.poll() is None
        finally:
            bystander.kill()


def test_stale_and_broken_files_are_removed() -> None:
    folder = state_dir(os.environ) / "servers"
    write_whole(folder / "1.json", msgspec.json.encode(record()))
    write_whole(folder / "2.json", b"{")
    assert running_servers(os.environ) == []
    assert list(folder.iterdir()) == []


def test_a_server_that_cannot_be_written_down_stays_in_the_foreground(tmp_path: Path) -> None:
    wanted = command()
    with start(wanted, wait=QUICK, log_path=tmp_path / "log") as server:
        (tmp_path / "file").write_text("")
        with pytest.raises(EngineUnavailable, match="cannot be written down"):
            leave_running(server, {"XDG_STATE_HOME": str(tmp_path / "file")})
    assert marked(mark_of(wanted)) == []


def test_a_server_that_has_ended_cannot_be_left_running(tmp_path: Path) -> None:
    server = start(command(), wait=QUICK, log_path=tmp_path / "log")
    server.stop()
    with pytest.raises(EngineUnavailable, match="has ended"):
        leave_running(server, os.environ)
