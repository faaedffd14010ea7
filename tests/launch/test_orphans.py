"""However the launcher or the supervisor goes, the engine and all it started go too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launch.server import start
from tests.launch.engines import QUICK, command, eventually, is_bound, mark_of, marked

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = """
import pathlib, sys, time, msgspec
from launch.engine_command import EngineCommand
from launch.server import start
from launch.signals import signals_interrupt
from tests.launch.engines import QUICK
wanted = msgspec.json.decode(pathlib.Path(sys.argv[1]).read_bytes(), type=EngineCommand)
with signals_interrupt():
    with start(wanted, wait=QUICK, log_path=pathlib.Path(sys.argv[2])) as server:
        print("ready", server.pid, flush=True)
        while True:
            time.sleep(60)
"""


def launcher(faults: dict[str, object], folder: Path) -> tuple[subprocess.Popen[str], str, int]:
    """A process that starts the stand-in and waits; with the engine's mark and port."""
    import msgspec

    wanted = command(faults)
    (folder / "command.json").write_bytes(msgspec.json.encode(wanted))
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(folder / "command.json"), str(folder / "log")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return process, mark_of(wanted), wanted.port


def wait_for(text: str, log: Path) -> None:
    assert eventually(lambda: log.exists() and text in log.read_text(errors="replace"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda s: s.name)
@pytest.mark.parametrize("when", ["ready", "loading"])
def test_the_end_of_the_launcher_is_the_end_of_the_engine(how: signal.Signals, when: str, tmp_path: Path) -> None:
    faults: dict[str, object] = {"fork": "leaver"} if when == "ready" else {"hang": "pool", "fork": "leaver"}
    process, mark, port = launcher(faults, tmp_path)
    with process:
        if when == "ready":
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready")
        else:
            wait_for("KV cache size", tmp_path / "log")
        assert len(marked(mark)) == 3  # supervisor, engine, its child
        process.send_signal(how)
        process.wait(30)
    assert eventually(lambda: marked(mark) == [])
    assert not is_bound(port)


def test_a_launcher_killed_with_a_deaf_engine_leaves_nothing(tmp_path: Path) -> None:
    process, mark, port = launcher({"ignore_sigterm": 1, "fork": "child"}, tmp_path)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    assert eventually(lambda: marked(mark) == [], 30.0)
    assert not is_bound(port)


def test_the_end_of_the_supervisor_is_seen_and_the_engine_is_ended(tmp_path: Path) -> None:
    wanted = command({"fork": "child", "ignore_sigterm": 1})
    server = start(wanted, wait=QUICK, log_path=tmp_path / "log")
    os.kill(server.process.supervisor_pid, signal.SIGKILL)
    assert server.wait(30.0) is not None
    assert marked(mark_of(wanted)) == []
    assert server.stop().exit.was_killed


def test_supervisor_and_launcher_killed_together_still_tell_the_engine(tmp_path: Path, own_directories: Path) -> None:
    process, mark, port = launcher({}, tmp_path)
    with process:
        assert process.stdout is not None
        pid = int(process.stdout.readline().split()[1])
        supervisor = next(p for p in marked(mark) if p != pid)
        os.kill(supervisor, signal.SIGKILL)
        process.kill()
    assert eventually(lambda: marked(mark) == [])
    assert not is_bound(port)
    for folder in (own_directories / "tmpdir").iterdir():  # nobody was left to remove the directory of its sockets
        folder.rmdir()
