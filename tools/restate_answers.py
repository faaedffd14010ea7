"""Restate vLLM's layout answers in a compact form that the tests carry with them.

  python tools/restate_answers.py ANSWERS.jsonl OLDER.jsonl > tests/data/layout_answers.jsonl

One line a case: model, version, device, parallelism, arguments, and what vLLM made of them. Facts only; the models'
configs are the bundled catalogue's.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

_REFUSED = re.compile(
    r"max seq len \((\d+)\), \(?([\d.]+) GiB.*?\(([\d.]+) GiB\)(?:.*estimated maximum model length is (\d+))?",
)
_PARALLEL = ("tp", "pp", "dcp", "ep")


def main(paths: list[str]) -> None:
    """Read both files of answers and write the compact lines to standard output."""
    for path in paths:
        for text in Path(path).read_text(encoding="utf-8").splitlines():
            sys.stdout.write(json.dumps(restate(json.loads(text)), separators=(",", ":")) + "\n")


def restate(line: dict[str, Any]) -> dict[str, Any]:
    """One answer, of 0.32 or of an older release, in the compact form."""
    return _older(line) if "version" in line else _current(line)


def _current(line: dict[str, Any]) -> dict[str, Any]:
    case, answer = line["case"], line["answer"]
    row = {"model": case["model"], "version": "0.32.0", "cap": case["cap"], "kv_gib": case["kv_gib"]}
    row |= {key: case[key] for key in _PARALLEL if case.get(key)}
    row["args"] = case["args"]
    if "groups" in answer:
        return row | _layout(
            answer["groups"],
            answer["block_size_config"],
            answer["num_gpu_blocks"],
            answer["kv_cache_size_tokens"],
            answer["max_concurrency"],
            [sizes[0] for sizes in answer["bytes_per_block"]],
        )
    return row | _failure(answer)


def _older(line: dict[str, Any]) -> dict[str, Any]:
    answer, args = line["answer"], dict(line["args"])
    row = {"model": line["model"], "version": line["version"], "cap": line["cap"], "kv_gib": line["kv_gib"]}
    row |= {key: args.pop(key) for key in _PARALLEL if key in args}
    row["args"] = args
    if "groups" in answer:
        return row | _layout(
            answer["groups"],
            answer["block_size"],
            answer["num_gpu_blocks"],
            answer["printed_tokens"],
            answer["printed_concurrency"],
            None,
        )
    if line.get("error_kind") in ("unsupported", "other"):
        return row | {"refused": line["error_kind"]}
    return row | _failure(answer)


def _layout(
    groups: list[dict[str, Any]], block: int, blocks: int, tokens: int, concurrency: float, per_block: list[int] | None
) -> dict[str, Any]:
    made = [[g["kind"], g["n_layers"], g["block"], g["page"], g["blocks_per_max_len_req"]] for g in groups]
    row = {"groups": made, "block_size": block, "num_blocks": blocks, "tokens": tokens, "concurrency": concurrency}
    return row | ({"bytes_per_block": per_block} if per_block else {})


def _failure(answer: dict[str, Any]) -> dict[str, Any]:
    text = answer.get("error", "")
    match = _REFUSED.search(text)
    if match is None:
        return {"refused": _reason(answer.get("refused") or text)}
    return {"needed_gib": float(match[2]), "available_gib": float(match[3]), "estimated": int(match[4] or 0)}


_REASONS = {
    "max_num_batched_tokens": "batched tokens below length",
    "Pipeline parallelism": "no pipeline support",
    "FP8 KV cache": "fp8 cache on this capability",
    "greater than the derived": "longer than the model",
    "Failed to promote": "needs the hybrid manager",
}


def _reason(text: str) -> str:
    return next((short for words, short in _REASONS.items() if words in text), "other")


if __name__ == "__main__":
    main(sys.argv[1:])
