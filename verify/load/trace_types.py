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
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    body: bytes | None = None


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Rows in the order they came. `read` = rows + the sum of `dropped`."""

    name: str
    rows: tuple[TraceRow, ...]
    read: int
    dropped: dict[str, int] = {}
    notes: tuple[str, ...] = ()
