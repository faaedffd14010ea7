"""Percentiles of prompt and answer lengths from a public trace, as the bundled profiles state them.

    python -m tools.profile_percentiles TRACE [--min-prompt N] [--max-prompt N] [--max-output N] ...

TRACE is a CSV or JSONL file with one row a request, or a directory of ServeGen's length histograms. Every row is kept
or counted under the reason it was dropped for. A percentile is by nearest rank: a length that was really seen.
"""

from __future__ import annotations

import ast
import csv
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import click
import msgspec

PERCENTILES = (50, 90, 95, 99)
COLUMNS = (  # prompt and answer length, by the names the traces use
    ("ContextTokens", "GeneratedTokens"),  # Azure LLM inference traces
    ("num_prefill_tokens", "num_decode_tokens"),  # sarathi-serve's lengths of ShareGPT and arXiv
    ("Request tokens", "Response tokens"),  # BurstGPT
    ("input_length", "output_length"),  # Mooncake
)
MOONCAKE_BLOCK_TOKENS = 512
SERVEGEN_WINDOW_S = 600


class Row(msgspec.Struct, frozen=True):
    """One request: its lengths, when it came, and Mooncake's ids of its prompt's blocks of 512 tokens."""

    prompt_tokens: int
    output_tokens: int
    arrival_s: float | None = None
    blocks: tuple[int, ...] = ()


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests belong to a profile, and what their prompts are multiplied by (after the filter)."""

    min_prompt: int = 1
    max_prompt: int | None = None
    max_output: int | None = None
    max_total: int | None = None
    until_s: float | None = None
    prompt_factor: int = 1

    def dropped_for(self, row: Row) -> str | None:
        """Why a row is left out, or None."""
        if min(row.prompt_tokens, row.output_tokens) < 1:
            return "no tokens"
        if self.until_s is not None and (row.arrival_s is None or row.arrival_s >= self.until_s):
            return f"arrived at {self.until_s:g} s or later, or at no known time"
        if row.prompt_tokens < self.min_prompt:
            return f"prompt under {self.min_prompt}"
        if self.max_prompt is not None and row.prompt_tokens > self.max_prompt:
            return f"prompt over {self.max_prompt}"
        if self.max_output is not None and row.output_tokens > self.max_output:
            return f"answer over {self.max_output}"
        if self.max_total is not None and row.prompt_tokens + row.output_tokens > self.max_total:
            return f"prompt and answer over {self.max_total}"
        return None


class Figures(msgspec.Struct, kw_only=True):
    """What was found: weights by length, how many requests were read (of histograms, expected) and left out."""

    prompts: Counter[int] = msgspec.field(default_factory=Counter)
    outputs: Counter[int] = msgspec.field(default_factory=Counter)
    read: float = 0
    dropped: Counter[str] = msgspec.field(default_factory=Counter)
    common: tuple[int, ...] | None = None  # leading blocks that all kept prompts share; None before the first


def of_rows(rows: Iterable[Row], chosen: Filter) -> Figures:
    """The figures of a trace with one row a request."""
    figures = Figures()
    for row in rows:
        figures.read += 1
        reason = chosen.dropped_for(row)
        if reason is not None:
            figures.dropped[reason] += 1
            continue
        figures.prompts[row.prompt_tokens * chosen.prompt_factor] += 1
        figures.outputs[row.output_tokens] += 1
        before = row.blocks if figures.common is None else figures.common
        figures.common = _common_start(before, row.blocks)
    return figures


def _common_start(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:same]


def rows_of(path: Path) -> Iterator[Row]:
    """The requests of a CSV or JSONL trace. Raises UsageError where no pair of length columns is known."""
    with path.open(encoding="utf-8", newline="") as file:
        for record in _records(file, as_json=path.suffix == ".jsonl"):
            pair = next((pair for pair in COLUMNS if pair[0] in record), None)
            if pair is None:
                raise click.UsageError(f"{path.name} has none of the length columns of {COLUMNS}")
            yield Row(
                int(float(record[pair[0]])),
                int(float(record[pair[1]])),
                float(record["timestamp"]) / 1000 if "timestamp" in record else None,  # Mooncake's, in ms
                tuple(record.get("hash_ids", ())),
            )


def _records(file: TextIO, *, as_json: bool) -> Iterator[dict[str, Any]]:
    if as_json:
        yield from (json.loads(line) for line in file)
    else:
        yield from csv.DictReader(file)


def of_histograms(directory: Path, chosen: Filter) -> Figures:
    """The figures of ServeGen's clients: histograms of lengths per window of the day, weighted by the request rates.

    The two lengths are independent here, so each limit cuts its own histogram; what is dropped is counted by length.
    """
    if chosen.max_total is not None or chosen.until_s is not None:
        raise click.UsageError("a histogram has neither totals nor arrival times: leave --max-total and --until-s out")
    prompts: Counter[int] = Counter()
    outputs: Counter[int] = Counter()
    for path in sorted(directory.glob("chunk-*-dataset.json")):
        windows = {int(start): window for start, window in json.loads(path.read_text(encoding="utf-8")).items()}
        for start, requests in _requests_by_window(path, sorted(windows)).items():
            for name, counter in (("input_tokens", prompts), ("output_tokens", outputs)):
                for length, probability in ast.literal_eval(windows[start][name]).items():
                    counter[length] += requests * probability
    figures = Figures(read=sum(prompts.values()))
    for length, weight in prompts.items():
        reason = chosen.dropped_for(Row(length, 1))
        figures.dropped.update({reason: weight} if reason else {})
        figures.prompts.update({} if reason else {length * chosen.prompt_factor: weight})
    for length, weight in outputs.items():
        reason = chosen.dropped_for(Row(max(chosen.min_prompt, 1), length))
        figures.dropped.update({reason: weight} if reason else {})
        figures.outputs.update({} if reason else {length: weight})
    return figures


def _requests_by_window(path: Path, starts: list[int]) -> dict[int, float]:
    """How many requests one client sends in each of its histograms' windows."""
    requests: dict[int, float] = defaultdict(float)
    with path.with_name(path.name.replace("-dataset.json", "-trace.csv")).open(encoding="utf-8", newline="") as file:
        for second, rate, *_ in csv.reader(file):
            earlier = [start for start in starts if start <= int(second)]
            if earlier:
                requests[earlier[-1]] += float(rate) * SERVEGEN_WINDOW_S
    return requests


