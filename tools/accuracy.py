"""Writes how far predictions are off into docs/accuracy.md; `make accuracy` runs `python -m tools.accuracy`.

Only the parts between its own markers are replaced; `--check` writes nothing and fails if the document is out of date.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from advisor.units import GIB
from tools.accuracy_sections import layouts, planned
from tools.startups import Prediction, Startup, left_out, load_rows, predict

DOCUMENT = Path(__file__).parent.parent / "docs" / "accuracy.md"
_GRAPHS_COUNTED = (0, 20)
_TITLE = "# How accurate the numbers are\n\nMeasured, not promised: every table is made by `make accuracy`.\n"

_INTRODUCTION = """## Memory at start, against public start-up logs

One row is one start of vLLM whose log is public; sources and figures are in `tests/data/startups_rows.jsonl`. The log's
own weights are used, so what is judged is the rest: activation peak, memory outside torch, CUDA graphs where the budget
pays for them. Batch sizes that a log does not state are vLLM's defaults for that card and version. *Error* is predicted
KV pool against logged pool; *held* counts the logs inside the predicted band; *too high* those below its low end, the
only side that breaks a promise. *Left out* is the error when every constant taken from logs is taken again without any
log of that project (`tools/startups.py`, `refit`); with few other logs of that kind it is an upper bound of what to
expect on a machine nobody has measured.

A band adds up the parts' own bands: the widest in full, the others in quadrature (`advisor/spread.py`); the parts'
bands and what they were seen on are in `profiles/vllm/overheads.yaml`.

Grade A rows state everything that matters. Rows of 0.20 and later, where the graph estimate comes out of the pool, are
few: their bands are wide, and the table keeps them apart.
"""


def percentile(values: Iterable[float], share: float) -> float:
    """A percentile with linear interpolation; values must not be empty."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower)


def section(rows: Sequence[Startup]) -> str:
    """The whole section, markers excluded."""
    seen = [predict(row) for row in rows]
    blind = {p.row.id: p for p in left_out(list(rows))}
    graded = [p for p in seen if p.row.grade == "A"]
    before = [p for p in graded if p.row.release < _GRAPHS_COUNTED]
    after = [p for p in seen if p.row.release >= _GRAPHS_COUNTED]
    parts = [
        _INTRODUCTION,
        _headline([("up to 0.19, grade A", before), ("0.20 and later, all grades", after), ("all rows", seen)], blind),
        _starts(graded),
        _by("version", before, blind, lambda row: str(row.release)),
        _by("family", before, blind, lambda row: row.family),
        _by("source", before, blind, lambda row: row.project),
        _each(seen),
    ]
    return "\n".join(parts)


def _headline(sets: list[tuple[str, list[Prediction]]], blind: dict[str, Prediction]) -> str:
    lines = [
        "| rows | n | error, median | error, 90th pct | held | band, median width | too high | left out, median |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {name} | {_summary(found, blind)} |" for name, found in sets]
    return "\n".join(lines) + "\n"


def _summary(found: list[Prediction], blind: dict[str, Prediction]) -> str:
    errors = [abs(p.error_fraction) for p in found if p.error_fraction is not None]
    held = [p.holds for p in found if p.holds is not None]
    high = [p.too_high for p in found if p.too_high is not None]
    widths = [p.width_fraction for p in found if p.width_fraction is not None]
    if not errors:
        return f"{len(held)} | - | - | {sum(held)} of {len(held)} | - | {sum(high)} | -"
    others = [abs(e) for p in found if (e := blind[p.row.id].error_fraction) is not None]
    return (
        f"{len(held)} | {_percent(percentile(errors, 0.5))} | {_percent(percentile(errors, 0.9))} "
        f"| {sum(held)} of {len(held)} | {_percent(percentile(widths, 0.5))} | {sum(high)} "
        f"| {_percent(percentile(others, 0.5))}"
    )


