"""The bundled workloads: each can be read, and its percentiles are those of the trace it names."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.workload import Lengths
from advisor.workload_yaml import read_workload_bytes
from kvadvise.profile_store import bundled_dir

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("KVADVISE_SHARED", ROOT.parent / "shared"))
NAMES = sorted(path.stem for path in bundled_dir().glob("*.yaml"))


def test_there_are_some() -> None:
    assert "chat-7b-rtx-4090" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_reads_and_is_called_what_its_file_is(name: str) -> None:
    path = bundled_dir() / f"{name}.yaml"
    workload = read_workload_bytes(path.read_bytes(), str(path))
    assert workload.name == name
    assert workload.description
    assert workload.origin


def azure(path: Path) -> list[tuple[int, int]]:
    with path.open(newline="") as file:
        return [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]


def mooncake(path: Path) -> list[tuple[int, int]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["input_length"], row["output_length"]) for row in rows]


def sharegpt(path: Path) -> list[tuple[int, int]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [(int(float(row["num_prefill_tokens"])), int(float(row["num_decode_tokens"]))) for row in rows]


def lengths(values: list[int]) -> Lengths:
    """Percentiles by nearest rank: the smallest value that so many are not above."""
    ordered = sorted(values)
    p50, p90, p95, p99 = (ordered[math.ceil(len(ordered) * share / 100) - 1] for share in (50, 90, 95, 99))
    return Lengths(p50=p50, p90=p90, p95=p95, p99=p99, max=ordered[-1])


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "trace", "read"),
    [
        ("chat-7b-rtx-4090", "AzureLLMInferenceTrace_conv.csv", azure),
        ("long-chat-8b-h100", "mooncake_conversation_first25min.jsonl", mooncake),
        ("sharegpt-8b-l40s", "sharegpt_8k_lengths_llama2.csv", sharegpt),
    ],
)
def test_percentiles_are_those_of_the_trace(
    name: str, trace: str, read: Callable[[Path], list[tuple[int, int]]]
) -> None:
    path = SHARED / "traces" / trace
    if not path.exists():
        pytest.skip(f"the trace is not here: set KVADVISE_SHARED to the folder that has traces/{trace}")
    rows = read(path)
    file = bundled_dir() / f"{name}.yaml"
    load = read_workload_bytes(file.read_bytes(), name).workload
    assert load.prompt_tokens == lengths([prompt for prompt, _ in rows])
    assert load.output_tokens == lengths([output for _, output in rows])
    assert f"{len(rows):,} " in file.read_text()
