"""Public start-up logs: with a start's own costs as measured, the pool that vLLM printed lies in the ledger's band."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from advisor.estimate import Estimate, estimated, exact
from advisor.ledger import memory_ledger
from advisor.measured import ROUNDING_BYTES, Measurement, Span, with_measured
from advisor.overheads import Overheads
from advisor.versions import parse_version
from tests.advisor.test_measured import KEY

GIB = 1024**3
FILE = Path(__file__).resolve().parents[1] / "data" / "startups_rows.jsonl"
NOTHING = estimated(GIB, 0, 4 * GIB)  # what nobody measured: were it used, the band would be gigabytes wide
WIDEST_BYTES = 2 * GIB // 5  # from the low end to the high one


def rows() -> list[dict[str, Any]]:
    read = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    known = ("activation_gib", "non_torch_gib", "kv_gib", "weights_gib", "utilization", "total_gib")
    return [row for row in read if row["outcome"] == "started" and all(row.get(name) is not None for name in known)]


def span(gib: float | None) -> Span | None:
    if gib is None:
        return None
    middle = round(gib * GIB)
    return Span(middle, middle - ROUNDING_BYTES, middle + ROUNDING_BYTES)


def printed(gib: float) -> Estimate:
    middle = round(gib * GIB)
    return Estimate(middle, middle - ROUNDING_BYTES, middle + ROUNDING_BYTES, "measured")


def pool_of(row: dict[str, Any], costs: dict[str, Any]) -> Estimate:
    """The pool of a row's start with another's (or its own) costs as measured."""
    counted = parse_version(row["version"]) >= (0, 21)  # graphs are taken from the pool
    known = Measurement(
        key=KEY,
        activation=span(costs["activation_gib"]),
        non_torch=span(costs["non_torch_gib"]),
        cuda_graphs=span(costs.get("graphs_gib")),
        cuda_graphs_estimated=span(costs.get("graphs_estimated_gib")),
    )
    predicted = Overheads(
        activation_bytes=NOTHING, non_torch_bytes=NOTHING, cuda_graph_bytes=exact(0), cuda_graphs_in_budget=counted,
        communicator_bytes=exact(0), run_time_bytes=exact(0),
    )  # fmt: skip
    return memory_ledger(
        version=parse_version(row["version"]),
        total=printed(row["total_gib"]),
        free=printed(row.get("free_gib") or row["total_gib"]),
        utilization=row["utilization"],
        weights=printed(row["weights_gib"]),
        overheads=with_measured(predicted, known),
    ).kv_cache_bytes


def same_key(a: dict[str, Any], b: dict[str, Any]) -> bool:
    names = ("version", "shape", "gpu", "tp", "seqs", "batched", "quantization", "weights_gib", "eager")
    return all(a.get(name) == b.get(name) for name in names)


ROWS = rows()
PAIRS = [pair for pair in combinations(ROWS, 2) if same_key(*pair)]


def test_there_are_rows_and_repeated_starts() -> None:
    assert len(ROWS) >= 30
    assert len(PAIRS) >= 5


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_start_s_own_costs_give_its_pool(row: dict[str, Any]) -> None:
    pool = pool_of(row, row)
    assert pool.low - ROUNDING_BYTES <= row["kv_gib"] * GIB <= pool.high + ROUNDING_BYTES
    assert pool.high - pool.low < WIDEST_BYTES


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=lambda row: row["id"])
def test_one_start_foretells_the_next_of_its_key(first: dict[str, Any], second: dict[str, Any]) -> None:
    for costs, row in ((first, second), (second, first)):
        pool = pool_of(row, costs)
        assert pool.low - ROUNDING_BYTES <= row["kv_gib"] * GIB <= pool.high + ROUNDING_BYTES
