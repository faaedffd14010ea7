"""Planned and actual are equal: a start of a real vLLM for each shape of KV cache and each of two pool sizes.

Two starts at a time, each with locks of its own: most of a start is imports, which leave a core idle.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

import kvadvise
from advisor.units import MIB
from kvadvise.commands.launch import actual_of
from kvadvise.figures import planned_figures
from launch.bring_up import bring_up
from launch.engine_command import engine_command
from launch.engine_entry import EngineEntry, find_engine
from launch.preflight import needs_of
from tests.engine.conftest import OFFLINE
from tests.launch.engines import free_port

KINDS = ["gqa", "mha", "mqa", "windows", "mla", "linear", "mamba"]
# bytes, lengths and batches that no block divides, and which move every figure
POOLS: dict[str, tuple[int, dict[str, Any]]] = {
    "larger": (64 * MIB, {"max_model_len": 1000}),
    "smaller": (24 * MIB + 54321, {"max_model_len": 2047, "max_num_seqs": 3, "max_num_batched_tokens": 2304}),
}
CASES = [(kind, pool) for kind in KINDS for pool in POOLS if (kind, pool) != ("mamba", "smaller")]
# vLLM 0.32's Mamba2 for the CPU keeps one state a prompt where prefix caching wants one a block, and the engine dies of
# a longer prompt: IndexError in mamba_mixer2.py conv_ssm_forward.
PROMPT_TOKENS = {"mamba": 100}
EQUAL = ("num_blocks", "block_size", "capacity_tokens", "max_model_len")


class Start(msgspec.Struct, frozen=True):
    """What was foretold of one start, what the engine says, and how many tokens it then answered."""

    planned: Mapping[str, float | int | None]
    actual: Mapping[str, float | int | None]
    n_answered: int


def run(entry: EngineEntry, model: Path, pool: str, place: Path) -> Start:
    """Plan, start, read, ask, stop."""
    kv_bytes, pins = POOLS[pool]
    plan = kvadvise.plan(
        {
            "model": {"id": model.name, "path": str(model)},
            "gpu": "cpu",
            "workload": {"prompt_tokens": {"max": 500}, "output_tokens": {"max": 400}, "concurrency": 2},
            "engine": {"kv_cache_memory_bytes": kv_bytes, "enforce_eager": True, **pins},
        }
    )
    assert plan.outcome == "fits", plan.findings
    place.mkdir(parents=True)
    env = OFFLINE | {"VLLM_CPU_CI_ENV": "1", "XDG_RUNTIME_DIR": str(place)}
    wanted = engine_command(entry, plan.argv, host="127.0.0.1", port=free_port(), drain_s=5)
    with bring_up(wanted, needs_of(wanted, plan), log_path=place / "log", env=env) as server:
        body: dict[str, Any] = {"model": wanted.served_model_name, "prompt": [5] * PROMPT_TOKENS.get(model.name, 300)}
        body |= {"max_tokens": 7, "ignore_eos": True}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=120, trust_env=False)
        answered = answer.raise_for_status().json()["usage"]["completion_tokens"]
        return Start(planned_figures(plan), actual_of(server), answered)


@pytest.fixture(scope="module")
def starts(
    engine_python: Path, tiny_models: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[tuple[str, str], Future[Start]]]:
    """Every case, started two at a time while the tests wait for theirs."""
    entry = find_engine(str(engine_python), os.environ)
    place = tmp_path_factory.mktemp("shapes")
    models = {kind: tiny_models(kind) for kind in KINDS}
    with ThreadPoolExecutor(2) as pool:
        yield {
            (kind, size): pool.submit(run, entry, models[kind], size, place / f"{kind}-{size}") for kind, size in CASES
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize(("kind", "pool"), CASES, ids=[f"{kind}-{pool}" for kind, pool in CASES])
def test_the_engine_has_what_was_planned(kind: str, pool: str, starts: Mapping[tuple[str, str], Future[Start]]) -> None:
    start = starts[kind, pool].result()
    assert {name: start.actual[name] for name in EQUAL} == {name: start.planned[name] for name in EQUAL}
    planned, actual = start.planned["max_concurrency"], start.actual["max_concurrency"]
    assert planned is not None
    assert actual == round(planned, 2)  # as many decimals as the log has
    assert start.n_answered == 7


def test_the_pools_and_shapes_are_all_different(starts: Mapping[tuple[str, str], Future[Start]]) -> None:
    seen = {tuple(starts[case].result().actual[name] for name in EQUAL) for case in CASES}
    assert len(seen) == len(CASES)
