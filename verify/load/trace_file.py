"""Reading traces: CSV and JSONL whose columns are known by name, never by place, and ServeGen's clients.

Known: Azure LLM inference traces, BurstGPT 1 to 3, Mooncake and Qwen-Bailian (block ids), ShareGPT lengths, generic
files with prompt_tokens, output_tokens and a timestamp, and logs of OpenAI-style requests with their usage. Files are
read line by line, so their size is no matter of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from advisor.errors import InvalidInput
from verify.load.serve_gen import is_client, read_clients
from verify.load.trace_csv import read_csv
from verify.load.trace_json import read_json
from verify.load.trace_lines import lines
from verify.load.trace_reading import Reading
from verify.load.trace_types import Trace

_JSON = (".jsonl", ".ndjson", ".json")


def read_trace(path: Path, *, where: str = "workload.trace", most_rows: int | None = None) -> Trace:
    """The requests of a trace file, or of ServeGen's folder. Raises InvalidInput with file, line and column for what
    cannot be read. Reading ends once `most_rows` are kept (500,000 unless said), with a note.
    """
    if is_client(path):
        return read_clients(path, where=where)
    reading = Reading(most_rows)
    text = lines(path, where=where)
    before, first = _first_line(text)
    if first[:1] in ("{", "[") or any(path.name.removesuffix(".gz").endswith(end) for end in _JSON):
        read_json(chain(before, text), path, reading)
    else:
        read_csv(chain(before, text), path, reading)
    if not reading.rows:
        reasons = "; ".join(f"{count:,} with {reason}" for reason, count in sorted(reading.dropped.items()))
        raise InvalidInput(
            "has no request in it", where=str(path), hint=f"{reading.read} rows read: {reasons or 'none'}"
        )
    return reading.trace(path.name)


def _first_line(text: Iterator[str]) -> tuple[list[str], str]:
    """The lines up to the first that is not blank, and that one without blanks before it."""
    before = []
    for line in text:
        before.append(line)
        if line.strip():
            return before, line.lstrip()
    return before, ""