def _starts(found: list[Prediction]) -> str:
    worked = [p for p in found if p.row.outcome == "started" and p.row.needed_gib is not None]
    failed = [p for p in found if p.row.outcome == "kv_insufficient"]
    return (
        "| grade A starts | n | foretold to start | left open | foretold to fail |\n|---|---|---|---|---|\n"
        f"| worked, need of one request known | {len(worked)} | {_verdicts(worked)} |\n"
        f"| failed for lack of KV memory | {len(failed)} | {_verdicts(failed)} |\n"
    )


def _verdicts(found: list[Prediction]) -> str:
    return " | ".join(str(sum(p.starts is verdict for p in found)) for verdict in (True, None, False))


def _by(name: str, found: list[Prediction], blind: dict[str, Prediction], key: Callable[[Startup], str]) -> str:
    scored = [p for p in found if p.error_fraction is not None]
    lines = [
        f"| {name} | n | error, median | error, worst | held | left out, median | left out, worst |",
        "|---" * 7 + "|",
    ]
    for value in sorted({key(p.row) for p in scored}, key=_natural):
        group = [p for p in scored if key(p.row) == value]
        errors = [abs(p.error_fraction or 0.0) for p in group]
        others = [abs(blind[p.row.id].error_fraction or 0.0) for p in group]
        lines.append(
            f"| {value} | {len(group)} | {_percent(percentile(errors, 0.5))} | {_percent(max(errors))} "
            f"| {sum(p.holds is True for p in group)} of {len(group)} | {_percent(percentile(others, 0.5))} "
            f"| {_percent(max(others))} |"
        )
    return f"By {name}, grade A up to 0.19:\n\n" + "\n".join(lines) + "\n"


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in text.split(".")]


def _each(found: list[Prediction]) -> str:
    lines = [
        "| log | vLLM | grade | GPU | logged GiB | predicted GiB | band GiB | error | outcome | foretold |",
        "|---" * 10 + "|",
    ]
    foretold = {True: "starts", False: "fails", None: "open"}
    for p in sorted(found, key=lambda p: (p.row.release, p.row.id)):
        pool = p.ledger.kv_cache_bytes
        count = p.row.tp * p.row.pp
        gpu = f"{count} x {p.row.gpu}" if count > 1 else p.row.gpu
        logged = "-" if p.row.kv_gib is None else f"{p.row.kv_gib:.2f}"
        error = "-" if p.error_fraction is None else _percent(p.error_fraction, signed=True)
        lines.append(
            f"| {p.row.id} | {p.row.version} | {p.row.grade} | {gpu} | {logged} | {pool.value / GIB:.2f} "
            f"| {pool.low / GIB:.2f} to {pool.high / GIB:.2f} | {error} | {p.row.outcome} | {foretold[p.starts]} |"
        )
    return (
        "Every row (*open*: within the band, or the log does not say what one request needs):\n\n"
        + "\n".join(lines)
        + "\n"
    )


def _percent(share: float, *, signed: bool = False) -> str:
    return f"{share:+.2%}" if signed else f"{share:.2%}"


def updated(document: str, text: str, name: str = "startups") -> str:
    """The document with the part between the markers replaced, or added at its end where there is none."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    block = f"{begin}\n{text}{end}"
    if begin not in document or end not in document:
        return f"{document.rstrip()}\n\n{block}\n"
    head, rest = document.split(begin, 1)
    return head + block + rest.split(end, 1)[1]


def _write(path: Path, text: str) -> None:
    """Write beside and rename, so that a reader never meets half a document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the section; with --check compare it only."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the document is out of date")
    parser.add_argument("--document", type=Path, default=DOCUMENT)
    options = parser.parse_args(arguments)
    path: Path = options.document
    before = path.read_text(encoding="utf-8") if path.exists() else _TITLE
    after = updated(updated(before, layouts(), "layouts"), section(load_rows()))
    after = updated(after, planned(), "plans")
    if options.check:
        if after != before:
            sys.stderr.write(f"{path} is out of date: run `make accuracy`\n")
            return 1
        return 0
    _write(path, after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
