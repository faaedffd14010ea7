"""tests/data/layouts.jsonl is what the installed vLLM says: a few of its lines are asked again each time."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from tests.engine.asking import ask
from tests.layouts import ARCHITECTURES, read_rows

SEED = int(os.environ.get("KVADVISE_SEED") or int.from_bytes(os.urandom(3), "big"))
HOW_MANY = 12
KEPT = ("groups", "block_size", "num_gpu_blocks", "bytes_per_block", "kv_cache_size_tokens", "max_concurrency")
KEPT_OF_REFUSALS = ("needed_kv_gib", "estimated_max_model_len")


def test_recorded_answers_are_given_again(engine_python: Path, tmp_path: Path) -> None:
    rows = [row for row in read_rows(ARCHITECTURES) if "refused" not in row["answer"]]
    chosen = Random(SEED).sample(rows, HOW_MANY)  # noqa: S311 - no secret
    lines = [{"config": row["config"], "case": row["case"]} for row in chosen]
    for row, now in zip(chosen, ask(engine_python, lines, tmp_path), strict=True):
        for key in (*KEPT, *KEPT_OF_REFUSALS):
            assert now["answer"].get(key) == row["answer"].get(key), (SEED, row["case"], key)
