"""Writes down vLLM's answers to the seeded cases, a few bytes a step.

python -m tests.advisor.simulation.record cases SEEDS > cases.jsonl
ENGINE_PYTHON tests/engine/scheduler_oracle.py tests/data/tiny-llama --cases cases.jsonl > answers.jsonl
python -m tests.advisor.simulation.record answers SEEDS answers.jsonl > tests/data/scheduler_answers.jsonl
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

from tests.advisor.simulation.cases import KINDS, digest, draw_case

TOTALS = ("steps", "stuck", "preemptions", "hit_tokens", "query_tokens")
MISSED = [(1042, "state"), (1114, "state"), (1007, "state inside")]  # found by the live test, and mended


def names(seeds: int) -> list[tuple[int, str]]:
    """Every case that is recorded."""
    return [*((seed, kind) for seed in range(seeds) for kind in KINDS), *MISSED]


def compact(seed: int, kind: str, answer: dict[str, Any]) -> dict[str, Any]:
    """One line of the record: the totals, and sixteen bits of each step's row."""
    digests = b"".join(digest(row).to_bytes(2, "little") for row in answer["rows"])
    totals = {key: answer[key] for key in TOTALS}
    return {"seed": seed, "kind": kind, **totals, "digests": base64.b85encode(digests).decode()}


def main() -> None:
    what, seeds = sys.argv[1], int(sys.argv[2])
    if what == "cases":
        lines = [draw_case(seed, kind) for seed, kind in names(seeds)]
    else:
        answers = Path(sys.argv[3]).read_text(encoding="utf-8").splitlines()
        lines = [compact(*name, json.loads(text)) for name, text in zip(names(seeds), answers, strict=True)]
    sys.stdout.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


if __name__ == "__main__":
    main()
