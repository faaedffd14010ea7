"""The planner disturbs no layout: with everything pinned, a plan's `kv` is vLLM's own answer.

Every fourth of the answers goes through the whole planner; all of them are compared below it in test_layout_answers.py.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from advisor.errors import NotUnderstood
from advisor.model.read import read_model
from advisor.plan import make_plan
from advisor.plan_types import Plan
from advisor.units import GIB
from kvadvise.constants import load_constants
from tests.advisor import plan_samples as s
from tests.advisor.test_layout_answers import ROWS, facts_of
from tests.layouts import device, row_version

PARALLEL = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dcp": "decode_context_parallel_size",
    "ep": "enable_expert_parallel",
}
OWN_BATCH = {"openai/whisper-tiny"}  # without a pinned batch the plan's fewer sequences make it smaller
SOME = [row for row in ROWS if row["model"] not in OWN_BATCH][::4]


def planned(row: dict[str, Any]) -> Plan | None:
    version = row_version(row)
    facts = facts_of(row["model"])
    pins = dict(row.get("args") or {}) | {name: row[key] for key, name in PARALLEL.items() if row.get(key) is not None}
    try:
        pins.setdefault("max_model_len", read_model(facts, version).default_max_model_len)
    except NotUnderstood:
        return None
    pins |= {"vllm_version": str(version), "kv_cache_memory_bytes": int(row["kv_gib"] * GIB)}
    gpu = device(str(row.get("cap", "9.0")), row.get("gpu_gib", 79.1), row.get("gpu_name", "NVIDIA H100 80GB HBM3"))
    ranks = pins.get("tensor_parallel_size", 1) * pins.get("pipeline_parallel_size", 1)
    return make_plan(
        s.workload(row["model"], prompt=16, output=16, concurrency=1, weights_gib=1.0, engine=pins),
        facts,
        msgspec.structs.replace(gpu, count=ranks),
        load_constants(),
        kvadvise_version="0",
        inputs_sha256="x",
    )


def different(row: dict[str, Any], made: Plan) -> list[str]:
    if "refused" in row:
        return [] if made.outcome == "invalid" else [f"{made.outcome}, vLLM refuses"]
    if made.kv is None:
        return [f"{made.outcome}: {made.findings[0].message}"]
    got: tuple[Any, ...]
    wanted: tuple[Any, ...]
    if "needed_gib" in row:
        got, wanted = (made.starts, made.kv.estimated_max_model_len), (False, row["estimated"])
    else:
        digits = 3 if "bytes_per_block" in row else 2
        got = (
            made.kv.num_blocks,
            made.kv.capacity_tokens,
            round(s.known(made.kv.max_concurrency), digits),
            made.kv.block_size,
        )
        wanted = (row["num_blocks"], row["tokens"], row["concurrency"], row["block_size"])
    return [] if got == wanted else [f"{got} instead of {wanted}"]


@pytest.mark.parametrize("part", range(8))
def test_a_pinned_plan_is_vllms_own_answer(part: int) -> None:
    wrong = []
    for row in SOME[part::8]:
        made = planned(row)
        wrong += [] if made is None else [(row["model"], row.get("version"), text) for text in different(row, made)]
    assert wrong == []
