"""Adapters that a workload names, read where they lie on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InvalidInput
from advisor.facts import AdapterFact, ModelFacts
from kvadvise import plan
from kvadvise.adapters import CONFIG, with_adapters

FACTS = ModelFacts(id="m", config={})


def adapter(path: Path, config: Any) -> Path:
    path.mkdir(parents=True)
    (path / CONFIG).write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "stated",
    [
        ["tall=tall", "wide=wide", "far=org/far"],
        [{"name": "tall", "path": "tall"}, '{"name": "wide", "path": "wide"}', {"name": "far", "path": "/else/where"}],
    ],
)
def test_ranks_are_read_where_they_lie_here(tmp_path: Path, stated: list[Any]) -> None:
    adapter(tmp_path / "tall", {"r": 64})
    adapter(tmp_path / "wide", {"r": 8, "rank_pattern": {"model.layers.0.self_attn.q_proj": 32}})
    found = with_adapters(FACTS, stated, base_dir=tmp_path).adapters
    assert found == (AdapterFact(name="tall", rank=64), AdapterFact(name="wide", rank=32))


@pytest.mark.parametrize("stated", [["org/far"], [7], "name", [{"name": "a"}], ["{not json"], None])
def test_what_names_no_directory_tells_nothing(tmp_path: Path, stated: Any) -> None:
    assert with_adapters(FACTS, stated, base_dir=tmp_path) is FACTS


@pytest.mark.parametrize("config", ["", "[]", "{}", '{"r": 0}', '{"r": true}', '{"r": 8, "rank_pattern": {"a": "b"}}'])
def test_an_adapter_without_a_rank_is_one_clear_error(tmp_path: Path, config: str) -> None:
    adapter(tmp_path / "a", config)
    with pytest.raises(InvalidInput) as error:
        with_adapters(FACTS, ["a=a"], base_dir=tmp_path, where="w.yaml:9: engine")
    assert error.value.where == "w.yaml:9: engine"
    assert CONFIG in error.value.what


@pytest.mark.parametrize(("limit", "outcome"), [(None, "invalid"), (32, "invalid"), (64, "fits")])
def test_an_adapter_of_rank_64_needs_room_for_it(tmp_path: Path, limit: int | None, outcome: str) -> None:
    directory = adapter(tmp_path / "tall", {"r": 64})
    engine = {"enable_lora": True, "lora_modules": [f"tall={directory}"]}
    if limit is not None:
        engine["max_lora_rank"] = limit
    made = plan(
        {
            "model": "Qwen/Qwen3-8B",
            "gpu": "H100 80GB",
            "workload": {"prompt_tokens": {"max": 2000}, "output_tokens": {"max": 200}, "concurrency": 4},
            "engine": engine,
        }
    )
    assert made.outcome == outcome
    told = [finding for finding in made.findings if finding.code == "lora-adapter-rank"]
    assert bool(told) is (outcome == "invalid")
    if told:
        assert "tall (64)" in told[0].message
        assert "max_lora_rank: 64" in told[0].remedy
