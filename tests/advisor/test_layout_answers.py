"""vLLM's own layout answers, 1,365 of nine releases: groups, pages, blocks, printed figures, refusals."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from advisor.facts import ModelFacts
from advisor.model.architectures import ARCHITECTURES as KNOWN
from kvadvise.catalogue import find_facts
from kvadvise.surroundings import Surroundings
from tests.layouts import ANSWERS, ARCHITECTURES, differences, predict, read_rows, row_version

# answers that kvadvise does not give, with the reason; docs/accuracy.md lists them
LEFT_OUT: dict[tuple[str, str], str] = {
    ("Qwen/Qwen3.6-27B", "0.22.1"): "asked with a partial config that lacks the dtype of its states",
}

ROWS = [row for row in read_rows(ANSWERS) if (row["model"], row["version"]) not in LEFT_OUT]
NOWHERE = Surroundings(env={}, cwd=Path("/"), home=Path("/nonexistent"))
_FACTS: dict[str, ModelFacts] = {}


def facts_of(model: str) -> ModelFacts:
    if model not in _FACTS:
        found = find_facts(model, NOWHERE)
        assert found is not None, f"{model} is not in the catalogue"
        _FACTS[model] = found
    return _FACTS[model]


def judge(row: dict[str, Any]) -> list[str]:
    return differences(row, predict(facts_of(row["model"]), row, row_version(row)))


@pytest.mark.parametrize("version", sorted({row["version"] for row in ROWS}))
def test_every_answer_of_a_release_is_equal(version: str) -> None:
    wrong = [
        f"{row['model']} {row['args']}: {found}" for row in ROWS if row["version"] == version and (found := judge(row))
    ]
    assert not wrong, "\n".join(wrong[:20])


def test_the_answers_cover_what_they_claim() -> None:
    assert len(ROWS) >= 1363
    assert len({row["model"] for row in ROWS}) >= 120
    kinds = {group[0] for row in ROWS for group in row.get("groups", [])}
    assert kinds == {
        "FullAttentionSpec",
        "MLAAttentionSpec",
        "SlidingWindowSpec",
        "ChunkedLocalAttentionSpec",
        "CrossAttentionSpec",
        "MambaSpec",
    }


def _shared() -> Path | None:
    named = os.environ.get("KVADVISE_SHARED")
    beside = Path(__file__).resolve().parents[3] / "shared"
    path = Path(named) if named else beside
    return path if (path / "oracle" / "answers.jsonl").exists() else None


@pytest.mark.oracle
@pytest.mark.skipif(_shared() is None, reason="the shared answers are not on this machine; their restatement is tested")
def test_the_shared_answers_with_their_own_configs() -> None:
    """The same comparison with the complete configs, per architecture, as the acceptance asks."""
    from tools.restate_answers import restate

    shared = _shared()
    assert shared is not None
    total, wrong = Counter[str](), defaultdict[str, list[str]](list)
    for name in ("answers.jsonl", "older.jsonl"):
        for line in (shared / "oracle" / name).read_text(encoding="utf-8").splitlines():
            row = restate(json.loads(line))
            folder = shared / "configs" / row["model"].replace("/", "__")
            quant = folder / "hf_quant_config.json"
            facts = ModelFacts(
                id=row["model"],
                config=json.loads((folder / "config.json").read_text(encoding="utf-8")),
                quant_config=json.loads(quant.read_text(encoding="utf-8")) if quant.exists() else None,
            )
            family = facts.config["architectures"][0]
            total[family] += 1
            found = differences(row, predict(facts, row, row_version(row)))
            if found:
                wrong[family].append(f"{row['model']} {row['version']} {row['args']}: {found}")
    shown = "\n".join(text for texts in wrong.values() for text in texts)
    print(f"{sum(total.values())} answers, {sum(map(len, wrong.values()))} differ\n{shown}")  # noqa: T201
    assert sum(map(len, wrong.values())) <= 0.02 * sum(total.values()), shown
    for family, count in total.items():
        assert len(wrong[family]) <= 0.02 * count, "\n".join(wrong[family])


# architectures whose answer kvadvise does not give, and why
REFUSED = {
    "AXK1ForCausalLM": "whether its latent is cached depends on custom code",
    "SarvamMLAForCausalLM": "needs custom code",
    "IQuestLoopCoderForCausalLM": "loops over its layers in custom code",
    "HrmTextForCausalLM": "loops over its layers",
    "MellumForCausalLM": "its windows depend on its own config class",
    "Plamo3ForCausalLM": "needs custom code",
    "DiffLlamaForCausalLM": "not known",
    "MolmoForCausalLM": "needs custom code",
    "BailingMoeV2_5ForCausalLM": "not known yet",
}


def _architecture_rows() -> dict[str, list[dict[str, Any]]]:
    rows = defaultdict[str, list[dict[str, Any]]](list)
    for row in read_rows(ARCHITECTURES):
        rows[row["config"]["architectures"][0]].append(row)
    return rows


def _bare(row: dict[str, Any]) -> bool:
    """Whether a config leaves out what decides the model's size: vLLM takes class defaults, kvadvise refuses."""
    return any(word in row["case"]["id"] for word in ("bare", "nolayertypes", "transformers-lfm"))


def _not_generating(architecture: str) -> bool:
    entry = KNOWN.get(architecture)
    return entry is not None and entry.pooling


@pytest.mark.parametrize("architecture", sorted(_architecture_rows()))
def test_an_architecture_as_vllm_lays_it_out(architecture: str) -> None:
    wrong = []
    for row in _architecture_rows()[architecture]:
        if "remote_code" in row["case"] and architecture == "MiMoForCausalLM":
            continue  # asked with a stand-in for its config class
        facts = ModelFacts(id=architecture, config=row["config"], quant_config=row.get("quant_config"))
        got = predict(facts, row["case"], row_version(row))
        if architecture in REFUSED or _not_generating(architecture) or (_bare(row) and got.refused):
            assert got.refused
            continue
        found = differences(compact(row["answer"]), got)
        if found:
            wrong.append(f"{row['case']}: {found}")
    assert not wrong, "\n".join(wrong[:5])


def compact(answer: dict[str, Any]) -> dict[str, Any]:
    if "needed_kv_gib" in answer:
        return {
            "needed_gib": answer["needed_kv_gib"],
            "estimated": answer.get("estimated_max_model_len") or 0,
        }
    if "groups" not in answer:
        return {"refused": str(answer.get("refused") or answer.get("error"))[:60]}
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
