"""A light engine that looks like vLLM from outside: its flags, its log lines, its endpoints, its ways to fail.

    python stand_in_engine.py --model M --port N [vLLM's other flags, ignored]

Switched by the environment:
    STAND_IN_DIE, STAND_IN_HANG   a phase: begin, load, pool, ready
    STAND_IN_CODE                 the exit code there; negative is a signal it sends itself
    STAND_IN_REPEAT               says one line again and again while it hangs
    STAND_IN_IGNORE_SIGTERM       is deaf
    STAND_IN_FORK                 `child`: as EngineCore; `leaver`: leaves the session and is deaf; or both
    STAND_IN_NAME                 the model it lists
    STAND_IN_TOKEN                the status of a completion
    STAND_IN_LATE_S               seconds between binding the port and listening
    STAND_IN_DRAIN_S              seconds from SIGTERM to the end
    STAND_IN_CHATTER              lines it prints first
    STAND_IN_LOG                  a file with a recorded start, which it prints while it loads
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import ThreadingMixIn

ENV = os.environ
_SLEEP = "import signal, sys, time; {} time.sleep(600)"


def say(text: str) -> None:
    sys.stdout.write(f"(APIServer pid={os.getpid()}) INFO 01-02 03:04:05 [stand_in.py:1] {text}\n")
    sys.stdout.flush()


def phase(name: str) -> None:
    """Where a fault may happen."""
    if ENV.get("STAND_IN_DIE") == name:
        code = int(ENV.get("STAND_IN_CODE", "1"))
        sys.stdout.write(f"RuntimeError: told to die at {name}\n")
        sys.stdout.flush()
        if code < 0:
            os.kill(os.getpid(), -code)
            time.sleep(600)
        os._exit(code)
    if ENV.get("STAND_IN_HANG") == name:
        while True:
            if ENV.get("STAND_IN_REPEAT"):
                say(f"No available shared memory broadcast block found in {time.monotonic_ns()} seconds")
            time.sleep(0.05)


def fork() -> None:
    kind = ENV.get("STAND_IN_FORK", "")
    if "child" in kind:
        subprocess.Popen([sys.executable, "-I", "-S", "-c", _SLEEP.format("")], stdin=subprocess.DEVNULL)
    if "leaver" in kind:
        ignoring = _SLEEP.format("signal.signal(signal.SIGTERM, signal.SIG_IGN);")
        subprocess.Popen([sys.executable, "-I", "-S", "-c", ignoring], stdin=subprocess.DEVNULL, start_new_session=True)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(200, b"")
        elif self.path == "/v1/models":
            name = ENV.get("STAND_IN_NAME", value("--served-model-name") or value("--model") or "")
            self.answer(200, json.dumps({"data": [{"id": name, "max_model_len": 4096}]}).encode())
        elif self.path == "/version":
            self.answer(200, b'{"version": "0.32.0"}')
        elif self.path == "/metrics":
            self.answer(200, b'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n')
        else:
            self.answer(404, b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = {"choices": [{"text": "x", "finish_reason": "length"}], "usage": {"completion_tokens": 1}}
        self.answer(int(ENV.get("STAND_IN_TOKEN", "200")), json.dumps(body).encode())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


class Server(ThreadingMixIn, HTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()


def value(flag: str) -> str | None:
    words = sys.argv
    return words[words.index(flag) + 1] if flag in words else None


def main() -> None:
    if ENV.get("STAND_IN_IGNORE_SIGTERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("vLLM server version 0.32.0")
    phase("begin")
    server = Server((value("--host") or "", int(value("--port") or "8000")), Handler, bind_and_activate=False)
    server.server_bind()
    for i in range(int(ENV.get("STAND_IN_CHATTER", "0"))):
        say(f"chatter {i} " + "x" * 100)
    if ENV.get("STAND_IN_LOG"):
        sys.stdout.write(Path(ENV["STAND_IN_LOG"]).read_text(encoding="utf-8"))
    say("Starting to load model")
    phase("load")
    say("Loading safetensors checkpoint shards: 100% Completed | 1/1")
    fork()
    say("GPU KV cache size: 1,600 tokens")
    phase("pool")
    time.sleep(float(ENV.get("STAND_IN_LATE_S", "0")))
    server.server_activate()
    say(f"Starting vLLM server on http://127.0.0.1:{server.server_address[1]}")

    def end(*_: object) -> None:
        time.sleep(float(ENV.get("STAND_IN_DRAIN_S", "0")))
        os._exit(0)

    if not ENV.get("STAND_IN_IGNORE_SIGTERM"):
        signal.signal(signal.SIGTERM, end)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say("Application startup complete.")
    phase("ready")
    while True:
        time.sleep(600)


if __name__ == "__main__":
    main()
