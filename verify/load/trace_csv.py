"""Rows of a CSV trace: the header says which columns hold prompt, answer and time; the others are not looked at."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from advisor.errors import InvalidInput
from verify.load.trace_columns import OUTPUT, PROMPT, TIME, Clock, column, needed, tokens
from verify.load.trace_reading import NO_TIME, Reading
from verify.load.trace_types import TraceRow

_DELIMITERS = ",;\t|"


class _Header:
    """Where in a row the columns are that count."""

    def __init__(self, line: str, where: str) -> None:
        self.delimiter = max(_DELIMITERS, key=line.count)
        try:
            names = [name.strip() for name in next(csv.reader([line], delimiter=self.delimiter), [])]
        except csv.Error as error:
            raise InvalidInput(f"is no CSV: {error}", where=where, hint="a CSV with a header line, or JSONL") from error
        if not any(names):
            raise InvalidInput("is empty", where=where, hint="a CSV with a header line, or JSONL")
        self.prompt_name, self.output_name = (
            needed(names, PROMPT, "prompt", where),
            needed(names, OUTPUT, "answer", where),
        )
        self.prompt, self.output = names.index(self.prompt_name), names.index(self.output_name)
        self.columns = len(names)
        time = column(names, TIME)
        self.time = names.index(time) if time is not None else None
        self.clock = Clock(time) if time is not None else None


def read_csv(lines: Iterator[str], path: Path, reading: Reading) -> None:
    """Take every row of a CSV, whose first line is the header, into `reading`."""
    before, first = 1, next(lines, "")
    while first and not first.strip():
        before, first = before + 1, next(lines, "")
    header = _Header(first, f"{path}:{before}")
    rows = csv.reader(lines, delimiter=header.delimiter)
    try:
        for record in rows:
            if record and _take(record, header, reading, f"{path}:{rows.line_num + before}"):
                break
    except csv.Error as error:
        raise InvalidInput(
            f"is no CSV: {error}", where=f"{path}:{rows.line_num + before}", hint="CSV or JSONL"
        ) from error
    if header.clock is not None and header.clock.note:
        reading.note(header.clock.note)


def _take(record: list[str], header: _Header, reading: Reading, where: str) -> bool:
    """Take one row; True once there are enough."""
    if len(record) != header.columns:
        raise InvalidInput(
            f"has {len(record)} columns, the header has {header.columns}", where=where, hint="one row a request"
        )
    at_s = None
    if header.clock is not None and header.time is not None:
        written = record[header.time].strip()
        if not written:
            reading.drop(NO_TIME)
            return False
        at_s = header.clock.seconds(written, where)
    prompt = tokens(record[header.prompt].strip(), header.prompt_name, where)
    return reading.take(TraceRow(prompt, tokens(record[header.output].strip(), header.output_name, where), at_s))
