"""Asking for promptness never fails, and never lowers what a process has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from verify.client import priority

ROOT = str(Path(__file__).resolve().parents[3])


@pytest.mark.parametrize("uid", ["self", "nobody"])
def test_it_asks_for_what_is_allowed(uid: str) -> None:
    if uid == "nobody" and os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    script = (
        "import os, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from verify.client.priority import ask_for_promptness\n"
        "os.setuid(65534) if sys.argv[2] == 'nobody' else None\n"
        "before = os.getpriority(os.PRIO_PROCESS, 0)\n"
        "ask_for_promptness()\n"
        "print(before, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, ROOT, uid], capture_output=True, text=True, check=True)
    before, after, policy = map(int, done.stdout.split())
    assert after in (before, -10)
    assert uid == "self" or after == before
    assert policy == os.SCHED_OTHER


def test_an_unknown_machine_keeps_its_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "setpriority", lambda *_: (_ for _ in ()).throw(PermissionError()))
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    priority.ask_for_promptness()
