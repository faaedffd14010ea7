"""Public start-ups through the whole planner: the log's model and flags pinned, everything else left to `plan`.

tests/data/startups_flags.jsonl holds the flags and printed figures of those rows of startups_rows.jsonl whose model is
in the catalogue. The log's weights are stated, as its user would have known them only afterwards; `weights` predicts
them too, from the config alone.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from advisor.estimate import exact
from advisor.gpu import Gpu
from advisor.plan_types import Plan
from advisor.units import GIB, bytes_from_gib
from kvadvise.pipeline import plan_or_refusal
from kvadvise.workload_text import WorkloadText
from tools.startups import DATA, Startup, default_batch, load_rows


class Flags(msgspec.Struct, frozen=True):
    """What a log says of one start besides its memory: engine arguments, and what vLLM printed of its cache."""

    id: str
    model: str
    flags: dict[str, Any]
    tokens: int | None = None
    concurrency: float | None = None
    at_length: int | None = None
    same_weights: bool = True  # false where the log's model is another quantisation of the one planned


class Planned(msgspec.Struct, frozen=True):
    """A logged start, and the plan made of its flags."""

    row: Startup
    logged: Flags
    plan: Plan

    @property
    def pool_error(self) -> float | None:
        """Planned KV pool against the logged one; None where the log prints another rank's, or none."""
        if self.row.kv_gib is None or self.row.kv_gib <= 0 or self.row.pp > 1 or self.plan.memory is None:
            return None
        return self.plan.memory.kv_cache_bytes.value / (self.row.kv_gib * GIB) - 1

    @property
    def pool_held(self) -> bool | None:
        """Whether the band holds the logged pool, to the log's rounding."""
        if self.pool_error is None or self.plan.memory is None or self.row.kv_gib is None:
            return None
        pool = self.plan.memory.kv_cache_bytes
        return pool.low - GIB // 200 <= self.row.kv_gib * GIB <= pool.high + GIB // 200

    @property
    def concurrency_error(self) -> float | None:
        """Planned maximum concurrency against the printed one."""
        kv = self.plan.kv
        if self.logged.concurrency is None or kv is None or kv.max_concurrency is None:
            return None
        return kv.max_concurrency / self.logged.concurrency - 1

    @property
    def weights_error(self) -> float | None:
        """Planned weights against the log's, where they were not stated to the plan."""
        if self.row.weights_gib is None or not self.logged.same_weights:
            return None
        if self.plan.memory is None or self.row.pp > 1:
            return None
        return self.plan.memory.weights_bytes.value / (self.row.weights_gib * GIB) - 1


@lru_cache(maxsize=2)
def planned_startups(*, weights_stated: bool = True) -> tuple[Planned, ...]:
    """Every row whose model is known, planned."""
    rows = {row.id: row for row in load_rows()}
    lines = (DATA / "startups_flags.jsonl").read_text(encoding="utf-8").splitlines()
    logged = [msgspec.convert(json.loads(line), Flags) for line in lines]
    return tuple(Planned(rows[f.id], f, _plan(rows[f.id], f, weights_stated=weights_stated)) for f in logged)


def _plan(row: Startup, logged: Flags, *, weights_stated: bool) -> Plan:
    model: dict[str, Any] = {"id": logged.model}
    if weights_stated and row.weights_gib is not None:
        model["weights_gib_per_gpu"] = row.weights_gib
    known = Gpu(
        name=row.gpu, device_name=row.gpu, vendor="nvidia", total_bytes=exact(bytes_from_gib(row.total_gib)),
        free_bytes=exact(bytes_from_gib(row.total_gib)), compute_capability=row.cc,
    )  # fmt: skip
    seqs, batched = default_batch(row.release, known)  # what the start had, not what the planner would choose
    document = {
        "model": model,
        "gpu": {"name": row.gpu, "count": row.tp * row.pp, "memory_gib": row.total_gib},
        "workload": {"prompt_tokens": {"p95": 200}, "output_tokens": {"p95": 50}, "concurrency": 1},
        "policy": {"kv_cache_quantization": "never"},
        "engine": {
            "max_num_seqs": seqs,
            "max_num_batched_tokens": batched,
            **logged.flags,
            "vllm_version": ".".join(str(part) for part in row.release),
        },
    }
    text = WorkloadText(data=json.dumps(document).encode(), label=logged.id, base_dir=Path())
    return plan_or_refusal(text)
