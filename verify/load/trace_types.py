"""A trace as values: requests that really came, what was left out and why."""

from __future__ import annotations

import msgspec


class TraceRow(msgspec.Struct, frozen=True):
    """One recorded request. `at_s` counts from the trace's first row, None where the file has no times. `blocks` are
    ids of the prompt's blocks of `block_tokens` tokens: equal ids, equal tokens. `body` is the request itself, as JSON.
    """

    prompt_tokens: int
    output_tokens: int
    at_s: float | None = None
    blocks: tuple[int | str, ...] = ()
    block_tokens: int = 0
    body: bytes | None = None


class Histogram(msgspec.Struct, frozen=True):
    """Lengths with rising shares; the last share is their sum."""

    lengths: tuple[int, ...]
    shares: tuple[float, ...]


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of one client's time: how often it asks, how evenly, and how long its requests are."""

    start_s: float
    end_s: float
    rate_per_s: float
    cv: float
    prompts: Histogram
    outputs: Histogram


class TraceClient(msgspec.Struct, frozen=True):
    """One client of a described load: its windows in the order of time. Requests are drawn from it by the seed."""

    name: str
    windows: tuple[Window, ...]


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Rows in the order they came, or clients to draw rows from. `read` = rows + the sum of `dropped`.

    `step_s` is the step of a clock so coarse that many rows share one time, None where it is not.
    """

    name: str
    rows: tuple[TraceRow, ...]
    read: int
    dropped: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    clients: tuple[TraceClient, ...] = ()
    step_s: float | None = None
