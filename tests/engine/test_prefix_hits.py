"""What a schedule says the prefix cache serves is what a real vLLM counts, to the token, for a trace's blocks too."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvadvise.demo_model import demo_model
from kvadvise.pipeline import plan
from launch.engine_command import engine_command
from launch.engine_entry import find_engine
from launch.server import start
from launch.start_progress import Wait
from tests.launch.engines import free_port

ROOT = Path(__file__).resolve().parents[2]
ENV = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
BLOCK_TOKENS = 64  # half of a block of the CPU backend: hits are counted in whole blocks of the engine's


def block_trace(path: Path, n: int) -> None:
    """Prompts that begin with one of three stems, most go on with one of nine, and all end apart."""
    rng = random.Random(1)  # noqa: S311 (a load, not a secret)
    lines = []
    for i in range(n):
        stem = rng.randrange(1, 4)
        ids = [0, 10 * stem, 20 * stem, *([100 * stem + rng.randrange(3)] if rng.random() < 0.7 else []), 10_000 + i]
        lines.append(
            {"timestamp": 500 * (i // 3), "output_length": rng.randrange(5, 20), "block_size": BLOCK_TOKENS,
             "input_length": BLOCK_TOKENS * (len(ids) - 1) + rng.randrange(1, BLOCK_TOKENS), "hash_ids": ids}
        )  # fmt: skip
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")


@pytest.fixture
def verify(tmp_path: Path) -> Callable[[Path, str, str], dict[str, Any]]:
    """Reports of kvadvise verify as a process; the verdict is not asked for, the machine may be a busy one."""

    def run(workload: Path, url: str, phases: str) -> dict[str, Any]:
        out = tmp_path / workload.stem
        subprocess.run(
            [sys.executable, "-m", "kvadvise", "verify", "--profile", str(workload), "--url", url, "--out", str(out),
             "--phases", phases],
            env=os.environ | ENV | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=False, timeout=400,
        )  # fmt: skip
        report: dict[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
        return report

    return run


def test_declared_hits_are_counted_hits(
    engine_python: Path, tmp_path: Path, verify: Callable[[Path, str, str], dict[str, Any]]
) -> None:
    base = demo_model(str(engine_python), tmp_path / "demo", os.environ | ENV).workload
    text = base.read_text(encoding="utf-8")
    own, shared, traced = tmp_path / "own.yaml", tmp_path / "shared.yaml", tmp_path / "traced.yaml"
    own.write_text(text, encoding="utf-8")
    longer = text.replace("{p50: 120, p95: 300,", "{p50: 300, p95: 500,")
    shared.write_text(
        longer.replace("concurrency: 16", "concurrency: 4\n  shared_prefix_tokens: 260"), encoding="utf-8"
    )
    traced.write_text(text.replace("concurrency: 16", "concurrency: 4\n  trace: blocks.jsonl"), encoding="utf-8")
    block_trace(tmp_path / "blocks.jsonl", 45)
    command = engine_command(
        find_engine(str(engine_python), os.environ), plan(base).argv, host="127.0.0.1", port=free_port(), drain_s=5,
        env=ENV,
    )  # fmt: skip
    with start(command, wait=Wait(stall_s=300.0)) as server:
        reports = {
            path.stem: verify(path, server.url, phases)
            for path, phases in ((own, "warm_up,regular"), (shared, "warm_up,regular"), (traced, "tail"))
        }
    hits = {name: (report["run"]["declared_hit_rate"], report["server"]["prefix_cache_hit_rate"])
            for name, report in reports.items()}  # fmt: skip
    assert hits["own"] == (0.0, 0.0), "no two prompts share a block"
    assert hits["shared"][0] > 0.4
    assert hits["shared"][1] == pytest.approx(hits["shared"][0], abs=0.005)
    assert hits["traced"][0] > 0.3
    assert hits["traced"][1] == pytest.approx(hits["traced"][0], abs=0.005)
    for report in reports.values():
        (check,) = (check for check in report["checks"] if check["id"] == "cache_hits_as_declared")
        assert check["status"] == "pass"
