"""Rows of a JSONL trace: lengths with block ids of the prompt, or logs of OpenAI-style requests with their usage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from advisor.errors import InvalidInput
from advisor.problems import shown
from verify.load.request_log import ERROR_STATUS, NO_USAGE, is_log, is_refused, recorded_body, usage_of
from verify.load.trace_columns import OUTPUT, PROMPT, TIME, Clock, column, needed, tokens
from verify.load.trace_reading import NO_TIME, Reading
from verify.load.trace_types import TraceRow

BLOCK_TOKENS = {512: "Mooncake", 16: "Qwen-Bailian"}  # the first that all rows agree with
_BLOCKS = ("hash_ids", "block_hashes", "block_ids")
_HINT = "one object a line"


def read_json(lines: Iterator[str], path: Path, reading: Reading) -> None:
    """Take every line's object into `reading`."""
    blocks, times = _Blocks(), _Times()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        record = _object(line, where)
        row = _row(record, blocks, times, reading, where)
        if row is not None and reading.take(row):
            break
    if blocks.were_given:
        size = blocks.size
        reading.rows = [msgspec.structs.replace(row, block_tokens=size) if row.blocks else row for row in reading.rows]
        reading.note(f"its prompts are blocks of {size} tokens: equal ids are equal tokens")
    if times.clock is not None and times.clock.note:
        reading.note(times.clock.note)


def _row(record: Mapping[str, Any], blocks: _Blocks, times: _Times, reading: Reading, where: str) -> TraceRow | None:
    """One record; None where it was dropped."""
    source = record
    if is_log(record):
        usage = usage_of(record)
        if is_refused(record):
            reading.drop(ERROR_STATUS)
            return None
        if usage is None and column(record, PROMPT) is None:
            reading.drop(NO_USAGE)
            return None
        source = usage if usage is not None else record
    prompt_name = needed(source, PROMPT, "prompt", where)
    output_name = needed(source, OUTPUT, "answer", where)
    prompt, output = tokens(source[prompt_name], prompt_name, where), tokens(source[output_name], output_name, where)
    ids = blocks.ids(record, prompt, where)
    at_s = times.seconds(record, where)
    if at_s is None and times.clock is not None:
        reading.drop(NO_TIME)
        return None
    body = recorded_body(record, output, reading.note) if prompt and output else None
    return TraceRow(prompt, output, at_s, ids, 0, body)


class _Times:
    """The times of rows, all by one clock."""

    def __init__(self) -> None:
        self.clock: Clock | None = None

    def seconds(self, record: Mapping[str, Any], where: str) -> float | None:
        """One row's time; None where it has none."""
        name = column(record, TIME)
        if name is None or record[name] in (None, ""):
            return None
        if self.clock is None:
            self.clock = Clock(name, unit_s=_unit_s(record, name))
        return self.clock.seconds(record[name], where)


def _unit_s(record: Mapping[str, Any], name: str) -> float | None:
    """Mooncake counts milliseconds from 0 and does not say so; Qwen-Bailian, whose rows have a chat_id, seconds."""
    if name == "timestamp" and "hash_ids" in record and not isinstance(record[name], str):
        return 1.0 if "chat_id" in record else 1e-3
    return None


class _Blocks:
    """Block ids of prompts, and the size of block that all of them agree with."""

    def __init__(self) -> None:
        self._sizes = list(BLOCK_TOKENS)
        self.were_given = False

    @property
    def size(self) -> int:
        """Tokens a block."""
        return self._sizes[0]

    def ids(self, record: Mapping[str, Any], prompt: int, where: str) -> tuple[int | str, ...]:
        """The ids of one row. Raises InvalidInput where they cannot make up its prompt."""
        name = column(record, _BLOCKS)
        value = record[name] if name is not None else None
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(i, int | str) and not isinstance(i, bool) for i in value):
            raise InvalidInput(f"{name} is no list of ids", where=where, hint="one id a block of the prompt")
        stated = record.get("block_size")
        if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0 and not self.were_given:
            self._sizes = [stated]
        n = len(value)
        agreeing = [size for size in self._sizes if (n - 1) * size < prompt <= n * size]
        if prompt and not agreeing:
            sizes = " or ".join(f"{size}" for size in self._sizes)
            holds = f"at most {n * max(self._sizes)}" if prompt > n * max(self._sizes) else "another number of tokens"
            raise InvalidInput(
                f"{name} has {n} blocks of {sizes} tokens, which hold {holds}; the prompt has {prompt}", where=where,
                hint="blocks are of 512 tokens (Mooncake), 16 (Qwen-Bailian) or what block_size says",
            )  # fmt: skip
        self._sizes = agreeing or self._sizes
        self.were_given = True
        return tuple(value)


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidInput(f"is no JSON: {shown(str(error))}", where=where, hint=_HINT) from error
    if not isinstance(record, dict):
        raise InvalidInput("is no JSON object", where=where, hint=_HINT)
    return record
