"""What a real vLLM reports when it starts on this machine's CPU is what the layout predicts, to the block."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from advisor.engine import resolve_engine
from advisor.facts import ModelFacts
from advisor.kv.layout import KvLayout, Pool, lay_out
from advisor.model.read import read_model
from advisor.units import GIB, MIB
from advisor.versions import DEFAULT
from tests.engine.asking import cpu
from tests.engine.server import StartError, serving


def predict(model: Path, pins: dict[str, Any]) -> tuple[KvLayout, Pool]:
    """Layout and pool for a directory on the CPU, under these engine arguments."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    spec = read_model(ModelFacts(id=model.name, config=config), DEFAULT)
    engine = resolve_engine(spec, cpu(), DEFAULT, pins)
    layout = lay_out(spec, engine)
    return layout, layout.pool([pins["kv_cache_memory_bytes"]])


def arguments(pins: dict[str, Any]) -> list[str]:
    """The pins as vLLM's flags."""
    flags = [part for key, value in pins.items() for part in (f"--{key.replace('_', '-')}", str(value))]
    return [*flags, "--enforce-eager"]


@pytest.mark.parametrize(
    ("fixture", "pins"),
    [
        pytest.param(
            "tiny_model",
            {"kv_cache_memory_bytes": 64 * MIB, "max_model_len": 2000, "max_num_seqs": 8},
            id="full-attention",
        ),
        pytest.param(
            "tiny_windowed_model",
            {
                "kv_cache_memory_bytes": 48 * MIB + 12345,
                "max_model_len": 3001,
                "max_num_seqs": 4,
                "max_num_batched_tokens": 1024,
                "block_size": 64,
            },
            id="sliding-window",
        ),
    ],
)
def test_a_started_server_reports_the_predicted_pool(
    fixture: str, pins: dict[str, Any], engine_python: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    model = request.getfixturevalue(fixture)
    layout, pool = predict(model, pins)
    with serving(engine_python, model, arguments(pins), tmp_path / "server.log") as server:
        reported = server.cache_config()
        tokens, concurrency = server.printed()
    assert int(reported["num_gpu_blocks"]) == pool.num_blocks
    assert int(reported["block_size"]) == layout.block_size
    assert tokens == pool.capacity_tokens
    assert concurrency == round(pool.max_concurrency, 2)
    assert pool.starts


def test_a_pool_too_small_is_refused_with_the_predicted_figures(
    engine_python: Path, tiny_model: Path, tmp_path: Path
) -> None:
    pins: dict[str, Any] = {"kv_cache_memory_bytes": 4 * MIB, "max_model_len": 4096}
    _, pool = predict(tiny_model, pins)
    assert not pool.starts
    with (
        pytest.raises(StartError) as failed,
        serving(engine_python, tiny_model, arguments(pins), tmp_path / "server.log"),
    ):
        pass
    said = re.search(
        r"\(([\d.]+) GiB KV cache is needed.*?available KV cache memory \(([\d.]+) GiB\).*?"
        r"estimated maximum model length is (\d+)",
        failed.value.log,
    )
    assert said is not None, failed.value.log[-3000:]
    assert float(said[1]) == round(pool.needed_bytes / GIB, 2)
    assert float(said[2]) == round(pool.available_bytes / GIB, 2)
    assert int(said[3]) == pool.estimated_max_model_len