def percentiles(weights: Counter[int]) -> dict[str, int]:
    """p50, p90, p95, p99 by nearest rank, and the maximum."""
    total = math.fsum(weights.values())
    if total <= 0:
        raise click.UsageError("no request is left")
    wanted = {f"p{percent}": total * percent / 100 for percent in PERCENTILES}
    found: dict[str, int] = {}
    below = 0.0
    for length in sorted(weights):
        below += weights[length]
        for name, rank in wanted.items():
            if name not in found and below >= rank * (1 - 1e-12):
                found[name] = length
    return {**{name: found[name] for name in wanted}, "max": max(length for length, w in weights.items() if w > 0)}


def as_yaml(figures: Figures) -> str:
    """The lines a profile holds, with what was dropped as a comment."""
    lines = [f"# {figures.read:,.0f} requests"]
    lines += [f"#   left out {count:,.0f}: {reason}" for reason, count in sorted(figures.dropped.items())]
    for name, weights in (("prompt_tokens", figures.prompts), ("output_tokens", figures.outputs)):
        inner = ", ".join(f"{key}: {value}" for key, value in percentiles(weights).items())
        lines.append(f"{name}: {{{inner}}}")
    if figures.common:
        shared = len(figures.common) * MOONCAKE_BLOCK_TOKENS  # the last block of a prompt need not be full
        lines.append(f"shared_prefix_tokens: {min([shared, *figures.prompts])}")
    return "\n".join(lines)


def figures_of(trace: Path, chosen: Filter) -> Figures:
    """The figures of a trace file, or of a directory of histograms."""
    return of_histograms(trace, chosen) if trace.is_dir() else of_rows(rows_of(trace), chosen)


@click.command(help=__doc__)
@click.argument("trace", type=click.Path(exists=True, path_type=Path))
@click.option("--min-prompt", type=int, default=1, help="Leave out shorter prompts.")
@click.option("--max-prompt", type=int, help="Leave out longer prompts.")
@click.option("--max-output", type=int, help="Leave out longer answers.")
@click.option("--max-total", type=int, help="Leave out requests whose prompt and answer are longer together.")
@click.option("--until-s", type=float, help="Leave out requests that arrive later (Mooncake's traces).")
@click.option("--prompt-factor", type=int, default=1, help="Multiply the prompts that are left. A change: say so.")
def main(trace: Path, **options: int) -> None:
    """Print a profile's percentiles."""
    click.echo(as_yaml(figures_of(trace, Filter(**options))))


if __name__ == "__main__":
    main()
