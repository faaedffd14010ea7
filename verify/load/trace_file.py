"""Reading traces: CSV and JSONL whose columns are known by name, never by place.

Known: Azure LLM inference traces, BurstGPT 1 to 3, Mooncake and Qwen-Bailian (block ids), ShareGPT lengths, generic
files with prompt_tokens, output_tokens and a timestamp, and logs of OpenAI-style requests with their usage.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from advisor.errors import InvalidInput
from verify.load.trace_types import Trace, TraceRow

MOST_ROWS = 200_000
_PROMPT = (
    "ContextTokens", "Request tokens", "input_length", "num_prefill_tokens", "prompt_tokens", "input_tokens",
    "prompt_len", "prompt_length", "input_len",
)  # fmt: skip
_OUTPUT = (
    "GeneratedTokens", "Response tokens", "output_length", "num_decode_tokens", "output_tokens", "completion_tokens",
    "generated_tokens", "output_len", "output_tokens_length",
)  # fmt: skip
_TIME = (
    "TIMESTAMP", "Timestamp", "timestamp", "arrival_time", "arrived_at", "arrival_s", "time", "at_s", "timestamp_s",
    "timestamp_ms", "created_at", "created", "ts",
)  # fmt: skip
_BLOCK_TOKENS = 512  # Mooncake's; Qwen-Bailian's are 16, which the ids' number and the length tell apart
_SMALL_BLOCK_TOKENS = 16
_NO_TOKENS = "a row without tokens"
_FRACTION = re.compile(r"(\.\d{6})\d+")


def read_trace(path: Path, *, where: str = "workload.trace") -> Trace:
    """The requests of a trace file. Raises InvalidInput with file, line and column for what cannot be read."""
    dropped: Counter[str] = Counter()
    rows: list[TraceRow] = []
    read = 0
    try:
        with _opened(path) as file:
            for number, record in _records(file, path):
                read += 1
                if len(rows) >= MOST_ROWS:
                    dropped[f"beyond the first {MOST_ROWS:,}"] += 1
                    continue
                row = _row(record, f"{path}:{number}")
                if row is None:
                    dropped[_NO_TOKENS] += 1
                else:
                    rows.append(row)
    except OSError as error:
        raise InvalidInput(
            f"cannot read the trace: {error.strerror or error}", where=f"{where}: {path}", hint="a CSV or JSONL file"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInput("is no text in UTF-8", where=str(path), hint="a CSV or JSONL file") from error
    if not rows:
        raise InvalidInput("has no request in it", where=str(path), hint=f"{read} rows read, all without tokens")
    return _in_order(path.name, rows, read, dropped)


def _in_order(name: str, rows: list[TraceRow], read: int, dropped: Counter[str]) -> Trace:
    """By time, counted from the first; times in coarse steps are spread over the step."""
    if any(row.at_s is None for row in rows):
        untimed = [_at(row, None) for row in rows]
        return Trace(name=name, rows=tuple(untimed), read=read, dropped=dict(dropped))
    ordered = sorted(rows, key=lambda row: row.at_s or 0.0)
    first = ordered[0].at_s or 0.0
    times = [(row.at_s or 0.0) - first for row in ordered]
    spread, note = _spread(times)
    timed = [_at(row, at) for row, at in zip(ordered, spread, strict=True)]
    return Trace(name=name, rows=tuple(timed), read=read, dropped=dict(dropped), notes=(note,) if note else ())


def _at(row: TraceRow, at_s: float | None) -> TraceRow:
    return TraceRow(row.prompt_tokens, row.output_tokens, at_s, row.blocks, row.block_tokens, row.body)


def _spread(times: list[float]) -> tuple[list[float], str]:
    """Where many requests share few distinct times the clock was coarse: they are spread evenly up to the next one."""
    distinct = sorted(set(times))
    if len(distinct) < 2 or len(times) < 3 * len(distinct):
        return times, ""
    steps = sorted(b - a for a, b in pairwise(distinct))
    step = steps[len(steps) // 2]
    following = dict(pairwise(distinct))
    at_once = Counter(times)
    seen: Counter[float] = Counter()
    out = []
    for at in times:
        room = min(step, following.get(at, at + step) - at)
        out.append(at + room * seen[at] / at_once[at])
        seen[at] += 1
    return out, (
        f"its times come in steps of {step:g} s ({len(times):,} requests at {len(distinct):,} times): each step's are "
        "spread evenly over it"
    )


def _row(record: Mapping[str, Any], where: str) -> TraceRow | None:
    """One record; None where it has no tokens. Raises InvalidInput where a column is missing or no number."""
    answer = record.get("response")
    usage = record.get("usage") or (answer.get("usage") if isinstance(answer, Mapping) else None)
    source = usage if isinstance(usage, Mapping) else record
    prompt, output = _count(source, _PROMPT, "prompt", where), _count(source, _OUTPUT, "answer", where)
    if prompt < 1 or output < 1:
        return None
    blocks = record.get("hash_ids")
    ids, block_tokens = _blocks(blocks, prompt, where) if blocks is not None else ((), 0)
    return TraceRow(prompt, output, _time(record, where), ids, block_tokens, _body(record))


def _count(record: Mapping[str, Any], names: tuple[str, ...], what: str, where: str) -> int:
    name = next((name for name in names if name in record), None)
    if name is None:
        near = ", ".join(map(str, list(record)[:8]))
        raise InvalidInput(
            f"no column for the {what}'s tokens among {near}",
            where=where,
            hint=f"name it one of {', '.join(names[:5])}",
        )
    value = record[name]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or number != int(number) or isinstance(value, bool):
        raise InvalidInput(f"{name} is {value!r}", where=where, hint="a whole number of tokens")
    return int(number)


def _time(record: Mapping[str, Any], where: str) -> float | None:
    name = next((name for name in _TIME if record.get(name) not in (None, "")), None)
    if name is None:
        return None
    value = record[name]
    try:
        number = float(value)
    except (TypeError, ValueError):
        return _clock(str(value), name, where)
    if not math.isfinite(number):
        raise InvalidInput(f"{name} is {value!r}", where=where, hint="seconds, or a date and time")
    is_milliseconds = name == "timestamp_ms" or (name == "timestamp" and "hash_ids" in record) or number > 1e11
    return number / 1000 if is_milliseconds else number


def _clock(text: str, name: str, where: str) -> float:
    """A date and time; Azure writes seven digits after the point."""
    try:
        moment = datetime.datetime.fromisoformat(_FRACTION.sub(r"\1", text.strip()))
    except ValueError:
        raise InvalidInput(f"{name} is {text!r}", where=where, hint="seconds, or a date and time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def _blocks(value: Any, prompt: int, where: str) -> tuple[tuple[int, ...], int]:
    if not isinstance(value, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in value):
        raise InvalidInput("hash_ids is no list of numbers", where=where, hint="one id a block of the prompt")
    n = len(value)
    size = next((size for size in (_SMALL_BLOCK_TOKENS, _BLOCK_TOKENS) if (n - 1) * size < prompt <= n * size), None)
    if size is None:
        raise InvalidInput(
            f"{n} block ids cannot hold {prompt} prompt tokens", where=where,
            hint=f"blocks are of {_BLOCK_TOKENS} tokens (Mooncake) or {_SMALL_BLOCK_TOKENS} (Qwen-Bailian)",
        )  # fmt: skip
    return tuple(value), size


def _body(record: Mapping[str, Any]) -> bytes | None:
    """The request itself, where the log has it: messages, or a body with messages."""
    body = record.get("body") or record.get("request") or (record if "messages" in record else None)
    if not isinstance(body, Mapping) or not isinstance(body.get("messages"), list):
        return None
    wanted = {key: value for key, value in body.items() if key in _BODY_KEYS}
    return json.dumps(wanted, ensure_ascii=False).encode()


_BODY_KEYS = ("messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "stop", "tools", "tool_choice")


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _records(file: IO[str], path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(line, record) of every row that is not empty."""
    kind = path.suffixes[-2] if path.suffix == ".gz" and len(path.suffixes) > 1 else path.suffix
    if kind in (".jsonl", ".ndjson", ".json"):
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, _json(line, f"{path}:{number}")
        return
    reader = csv.DictReader(file)
    if reader.fieldnames is None:
        raise InvalidInput("is empty", where=str(path), hint="a CSV with a header line, or JSONL")
    reader.fieldnames = [name.strip() for name in reader.fieldnames]
    try:
        for record in reader:
            if None in record or None in record.values():
                raise InvalidInput(
                    "has another number of columns than the header",
                    where=f"{path}:{reader.line_num}",
                    hint="one row a request",
                )
            yield reader.line_num, record
    except csv.Error as error:
        raise InvalidInput(f"is no CSV: {error}", where=f"{path}:{reader.line_num}", hint="CSV or JSONL") from error


def _json(line: str, where: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InvalidInput(f"is no JSON: {error}", where=where, hint="one object a line") from error
    if not isinstance(record, dict):
        raise InvalidInput("is no JSON object", where=where, hint="one object a line")
    return record
