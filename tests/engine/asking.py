"""Asks the installed vLLM through the layout oracle, and sets its answers beside kvadvise's prediction."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from advisor.estimate import exact
from advisor.gpu import Gpu
from advisor.units import GIB
from kvadvise.gpu_detect import cpu_gpu
from tests.engine.server import OFFLINE

ORACLE = Path(__file__).with_name("layout_oracle.py")
_AVAILABLE = re.compile(r"available KV cache memory \(([\d.]+) GiB")


def ask(python: Path, lines: list[dict[str, Any]], scratch: Path, *, platform: str = "cuda") -> list[dict[str, Any]]:
    """vLLM's answer to each line, in order; one process, some seconds to start and about one for each."""
    cases = scratch / f"cases-{platform}.jsonl"
    cases.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    env = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")} | OFFLINE
    done = subprocess.run(
        [python, ORACLE, "--platform", platform, "--batch", cases], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines), done.stderr[-4000:]
    return answers


def cpu(total_gib: float = 8.0) -> Gpu:
    """The CPU as a device; its memory plays no part when the KV bytes are given."""
    total = exact(int(total_gib * GIB))
    return Gpu(
        name="CPU", device_name="cpu", vendor="cpu", compute_capability=None, total_bytes=total, free_bytes=total
    )


def this_cpu() -> Gpu:
    """The same with the instructions of this machine's processor, which the backend asks for too."""
    found = cpu_gpu()
    return msgspec.structs.replace(cpu(), instructions=found.instructions)


def expected(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer of the oracle in the compact form that tests.layouts.differences compares with."""
    if "needed_kv_gib" in answer:
        available = _AVAILABLE.search(answer["error"])
        row = {"needed_gib": answer["needed_kv_gib"], "estimated": answer.get("estimated_max_model_len") or 0}
        return row | ({"available_gib": float(available[1])} if available else {})
    if "groups" not in answer:
        return {"refused": str(answer.get("refused") or answer.get("error"))}
    return {
        "groups": [
            [g["kind"], g["n_layers"], g["block"], g["page"], g["blocks_per_max_len_req"]] for g in answer["groups"]
        ],
        "block_size": answer["block_size"],
        "num_blocks": answer["num_gpu_blocks"],
        "tokens": answer["kv_cache_size_tokens"],
        "concurrency": answer["max_concurrency"],
        "bytes_per_block": answer["bytes_per_block"],
    }
