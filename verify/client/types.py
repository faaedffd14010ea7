"""Whom a client asks, and what it says of itself after a phase."""

from __future__ import annotations

import msgspec


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The server. `api_key` never leaves the client: it is in no row, no message, no report.

    Token ids are drawn below `vocab_size`, none of `avoid_ids` (special tokens). `salt` is the run's own cache salt.
    """

    url: str  # scheme, host, port and base path, without a slash at the end
    model: str  # as the server lists it
    vocab_size: int
    salt: str
    avoid_ids: tuple[int, ...] = ()
    api_key: str | None = None
    ca_file: str | None = None  # a certificate authority of one's own, for https
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 600.0  # from sent to the last byte


class ClientFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the client was like in one phase; the worst of its processes where there are several.

    `cpu_fraction` is CPU seconds over wall seconds of the busiest process, `loop_lag_p99_s` how late a timer of its own
    fired, `coalesced_fraction` the share of answer events that shared a read with another.
    """

    phase: str
    processes: int
    loop: str  # "uvloop" or "asyncio"
    wall_s: float
    cpu_s: float
    cpu_fraction: float
    loop_lag_p99_s: float | None
    max_in_flight: int
    connections: int
    coalesced_fraction: float | None
    stopped_early: bool = False
    unsent: int = 0  # planned, and not sent because the run was stopped
    began_s: float | None = None  # when the phase's clock started, on the run's own
    faults: tuple[str, ...] = ()  # what this machine or the client itself could not do; the load is then not as planned


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """What one short request before the run showed. Where `error` is set the server did not answer it as it should.

    `counts_by`: how the server says how many tokens an event holds: "ids", "running_usage" or "none".
    """

    outcome: str  # as in a row
    counts_by: str = "none"
    status: int | None = None
    error: str | None = None
    keeps_alive: bool = True
    notes: tuple[str, ...] = ()
