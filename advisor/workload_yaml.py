"""Reads a workload file: text in, a WorkloadFile out, or one error with every problem, its line and key."""

from __future__ import annotations

from typing import Any

from advisor.arrival_fields import cut_of
from advisor.problems import InvalidWorkload, Problem
from advisor.workload import Arrivals, GpuRef, Lengths, Load, ModelRef, Policy, Slo, TraceCut, WorkloadFile
from advisor.workload_fields import WRONG, Reading, attempt
from advisor.workload_keys import ELSEWHERE, WORKLOAD
from advisor.yaml_nodes import BYTES_AT_MOST, compose, too_large, unreadable

_OTHER_ENCODINGS = (
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
)


def read_workload_bytes(data: bytes, file: str) -> WorkloadFile:
    """The workload in the bytes of a file; `file` is its name for messages.

    Raises InvalidWorkload as read_workload does, and for bytes that are no UTF-8 text.
    """
    if len(data) > BYTES_AT_MOST:
        raise InvalidWorkload(file, [too_large()])
    for start, encoding in _OTHER_ENCODINGS:
        if data.startswith(start):
            raise InvalidWorkload(file, [Problem("", 1, f"is {encoding}", "expected a text file in UTF-8")])
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        what = f"holds the byte 0x{data[error.start]:02x}, which is not UTF-8"
        raise InvalidWorkload(file, [unreadable(before, len(before), what)]) from None
    return read_workload(text, file)


def read_workload(text: str, file: str) -> WorkloadFile:
    """The workload in the text of a file; `file` is its name for messages.

    Raises InvalidWorkload with every problem found: what `kvadvise.workload/1` does not allow, and what could
    be taken in two ways. Nothing is ignored and nothing is converted silently.
    """
    root, problems = compose(text, file)
    reading = Reading(problems, ELSEWHERE)
    values = attempt(WORKLOAD, reading, root, "")
    if problems:
        raise InvalidWorkload(file, problems)
    if values is WRONG:
        raise AssertionError("a value that could not be read was not reported")
    return _built(file, values, reading.lines)


def _built(file: str, values: dict[str, Any], lines: dict[str, int]) -> WorkloadFile:
    model = dict(values["model"])
    model.setdefault("id", model.get("path", ""))
    return WorkloadFile(
        file=file,
        name=values.get("name"),
        description=values.get("description"),
        origin=values.get("origin"),
        model=ModelRef(**model),
        gpu=GpuRef(**values["gpu"]),
        workload=_load(dict(values["workload"])),
        slo=Slo(**values.get("slo", {})),
        policy=Policy(**values.get("policy", {})),
        engine=values.get("engine", {}),
        gate=values.get("gate", {}),
        plan=values.get("plan"),
        lines=lines,
    )


def _load(load: dict[str, Any]) -> Load:
    for name in ("prompt_tokens", "output_tokens"):
        load[name] = Lengths(**load[name])
    if "trace" in load:
        load["trace"], cut = cut_of(load["trace"])
        load["trace_cut"] = TraceCut(**cut) if cut else None
    if "arrivals" in load:
        arrivals = load["arrivals"] = Arrivals(**load["arrivals"])
        if arrivals.rates is not None:
            load["requests_per_s"] = max(rate for _, rate in arrivals.rates)
    return Load(**load)
