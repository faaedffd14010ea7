"""A client process: `python -m verify.client.worker --socket FD`. It asks, stamps and counts, and prints nothing.

It ends with its parent: when the socket pair closes, whatever is going on. SIGINT is the parent's to hear.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import resource
import signal
import socket
import sys
from typing import Any

from advisor.errors import InvalidInput, KvadviseError
from verify.client.address import address_of
from verify.client.asking import ask
from verify.client.bodies import PromptIds, prompt_ids_of
from verify.client.messages import (
    TO_WORKER,
    Ask,
    Failed,
    Go,
    Prepare,
    Prepared,
    Ready,
    Rows,
    Setup,
    Stop,
    ToParent,
    frame,
    read_frame,
)  # fmt: skip
from verify.client.priority import ask_for_promptness
from verify.client.sender import Sender
from verify.client.types import Target

SPARE_FILES = 64


def new_loop() -> tuple[asyncio.AbstractEventLoop, str]:
    """uvloop's where it is installed, and the loop's name."""
    try:
        return importlib.import_module("uvloop").new_event_loop(), "uvloop"
    except ImportError:
        return asyncio.new_event_loop(), "asyncio"


def may_open(files: int) -> int | None:
    """Raise this process's limit of open files to `files` and some; the limit where that is not allowed, else None."""
    wanted = files + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return None
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return None if most >= wanted else most


class Worker:
    """What one client process does, told by its parent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sender: Sender | None = None
        self._setup: Setup | None = None
        self._playing: asyncio.Task[None] | None = None

    async def serve(self, loop_name: str) -> None:
        """Obey until the parent is gone."""
        self._say(Ready(loop_name))
        while (data := await read_frame(self._reader)) is not None:
            try:
                await self._obey(TO_WORKER.decode(data))
            except KvadviseError as error:
                self._say(Failed(error.what, error.hint, isinstance(error, InvalidInput)))

    async def _obey(self, message: Setup | Ask | Prepare | Go | Stop) -> None:
        match message:
            case Setup():
                self._setup = message
                self._sender = self._new_sender(message.target, message, prompt_ids_of(message.target, message.seed))
            case Ask(timeout_s=timeout_s) if self._setup is not None:
                self._say(await ask(self._new_sender, self._setup, timeout_s))
            case Prepare() if self._sender is not None:
                self._prepare(self._sender, message)
            case Go() if self._sender is not None:
                self._playing = asyncio.ensure_future(self._play(self._sender, message))
            case Stop(grace_s=grace_s) if self._sender is not None and self._playing is not None:
                self._sender.stop(grace_s)

    def _new_sender(self, target: Target, setup: Setup, prompt_ids: PromptIds) -> Sender:
        return Sender(
            target,
            address_of(target),
            version=setup.version,
            process=setup.process,
            prompt_ids=prompt_ids,
            on_rows=lambda rows: self._say(Rows(rows)),
        )

    def _prepare(self, sender: Sender, share: Prepare) -> None:
        if share.mode == "closed":
            limit = may_open(share.places)
            if limit is not None:
                raise InvalidInput(
                    f"{share.places} requests at once need as many open files, and this process may have {limit}",
                    hint=f"ulimit -n {share.places + SPARE_FILES}, or more client processes",
                )
        else:
            may_open(len(share.requests))
        try:
            sender.prepare(share)
        except ValueError as error:
            raise InvalidInput(str(error)) from None
        self._say(Prepared())

    async def _play(self, sender: Sender, go: Go) -> None:
        try:
            finished = await sender.play(began=go.began, zero=go.zero)
        except Exception as error:
            _die(asyncio.get_running_loop(), {"message": "in a phase", "exception": error})
            raise
        self._playing = None
        self._say(finished)

    def _say(self, message: ToParent) -> None:
        self._writer.write(frame(message))


async def _run(fd: int, loop_name: str) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=fd), limit=2**26)
    await Worker(reader, writer).serve(loop_name)


def _die(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A fault of our own must end the process: its parent then says so, and no request is waited for in vain."""
    error = context.get("exception")
    if isinstance(error, OSError | asyncio.CancelledError):  # a connection's end, told to its request as well
        return
    loop.default_exception_handler(context)
    os._exit(1)


def main() -> None:
    """Serve the parent on the socket that was handed over."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ask_for_promptness()
    loop, name = new_loop()
    loop.set_exception_handler(_die)
    asyncio.set_event_loop(loop)
    loop.run_until_complete(_run(int(sys.argv[sys.argv.index("--socket") + 1]), name))
    os._exit(0)  # connections are closed by that; nothing is left to be said


if __name__ == "__main__":
    main()
