"""A real vLLM server for a test: started in its own process group, waited for, and always stopped."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec

READY_S = 300.0
STOP_S = 60.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


class StartError(Exception):
    """The engine ended before it was ready; `log` is all it wrote."""

    def __init__(self, log: str) -> None:
        super().__init__(log[-4000:])
        self.log = log


class Server(msgspec.Struct, frozen=True):
    """A server that answers; figures are read where vLLM itself publishes them."""

    url: str
    log_path: Path
    pid: int

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def cache_config(self) -> dict[str, str]:
        """The labels of vllm:cache_config_info, each as text."""
        metrics = httpx.get(f"{self.url}/metrics", timeout=30).text
        line = re.search(r"^vllm:cache_config_info\{(.*)\} 1", metrics, re.MULTILINE)
        assert line is not None, metrics[:2000]
        return dict(re.findall(r'(\w+)="([^"]*)"', line[1]))

    def printed(self) -> tuple[int, float]:
        """(KV cache size in tokens, maximum concurrency) of the start-up log."""
        tokens = re.search(r"KV cache size: ([\d,]+) tokens", self.log)
        concurrency = re.search(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x", self.log)
        assert tokens is not None, self.log[-2000:]
        assert concurrency is not None, self.log[-2000:]
        return int(tokens[1].replace(",", "")), float(concurrency[1])


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextmanager
def serving(python: Path, model: Path, arguments: list[str], log_path: Path) -> Iterator[Server]:
    """A server of `model` with vLLM's own arguments, ready to answer.

    Raises StartError when it ends, or is not ready, in time. On the way out the whole process group is told to stop,
    and killed if it does not.
    """
    port = free_port()
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny", *arguments]
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **OFFLINE}, start_new_session=True
        )
    server = Server(f"http://127.0.0.1:{port}", log_path, process.pid)
    try:
        _wait_until_ready(process, server)
        yield server
    finally:
        _stop(process)


def _wait_until_ready(process: subprocess.Popen[bytes], server: Server) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise StartError(server.log)
        try:
            if httpx.get(f"{server.url}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise StartError(f"not ready after {READY_S:.0f} s\n{server.log}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            continue
        if not _group_lives(process.pid):
            break
    process.wait(STOP_S)


def _group_lives(group: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True
