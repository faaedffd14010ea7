"""The client as a run sees it: child processes that send slices of a phase, and their rows as they come.

Streams never share a process with anything else, so that neither scraping nor printing delays a stamp.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from advisor.errors import EngineUnavailable, InvalidInput, KvadviseError
from verify.client.bodies import Fields
from verify.client.messages import (
    TO_PARENT,
    Ask,
    Asked,
    Failed,
    Finished,
    Go,
    Prepare,
    Prepared,
    Ready,
    Rows,
    Setup,
    Stop,
    ToParent,
    ToWorker,
    frame,
    read_frame,
)  # fmt: skip
from verify.client.outcome import redacted
from verify.client.slices import abandoned, merged, slices_of
from verify.client.types import ClientFacts, Probe, Target
from verify.load.types import Phase, PlannedRequest
from verify.record.types import RequestRow

START_S = 30.0
GRACE_S = 5.0
_HEADSTART_S = 0.05  # from the last process's being ready to the phase's clock
_ROOT = Path(__file__).resolve().parents[2]


class WorkerGone(Exception):
    """A client process ended."""


class _Process:
    """One child and the wire to it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.loop = ""
        self._child: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    @property
    def lives(self) -> bool:
        return self._child is not None and self._child.poll() is None

    async def start(self, setup: Setup) -> None:
        ours, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        path = os.pathsep.join(p for p in (str(_ROOT), os.environ.get("PYTHONPATH")) if p)
        with theirs:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "verify.client.worker", "--socket", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # a terminal's SIGINT is the parent's
            )
        self._reader, self._writer = await asyncio.open_connection(sock=ours, limit=2**26)
        ready = await self.hear()
        if isinstance(ready, Ready):
            self.loop = ready.loop
        self.say(setup)

    def say(self, message: ToWorker) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(message))

    async def hear(self) -> ToParent:
        """The next message. Raises WorkerGone, and what the process says it cannot do."""
        data = await read_frame(self._reader) if self._reader is not None else None
        if data is None:
            raise WorkerGone(await self._epitaph())
        message = TO_PARENT.decode(data)
        if isinstance(message, Failed):
            kind = InvalidInput if message.is_input else EngineUnavailable
            raise kind(message.text, hint=message.hint)
        return message

    async def _epitaph(self) -> str:
        """How it ended: its exit and the last line it wrote."""
        if self._child is None:
            return "client process never started"
        for _ in range(100):
            if self._child.poll() is not None:
                break
            await asyncio.sleep(0.02)
        said = b""
        if self._errors is not None:
            self._errors.seek(0)
            said = self._errors.read()[-2000:]
        lines = said.decode("utf-8", "replace").strip().splitlines()
        code = self._child.poll()
        how = "ended" if code is None else f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
        return f"client process {self.number} {how}" + (f": {lines[-1]}" if lines else "")

    async def close(self) -> None:
        """End it; its connections end with it."""
        if self._writer is not None:
            self._writer.close()
        child = self._child
        if child is not None:
            for _ in range(50):
                if child.poll() is not None:
                    break
                await asyncio.sleep(0.02)
            else:
                child.kill()
                child.wait()
        if self._errors is not None:
            self._errors.close()
        self._child = self._errors = self._reader = self._writer = None


