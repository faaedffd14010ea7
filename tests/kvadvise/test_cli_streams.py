"""What a terminal and a pipe do to a process: Ctrl-C, a full disk, a reader that goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kvadvise.processes import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def start(shell: Shell, *arguments: str, stdout: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "kvadvise", *arguments]
    return subprocess.Popen(command, cwd=shell.folder, env=shell.env, stdout=stdout, stderr=subprocess.PIPE)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    assert process.stderr is not None
    said = process.stderr.read().decode()
    process.stderr.close()
    return process.wait(timeout=60), said


def test_interrupted_while_reading(shell: Shell) -> None:
    pipe = shell.folder / "slow.yaml"
    os.mkfifo(pipe)
    process = start(shell, "plan", "slow.yaml", stdout=subprocess.DEVNULL)
    writer = os.open(pipe, os.O_WRONLY)  # opens once the command reads
    process.send_signal(signal.SIGINT)
    code, said = ended(process)
    os.close(writer)
    assert code == 130
    assert "Traceback" not in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is always full")
@pytest.mark.parametrize("arguments", [("plan", "chat-8k"), ("plan", "chat-8k", "--json"), ("gpus",)], ids=" ".join)
def test_a_full_disk_is_one_line(arguments: tuple[str, ...], shell: Shell) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    process = start(shell, *arguments, stdout=full)
    os.close(full)
    assert ended(process) == (2, "error: standard output: cannot write: No space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("plan", "chat-8k", "--json"), 0),
        (("plan", "chat-8k", "--set", "workload.concurrency=9999"), 3),
        (("gpus",), 0),
    ],
    ids=["json", "page", "gpus"],
)
def test_a_reader_that_is_gone_changes_no_exit_code(arguments: tuple[str, ...], code: int, shell: Shell) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = start(shell, *arguments, stdout=writer)
    os.close(writer)
    assert ended(process) == (code, "")
