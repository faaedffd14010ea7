"""Layout predictions set beside vLLM's own answers, in the form both kinds of test share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from advisor.engine import resolve_engine
from advisor.errors import KvadviseError
from advisor.estimate import exact
from advisor.facts import ModelFacts
from advisor.gpu import Gpu
from advisor.kv.layout import KvLayout, Pool, lay_out
from advisor.model.read import read_model
from advisor.tensor_parallel import tp_problems
from advisor.units import GIB
from advisor.versions import Version, parse_version

DATA = Path(__file__).parent / "data"
ANSWERS = DATA / "layout_answers.jsonl"
ARCHITECTURES = DATA / "layouts.jsonl"
_PARALLEL = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dcp": "decode_context_parallel_size",
    "ep": "enable_expert_parallel",
}


# what an answer may break: some were asked with VLLM_ALLOW_LONG_MAX_MODEL_LEN
ALLOWED = frozenset({"max-model-len-beyond-model"})


class Prediction(msgspec.Struct, frozen=True):
    """What kvadvise makes of a case: a layout and pool, or a refusal in words."""

    layout: KvLayout | None
    pool: Pool | None
    refused: str
    violations: tuple[str, ...] = ()
    max_model_len: int = 0
    batch: tuple[int, int] = (0, 0)

    @property
    def first_rank_groups(self) -> list[list[Any]]:
        """The groups as vLLM's scheduler config has them: of the first pipeline rank."""
        if self.layout is None:
            return []
        counts = self.layout.stage_layers[0]
        return [
            [g.kind, n, g.block_size, g.page_size_bytes, g.blocks_per_request]
            for g, n in zip(self.layout.groups, counts, strict=True)
        ]


def device(cap: str, total_gib: float = 79.1, name: str = "NVIDIA H100 80GB HBM3") -> Gpu:
    """The fake device of the oracle: an H100's name and memory with any capability."""
    major, minor = cap.split(".")
    total = exact(int(total_gib * GIB))
    return Gpu(
        name=name,
        device_name=name,
        vendor="nvidia",
        compute_capability=(int(major), int(minor)),
        total_bytes=total,
        free_bytes=total,
    )


def predict(facts: ModelFacts, case: dict[str, Any], version: Version) -> Prediction:
    """Read, resolve and lay out one case of the oracle."""
    pins = dict(case.get("args") or {})
    pins |= {name: case[key] for key, name in _PARALLEL.items() if case.get(key) is not None}
    gpu = device(str(case.get("cap", "9.0")), case.get("gpu_gib", 79.1), case.get("gpu_name", "NVIDIA H100 80GB HBM3"))
    try:
        model = read_model(facts, version)
        engine = resolve_engine(model, gpu, version, pins)
        layout = lay_out(model, engine)
    except KvadviseError as error:
        return Prediction(None, None, str(error))
    pool = layout.pool([int(case["kv_gib"] * GIB)] * engine.pipeline_parallel_size)
    split = tp_problems(model, engine.tensor_parallel_size, expert_parallel=engine.enable_expert_parallel)
    return Prediction(
        layout,
        pool,
        "",
        (*(v.code for v in engine.violations), *(problem.code for problem in split)),
        engine.max_model_len,
        (engine.max_num_batched_tokens, engine.max_num_seqs),
    )


def differences(row: dict[str, Any], got: Prediction) -> list[str]:
    """What differs between one compact answer of vLLM and a prediction; empty when equal."""
    if "refused" in row:
        refused = bool(got.refused) or bool(got.violations)
        return [] if refused else [f"vLLM refuses ({row['refused']})"]
    if got.layout is None or got.pool is None:
        return [f"refused: {got.refused}"]
    if set(got.violations) - ALLOWED:
        return [f"refused: {', '.join(got.violations)}"]
    pairs: list[tuple[str, Any, Any]]
    if "needed_gib" in row:
        pairs = [
            ("starts", got.pool.starts, False),
            ("needed", round(got.pool.needed_bytes / GIB, 2), row["needed_gib"]),
            ("estimated", got.pool.estimated_max_model_len, row["estimated"]),
        ]
        if "available_gib" in row:
            pairs.append(("available", round(got.pool.available_bytes / GIB, 2), row["available_gib"]))
    else:
        digits = 3 if "bytes_per_block" in row else 2
        pairs = [
            ("groups", got.first_rank_groups, row["groups"]),
            ("block_size", got.layout.block_size, row["block_size"]),
            ("num_blocks", got.pool.num_blocks, row["num_blocks"]),
            ("tokens", got.pool.capacity_tokens, row["tokens"]),
            ("concurrency", round(got.pool.max_concurrency, digits), row["concurrency"]),
            ("starts", got.pool.starts or got.pool.mamba_blocks_exceeded, True),
        ]
        if "bytes_per_block" in row:
            pairs.append(("bytes_per_block", list(got.layout.bytes_per_block), row["bytes_per_block"]))
    return [f"{name}: {mine} instead of {theirs}" for name, mine, theirs in pairs if mine != theirs]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """One JSON object a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def row_version(row: dict[str, Any]) -> Version:
    """The release a row was asked of."""
    return parse_version(row.get("version", "0.32.0"))
