"""Readers of when requests come: `workload.arrivals`, and the part of a trace under `workload.trace`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from advisor import workload_checks as checks
from advisor.workload_fields import Reading, Section, WrongValueError, choice, number, said, share, text, whole
from advisor.yaml_nodes import Node, Sequence

_PIECES = "expected pieces of [from second, requests per second], such as [[0, 2], [60, 5]]"
_PIECES_AT_MOST = 10_000


def pieces(reading: Reading, node: Node, key: str) -> tuple[tuple[float, float], ...]:
    """Pieces of constant rate: seconds from 0 on and rising, rates from 0, not all of them 0."""
    if not isinstance(node, Sequence) or not node.items:
        raise WrongValueError(f"is {said(node) if not isinstance(node, Sequence) else 'an empty list'}", _PIECES)
    if len(node.items) > _PIECES_AT_MOST:
        raise WrongValueError(f"has {len(node.items)} pieces", f"expected at most {_PIECES_AT_MOST}")
    found: list[tuple[float, float]] = []
    for item in node.items:
        if not isinstance(item, Sequence) or len(item.items) != 2:
            raise WrongValueError(f"holds {said(item)} that is no pair", _PIECES)
        found.append((_SECOND(reading, item.items[0], key), _RATE(reading, item.items[1], key)))
    _in_order(found)
    return tuple(found)


_SECOND = number("seconds", zero=True)
_RATE = number("number", zero=True, maximum=1e6)


def _in_order(found: list[tuple[float, float]]) -> None:
    starts = [start for start, _ in found]
    if starts[0] != 0:
        raise WrongValueError(f"begin at {starts[0]:g} s", "expected the first piece from second 0")
    late = next((after for before, after in pairwise(starts) if after <= before), None)
    if late is not None:
        raise WrongValueError(f"have a piece from {late:g} s after a later one", "expected seconds that rise")
    if all(rate == 0 for _, rate in found):
        raise WrongValueError("are all 0", "expected a piece in which requests come")


ARRIVALS = Section(
    fields={
        "process": choice("poisson", "constant", "gamma", "piecewise"),
        "cv": number("number", zero=True, maximum=100),
        "rates": pieces,
    },
    required=((("process",), "one of poisson, constant, gamma, piecewise"),),
    example="a mapping such as {process: gamma, cv: 2}",
    check=checks.arrivals,
)
TRACE = Section(
    fields={
        "file": text("a path"),
        "from_s": number("seconds", zero=True),
        "until_s": number("seconds"),
        "keep_fraction": share(),
        "time_scale": number("number", maximum=1000),
        "requests_max": whole("requests"),
    },
    required=((("file",), "a path"),),
    example="a path, or a mapping such as {file: chat.csv, until_s: 600}",
    check=checks.trace,
)


def cut_of(trace: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The file of a trace, and what is said of the part of it."""
    return trace["file"], {name: value for name, value in trace.items() if name != "file"}