class Client:
    """Sends phases to one server from `processes` child processes."""

    def __init__(
        self, target: Target, *, seed: int, processes: int = 1, version: str | None = None, grace_s: float = GRACE_S
    ) -> None:
        self.probe: Probe | None = None  # what one short request showed, once started
        self._target = target
        self._seed = seed
        self._version = version if version is not None else _version()
        self._grace_s = grace_s
        self._fields = Fields()
        self._processes = [_Process(number) for number in range(max(1, processes))]

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the processes that run."""
        return tuple(p.pid for p in self._processes if p.pid is not None)

    async def start(self, *, probe_timeout_s: float = 60.0) -> None:
        """Start the processes and ask the server one short request, whose result is `probe`, good or bad.

        Raises InvalidInput for a URL or certificates that cannot be used, EngineUnavailable where the processes do not
        start or the host has no address.
        """
        try:
            async with asyncio.timeout(START_S):
                await asyncio.gather(*(self._start(p) for p in self._processes))
            async with asyncio.timeout(START_S + 4 * probe_timeout_s):
                self._processes[0].say(Ask(probe_timeout_s))
                asked = await self._processes[0].hear()
        except (WorkerGone, TimeoutError, OSError) as error:
            what = str(error) or "the client processes did not start in time"
            raise EngineUnavailable(redacted(what, self._target.api_key)) from None
        if isinstance(asked, Asked):
            self.probe, self._fields = asked.probe, asked.fields

    async def _start(self, process: _Process) -> None:
        await process.start(Setup(target=self._target, seed=self._seed, process=process.number, version=self._version))

    async def run(
        self,
        phase: Phase,
        *,
        began: float,
        zero: float,
        on_rows: Callable[[list[RequestRow]], None],
        stop: asyncio.Event,
    ) -> ClientFacts:
        """Send a phase; returns when every request has ended and its row was handed over.

        The phase's clock starts at `began`, or as soon after it as everything is encoded (`began_s` of the facts says
        when; the rows' `scheduled_s` count from there). Once `stop` is set nothing more is sent, and what is open has
        `grace_s` to end. Raises InvalidInput for what this machine does not allow.
        """
        shares = slices_of(phase, len(self._processes), self._fields, self.probe is None or self.probe.keeps_alive)
        if phase.mode == "idle" or not phase.requests:
            return await self._idle(phase, began, zero, stop)
        for process in self._processes[: len(shares)]:
            if not process.lives:
                await process.close()
                await self._start(process)
        pairs = list(zip(self._processes, shares, strict=False))
        for process, share in pairs:
            process.say(share)
        gone = await asyncio.gather(*(self._prepared(process) for process, _ in pairs))
        began = max(began, time.perf_counter() + _HEADSTART_S)
        go = Go(began=began, zero=zero)
        following = [self._follow(*pair, lost, go, on_rows) for pair, lost in zip(pairs, gone, strict=True)]
        passing_on = [asyncio.create_task(self._pass_on(stop, [process for process, _ in pairs]))]
        try:
            ended = await asyncio.gather(*following)
        finally:
            passing_on[0].cancel()
        return merged(
            phase.name,
            loops=[process.loop for process, _ in pairs],
            finished=[f for f, _ in ended if f is not None],
            faults=[text for _, text in ended if text],
            wall_s=time.perf_counter() - began,
            began_s=began - zero,
        )

    async def _prepared(self, process: _Process) -> str:
        """Empty, or how the process ended."""
        try:
            while not isinstance(await process.hear(), Prepared):
                pass
        except WorkerGone as gone:
            return str(gone)
        return ""

    async def _follow(
        self,
        process: _Process,
        share: Prepare,
        lost: str,
        go: Go,
        on_rows: Callable[[list[RequestRow]], None],
    ) -> tuple[Finished | None, str]:
        """Rows of one process until it has finished; where it dies, its other requests are abandoned."""
        left: dict[int, PlannedRequest] = {r.index: r for r in share.requests}
        try:
            if lost:
                raise WorkerGone(lost)
            process.say(go)
            while True:
                message = await process.hear()
                if isinstance(message, Rows):
                    for row in message.rows:
                        left.pop(row.index, None)
                    on_rows(message.rows)
                elif isinstance(message, Finished):
                    return message, ""
        except (WorkerGone, KvadviseError) as error:
            text = redacted(str(error), self._target.api_key)
            if left:
                on_rows([abandoned(r, text, process.number) for r in left.values()])
            return None, text

    async def _pass_on(self, stop: asyncio.Event, processes: list[_Process]) -> None:
        await stop.wait()
        for process in processes:
            process.say(Stop(self._grace_s))

    async def _idle(self, phase: Phase, began: float, zero: float, stop: asyncio.Event) -> ClientFacts:
        wait = max(0.0, began - time.perf_counter()) + (phase.seconds or 0.0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), wait)
        wall = time.perf_counter() - began
        loops = [self._processes[0].loop]
        return merged(phase.name, loops=loops, finished=[], faults=[], wall_s=wall, began_s=began - zero)

    async def close(self) -> None:
        """End every process and with it every connection; safe at any time."""
        await asyncio.gather(*(process.close() for process in self._processes))


def _version() -> str:
    try:
        return importlib.metadata.version("kvadvise")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
