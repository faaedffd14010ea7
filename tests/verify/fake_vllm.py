"""A small fake of vLLM's server for tests: its API, its metrics, a real block model, and faults on demand.

In a test: `with serving(FakeOptions(...)) as fake: fake.url`. As a process of its own:
`python -m tests.verify.fake_vllm --port 0 --fault hang --fault-after 3`, which prints its URL. FAULTS says what each
fault does. Answers have the shapes vLLM 0.32 sends (entrypoints/openai/completion/serving.py), made anew here.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tests.verify.fake_answers import Connection
from tests.verify.fake_engine import Counters, Engine, Job
from tests.verify.fake_faults import FAULTS
from tests.verify.fake_metrics import exposition


@dataclass
class FakeOptions:
    """How the fake serves. Times in seconds; `faults` are names of FAULTS, each with a number of its own or 0."""

    model: str = "fake"
    max_model_len: int = 4096
    num_blocks: int = 1024
    block_size: int = 16
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    step_s: float = 0.01  # one step of decoding
    prefill_s_per_token: float = 0.000005  # on top, for each token computed beyond one per request
    max_num_queued_reqs: int | None = None
    api_key: str | None = None
    port: int = 0
    prefix_caching: bool = True
    prompt_tokens_details: bool = False
    forbids_extra: tuple[str, ...] = ()  # request fields refused with 400, as strict servers do
    ignores: tuple[str, ...] = ()  # request fields that have no effect, as in older releases
    version: str = "0.32.0"
    tls: tuple[str, str] | None = None  # certificate and key files
    stamps: bool = False  # each chunk says when it was written ("at", perf_counter)
    faults: dict[str, float] = field(default_factory=dict)
    fault_after: int = 0  # requests that are served well first


class FakeServer:
    """The server inside its event loop; `url` is set once it listens."""

    def __init__(self, options: FakeOptions) -> None:
        unknown = set(options.faults) - set(FAULTS)
        if unknown:
            raise ValueError(f"unknown faults {sorted(unknown)}; there are {sorted(FAULTS)}")
        self.options = options
        self.engine = self._new_engine()
        self.url = ""
        self.accepted = 0  # completions that were well-formed
        self.ended = 0  # answers that came to their end, or whose client left
        self.connections = 0  # ever accepted
        self.open: set[Connection] = set()
        self.log: list[Job] = []  # every request that reached the engine, with the times of its tokens
        self.bodies: list[dict[str, Any]] = []  # the last requests as they came
        self.headers: list[dict[str, str]] = []
        self.process_start = time.time()
        self.started_at = time.perf_counter()
        self.resident = 500_000_000.0
        self.frozen_metrics: str | None = None
        self.ballast: list[bytes] = []
        self.mistakes: list[str] = []  # of the fake itself
        self._server: asyncio.Server | None = None
        self._ticking = False
        self._fault_began: float | None = None

    def _new_engine(self) -> Engine:
        o = self.options
        return Engine(
            num_blocks=o.num_blocks,
            block_size=o.block_size,
            max_num_seqs=o.max_num_seqs,
            max_num_batched_tokens=o.max_num_batched_tokens,
            caching=o.prefix_caching,
        )

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: self.mistakes.append(repr(context)))
        context = None
        if self.options.tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.options.tls)
        self._server = await loop.create_server(
            lambda: Connection(self), "127.0.0.1", self.options.port, ssl=context, backlog=4096
        )
        port = self._server.sockets[0].getsockname()[1]
        self.options.port = port
        self.url = f"http{'s' if context else ''}://127.0.0.1:{port}"
        if self.has("foreign_traffic"):
            loop.call_later(0.05, self._foreign)
        if self.has("memory_creep"):
            loop.call_later(0.05, self._creep)

    async def stop(self) -> None:
        """Close the listener and every connection."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.open):
            connection.abort()
        await asyncio.sleep(0)

    # Faults

    def has(self, fault: str) -> bool:
        """Whether a fault is on now: asked for, and enough requests served well before it."""
        if fault not in self.options.faults or self.ended < self.options.fault_after:
            return False
        if self._fault_began is None:
            self._fault_began = time.perf_counter()
        return True

    def amount(self, fault: str, default: float) -> float:
        """The number given with a fault."""
        return self.options.faults.get(fault, 0) or default

    def strikes(self, fault: str, number: int) -> bool:
        """Whether a fault that strikes each n-th request strikes the one of this number."""
        if fault not in self.options.faults or number <= self.options.fault_after:
            return False
        return number % max(1, int(self.options.faults[fault])) == 0

    def _foreign(self) -> None:
        loop = asyncio.get_running_loop()
        if self.has("foreign_traffic"):
            c = self.engine.counters
            c.prompt_tokens += 50
            c.generation_tokens += 20
            c.prefix_queries += 50
            c.done["stop"] += 1
        loop.call_later(0.1, self._foreign)

    def _creep(self) -> None:
        if self.has("memory_creep"):
            grow = int(self.amount("memory_creep", 4_000_000))
            self.resident += grow
            self.ballast.append(os.urandom(4096) * (grow // 4096))
        asyncio.get_running_loop().call_later(0.05, self._creep)

    async def restart(self) -> None:
        """As a supervisor does it: all connections break, nobody listens for a moment, counters start anew."""
        self.options.faults.pop("restart", None)
        await self.stop()
        for job in [*self.engine.running, *self.engine.waiting]:
            job.gone = True
        self.engine = self._new_engine()
        self.process_start = time.time() + 2.0  # in whole seconds a quick restart would not show
        await asyncio.sleep(0.3)
        await self.start()

    def die(self) -> None:
        """End in the middle of everything."""
        if self.has("oom"):
            sys.stderr.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has\n")
        if __name__ == "__main__":
            os._exit(1)
        if self._server is not None:
            self._server.close()
        for connection in list(self.open):
            connection.abort()
        self.engine.running.clear()
        self.engine.waiting.clear()

    # The engine's clock

    def kick(self) -> None:
        """Steps go on while there is work."""
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        engine = self.engine
        if not engine.running and not engine.waiting:
            self._ticking = False
            return
        began = time.perf_counter()
        loop = asyncio.get_running_loop()
        if self.has("hang"):
            loop.call_later(0.05, self._tick)
            return
        engine.admits = not self.has("waiting_grows") or self.accepted % 4 == 0
        busy = len(engine.running)
        used = engine.step()
        if self.has("silent_preemptions"):
            engine.counters.preemptions += 1
        if (self.has("dies") or self.has("oom")) and engine.running:
            self.die()
            self._ticking = False
            return
        if self.has("restart") and engine.running:
            self._ticking = False
            self._restarting = asyncio.ensure_future(self.restart())
            return
        pace = self.options.step_s * (self.amount("slow_drip", 50) if self.has("slow_drip") else 1)
        pace += self.options.prefill_s_per_token * max(used - busy, 0)
        loop.call_later(max(0.0, began + pace - time.perf_counter()), self._tick)

    # Metrics

    def metrics(self) -> bytes | None:
        """The text of /metrics, None where there is none."""
        if self.has("metrics_missing"):
            return None
        if self.has("metrics_garbage"):
            return b"\x00\xff not { metrics\nvllm:num_requests_running{engine= 1\n<html>"
        if self.has("metrics_reset"):
            self.options.faults.pop("metrics_reset")
            self.engine.counters = Counters()
        if self.frozen_metrics is not None and self.has("metrics_frozen"):
            return self.frozen_metrics.encode()
        text = exposition(self)
        self.frozen_metrics = text
        return text.encode()


def _loop() -> asyncio.AbstractEventLoop:
    try:
        loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    except ImportError:
        loop = asyncio.new_event_loop()
    return loop


@contextmanager
def serving(options: FakeOptions | None = None, **changes: Any) -> Iterator[FakeServer]:
    """A fake in a thread of its own, stopped on the way out."""
    options = options or FakeOptions(**changes)
    server, loop, ready = FakeServer(options), _loop(), threading.Event()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(server.start())
        loop.call_soon(ready.set)
        loop.run_forever()
        loop.run_until_complete(server.stop())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    thread = threading.Thread(target=run, name="fake-vllm", daemon=True)
    thread.start()
    if not ready.wait(10):
        raise RuntimeError("the fake server did not start")
    try:
        yield server
    finally:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
    if server.mistakes:
        raise RuntimeError(f"the fake server erred: {server.mistakes[:3]}")


def main() -> None:
    """Serve until killed; the first line on stdout is the URL."""
    parser = argparse.ArgumentParser(description=__doc__, epilog="\n".join(f"{k}: {v}" for k, v in FAULTS.items()))
    for f in fields(FakeOptions):
        if f.type in ("int", "float", "str", "int | None", "str | None"):
            kind = {"int": int, "float": float}.get(str(f.type).split(" ")[0], str)
            parser.add_argument(f"--{f.name.replace('_', '-')}", type=kind, default=f.default)
    parser.add_argument("--fault", action="append", default=[], metavar="NAME[=NUMBER]")
    parser.add_argument("--stamps", action="store_true")
    parser.add_argument("--prompt-tokens-details", action="store_true")
    parser.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"), type=Path)
    arguments = vars(parser.parse_args())
    given = [fault.partition("=") for fault in arguments.pop("fault")]
    faults = {name: float(number or 0) for name, _, number in given}
    tls = arguments.pop("tls")
    options = FakeOptions(**arguments, faults=faults, tls=(str(tls[0]), str(tls[1])) if tls else None)
    loop = _loop()
    server = FakeServer(options)
    loop.run_until_complete(server.start())
    sys.stdout.write(server.url + "\n")
    sys.stdout.flush()
    loop.run_forever()


if __name__ == "__main__":
    main()
