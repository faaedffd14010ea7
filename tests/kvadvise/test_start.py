"""What `kvadvise plan FILE --json` may cost before it answers: imports and memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kvadvise.processes import Shell

HEAVY = {
    *("rich", "httpx", "httpcore", "huggingface_hub", "requests", "urllib.request", "http.client", "email"),
    *("asyncio", "ssl", "socket", "multiprocessing", "concurrent.futures", "sqlite3", "ctypes", "logging"),
    *("importlib.metadata", "importlib.resources", "dataclasses", "subprocess", "shlex"),
    *("prometheus_client", "pydantic", "numpy", "torch", "vllm", "launch", "verify"),
}
SCRIPT = """
import sys
from kvadvise.main import run
code = run(sys.argv[1:])
peak = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(code, peak[0], *sys.modules, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, int, set[str]]:
    """Exit code, peak resident KiB and modules of a whole run."""
    shell = Shell(tmp_path_factory.mktemp("start"))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "plan", "chat-8k", "--json"],
        cwd=shell.folder,
        env=shell.env,
        capture_output=True,
        text=True,
        check=True,
    )
    code, peak, *modules = done.stderr.split()
    return int(code), int(peak), set(modules)


def test_nothing_heavy_is_imported(answered: tuple[int, int, set[str]]) -> None:
    code, _, modules = answered
    assert code in (0, 3)
    assert HEAVY & modules == set()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")
def test_it_stays_small(answered: tuple[int, int, set[str]]) -> None:
    assert answered[1] < 40 * 1024
