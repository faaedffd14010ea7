"""ServeGen's clients (Xiang et al., arXiv 2505.09999): rates by windows of a day, and histograms of lengths.

A client is two files: `chunk-N-trace.csv` without a header (second, requests per second, CV of the gaps, the fitted
distribution and its parameters) and `chunk-N-dataset.json` (window's second -> input_tokens and output_tokens, each
length -> share). Gaps are drawn as gamma with the window's CV, whichever distribution was fitted.
"""

from __future__ import annotations

import ast
import csv
import heapq
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import msgspec

from advisor.errors import InvalidInput
from verify.load.randomness import stream
from verify.load.trace_lines import lines
from verify.load.trace_types import Histogram, Trace, TraceClient, TraceRow, Window

WINDOW_S = 600.0
_RATES, _LENGTHS = "-trace.csv", "-dataset.json"
_HINT = "ServeGen's chunk-N-trace.csv beside its chunk-N-dataset.json"


def is_client(path: Path) -> bool:
    """Whether a path is a folder, or one of a client's two files."""
    if path.is_dir():
        return True
    return any(path.name.endswith(end) and _other(path, end).is_file() for end in (_RATES, _LENGTHS))


def _other(path: Path, end: str) -> Path:
    return path.with_name(path.name.removesuffix(end) + (_LENGTHS if end == _RATES else _RATES))


def read_clients(path: Path, *, where: str) -> Trace:
    """A client, or every client of a folder. Raises InvalidInput where a file is not as described above."""
    if path.is_dir():
        rates = sorted(path.glob(f"*{_RATES}"), key=lambda p: (len(p.name), p.name))
        if not rates:
            raise InvalidInput("has no client in it", where=f"{where}: {path}", hint=_HINT)
    else:
        rates = [path if path.name.endswith(_RATES) else _other(path, _LENGTHS)]
    clients = tuple(_client(one, where) for one in rates)
    if not any(window.rate_per_s > 0 for client in clients for window in client.windows):
        raise InvalidInput("has no request in it", where=str(path), hint="all rates are 0")
    note = f"requests are drawn from {len(clients):,} ServeGen clients by the seed, their gaps as gamma by their CV"
    return Trace(name=path.name, rows=(), read=0, clients=clients, notes=(note,))


def drawn(
    clients: Iterable[TraceClient], seed: int, *, from_s: float, until_s: float | None, most: int
) -> list[TraceRow]:
    """The first `most` requests between these seconds, with times from `from_s` on."""
    end = math.inf if until_s is None else until_s
    coming = heapq.merge(*(_requests(client, seed, from_s, end) for client in clients), key=lambda row: row.at_s or 0.0)
    return [msgspec.structs.replace(row, at_s=(row.at_s or 0.0) - from_s) for row in islice(coming, most)]


def _requests(client: TraceClient, seed: int, from_s: float, until_s: float) -> Iterator[TraceRow]:
    rng = stream(seed, f"client {client.name}")
    for window in client.windows:
        begin, end = max(window.start_s, from_s), min(window.end_s, until_s)
        if window.rate_per_s <= 0 or begin >= end:
            continue
        shape = 1 / max(window.cv, 0.01) ** 2
        at = begin
        while (at := at + rng.gammavariate(shape, 1 / (window.rate_per_s * shape))) < end:
            yield TraceRow(_length(window.prompts, rng.random()), _length(window.outputs, rng.random()), at)


def _length(histogram: Histogram, share: float) -> int:
    place = bisect_right(histogram.shares, share * histogram.shares[-1])
    return histogram.lengths[min(place, len(histogram.lengths) - 1)]


def _client(path: Path, where: str) -> TraceClient:
    lengths = _histograms(_other(path, _RATES), where)
    starts = sorted(lengths)
    windows = []
    for number, row in enumerate(csv.reader(lines(path, where=where)), 1):
        if not row:
            continue
        try:
            second, rate, cv = (float(value) for value in row[:3])
        except ValueError:
            second = rate = cv = math.nan
        if not all(math.isfinite(v) and v >= 0 for v in (second, rate, cv)):
            raise InvalidInput(
                "has no second, rate and CV in its first three columns", where=f"{path}:{number}", hint=_HINT
            )
        earlier = bisect_right(starts, second) - 1
        if earlier < 0:
            continue  # ServeGen describes no lengths for the time before its first window
        prompts, outputs = lengths[starts[earlier]]
        windows.append(
            Window(start_s=second, end_s=second + WINDOW_S, rate_per_s=rate, cv=cv, prompts=prompts, outputs=outputs)
        )
    return TraceClient(path.name.removesuffix(_RATES), tuple(sorted(windows, key=lambda w: w.start_s)))


def _histograms(path: Path, where: str) -> dict[float, tuple[Histogram, Histogram]]:
    text = "".join(lines(path, where=where))
    try:
        read = msgspec.json.decode(text)
        found = {
            float(start): (_histogram(window["input_tokens"]), _histogram(window["output_tokens"]))
            for start, window in read.items()
        }
    except (msgspec.DecodeError, ValueError, TypeError, KeyError, AttributeError, SyntaxError, RecursionError) as error:
        raise InvalidInput(
            f"holds no windows of input_tokens and output_tokens ({type(error).__name__}: {error})",
            where=str(path), hint=_HINT,
        ) from error  # fmt: skip
    return found


def _histogram(value: Any) -> Histogram:
    """{length: share}, as an object or as the text of one. Lengths below 1 are no requests."""
    shares = ast.literal_eval(value) if isinstance(value, str) else value
    if not isinstance(shares, Mapping):
        raise TypeError("no mapping of lengths to shares")
    pairs = sorted((int(length), float(share)) for length, share in shares.items() if int(length) >= 1)
    if any(not math.isfinite(share) or share < 0 for _, share in pairs) or not sum(share for _, share in pairs) > 0:
        raise ValueError("no shares")
    return Histogram(tuple(length for length, _ in pairs), tuple(accumulate(share for _, share in pairs)))
