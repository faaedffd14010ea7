"""What a client process and its parent say to each other: length-prefixed MessagePack over a socket pair."""

from __future__ import annotations

import asyncio

import msgspec

from verify.client.bodies import Fields
from verify.client.types import Probe, Target
from verify.load.types import Mode, PhaseName, PlannedRequest
from verify.record.types import RequestRow


class Setup(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """First of all: whom to ask, and who this process is."""

    target: Target
    seed: int
    process: int
    version: str


class Ask(msgspec.Struct, tag=True, frozen=True):
    """Send one short request and say what the server takes."""

    timeout_s: float


class Prepare(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """This process's share of a phase: encode it, open connections, wait for Go."""

    name: PhaseName
    mode: Mode
    requests: tuple[PlannedRequest, ...]
    places: int
    fields: Fields
    keeps_alive: bool


class Go(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The phase's clock: both are perf_counter values of this machine."""

    began: float
    zero: float


class Stop(msgspec.Struct, tag=True, frozen=True):
    """Send nothing more; what is open after `grace_s` is given up."""

    grace_s: float


class Ready(msgspec.Struct, tag=True, frozen=True):
    """The process runs, on this event loop."""

    loop: str


class Asked(msgspec.Struct, tag=True, frozen=True):
    """What the server takes."""

    probe: Probe
    fields: Fields
    keeps_alive: bool


class Prepared(msgspec.Struct, tag=True, frozen=True):
    """Everything is encoded; it may go."""


class Rows(msgspec.Struct, tag=True, frozen=True):
    """Requests that have ended."""

    rows: list[RequestRow]


class Finished(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """The share is done, and what this process was like while it was."""

    wall_s: float
    cpu_s: float
    lag_p99_s: float | None
    max_in_flight: int
    connections: int
    chunks: int
    coalesced: int
    unsent: int
    stopped_early: bool
    faults: tuple[str, ...]


class Failed(msgspec.Struct, tag=True, frozen=True):
    """This process cannot go on. `hint` says what to do; `is_input` when the user's input is at fault."""

    text: str
    hint: str
    is_input: bool


ToWorker = Setup | Ask | Prepare | Go | Stop
ToParent = Ready | Asked | Prepared | Rows | Finished | Failed

_ENCODER = msgspec.msgpack.Encoder()
TO_WORKER = msgspec.msgpack.Decoder(ToWorker)
TO_PARENT = msgspec.msgpack.Decoder(ToParent)


def frame(message: ToWorker | ToParent) -> bytes:
    """A message as it goes over the wire."""
    data = _ENCODER.encode(message)
    return len(data).to_bytes(4, "big") + data


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next message's bytes; None where the other side is gone."""
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
