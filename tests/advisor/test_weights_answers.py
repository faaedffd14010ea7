"""Weight bytes set beside vLLM's own model classes: recorded answers, random models, public logs."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from advisor.errors import KvadviseError, NotUnderstood
from advisor.facts import ModelFacts
from advisor.units import GIB
from advisor.weights import weight_bytes
from advisor.weights.table import FAMILIES
from kvadvise.catalogue_entry import Entry, entry_facts, read_entry

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
ROUNDING = 0.00051  # an answer prints three decimals of a GiB
CLOSE = 0.005


class Compared(NamedTuple):
    """One answer: stages in GiB as counted and as vLLM has them."""

    name: str
    architecture: str
    mine: list[float]
    theirs: list[float]

    @property
    def error(self) -> float:
        """The largest relative error of a stage, beyond the answer's rounding."""
        pairs = zip(self.mine, self.theirs, strict=True)
        return max(max(0.0, abs(a - b) - ROUNDING) / b for a, b in pairs)

    @property
    def is_exact(self) -> bool:
        """Equal in all digits the answer shows."""
        return all(abs(a - b) <= ROUNDING for a, b in zip(self.mine, self.theirs, strict=True))


def catalogue_entry(model: str) -> Entry:
    return read_entry(ROOT / "profiles" / "models" / f"{model}.yaml", trusted=True)


def catalogue_facts(model: str) -> ModelFacts:
    return entry_facts(catalogue_entry(model))


def counted_gib(config: dict[str, Any], quant: dict[str, Any] | None, row: dict[str, Any]) -> list[float]:
    major, minor = row.get("cap", "9.0").split(".")
    count = weight_bytes(
        config,
        quant,
        tp=row.get("tp") or 1,
        pp=row.get("pp") or 1,
        ep=bool(row.get("ep")),
        dtype=row.get("dtype"),
        quantization=row.get("quantization"),
        max_model_len=row.get("max_model_len"),
        towers=not row.get("language_model_only"),
        capability=(int(major), int(minor)),
    )
    return [stage.value / GIB for stage in count.per_stage]


def restated() -> Iterator[Compared]:
    for line in (DATA / "weights_oracle.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        entry = catalogue_entry(row["model"])  # the entry's own keys are what vLLM was given
        mine = counted_gib(entry.config, entry.quant_config, row)
        name = f"{row['model']} tp{row['tp']} pp{row['pp']}"
        yield Compared(name, entry.config["architectures"][0], mine, row["gib"])


def report(rows: list[Compared]) -> str:
    worst = sorted(rows, key=lambda c: -c.error)[:10]
    return "\n".join(f"{c.error:8.4%} {c.architecture} {c.name}: {c.mine} instead of {c.theirs}" for c in worst)


def test_restated_answers_are_equal_to_the_last_digit() -> None:
    rows = list(restated())
    assert len(rows) == 260
    assert len({c.architecture for c in rows}) >= 50
    wrong = [c for c in rows if not c.is_exact]
    assert not wrong, report(wrong)


def test_other_splits_and_random_quantised_models_to_the_byte() -> None:
    """Bundled models with 2 to 16 ranks, experts dealt out, three stages; random sizes in every quantised format."""
    wrong: list[str] = []
    rows = (DATA / "weights_bytes.jsonl").read_text(encoding="utf-8").splitlines()
    for line in rows:
        row = json.loads(line)
        if "model" in row:
            entry = catalogue_entry(row["model"])
            config, quant = entry.config, entry.quant_config
        else:
            config, quant = row["config"], None
        mine = [round(stage * GIB) for stage in counted_gib(config, quant, row)]
        if mine != row["bytes"]:
            wrong.append(f"{row.get('model') or config['architectures']} {mine} instead of {row['bytes']}")
    assert len(rows) >= 200
    assert not wrong, "\n".join(wrong)


def layout_rows() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for line in (DATA / "layouts.jsonl").read_text(encoding="utf-8").splitlines():
        asked = json.loads(line)
        if not asked["answer"].get("weight_gib"):
            continue
        case, args = asked["case"], asked["case"].get("args") or {}
        row = {
            **{key: case[key] for key in ("tp", "pp", "ep", "cap") if case.get(key)},
            **{key: args[key] for key in ("dtype", "quantization", "language_model_only") if args.get(key)},
            "id": case["id"],
            "max_model_len": asked["answer"].get("max_model_len"),
            "gib": asked["answer"]["weight_gib"],
        }
        yield asked["config"], row


def test_small_and_random_models_of_every_architecture() -> None:
    """The layouts kept from vLLM carry their weights: reduced and random sizes, 1 to 16 ranks."""
    rows: list[Compared] = []
    refused: list[str] = []
    for config, row in layout_rows():
        architecture = (config.get("architectures") or [""])[0]
        if architecture not in FAMILIES:
            continue
        try:
            mine = counted_gib(config, None, row)
        except NotUnderstood as error:
            refused.append(f"{row['id']}: {error.where}")
            continue
        rows.append(Compared(row["id"], architecture, mine, row["gib"]))
    assert len(rows) >= 1150
    assert len({c.architecture for c in rows}) >= 150
    exact = [c for c in rows if c.is_exact]
    assert len(exact) >= 0.99 * len(rows), report(rows)
    # configs that leave the order of their layers to a class default
    assert all("-bare" in name for name in refused), refused


# model, tp, pp, dtype, the GiB that "Model loading took" printed
LOGS = [
    ("Qwen/Qwen1.5-MoE-A2.7B", 1, 1, "bfloat16", 26.67),
    ("Qwen/Qwen2.5-72B-Instruct", 2, 1, "bfloat16", 67.8),
    ("Qwen/Qwen2.5-7B-Instruct", 1, 1, "bfloat16", 14.25),
    ("Qwen/Qwen2.5-7B-Instruct", 4, 1, "bfloat16", 3.55),
    ("Qwen/Qwen3-0.6B", 1, 1, None, 1.12),
    ("Qwen/Qwen3-14B", 1, 1, None, 27.52),
    ("Qwen/Qwen3-30B-A3B", 1, 1, "bfloat16", 56.88),
    ("Qwen/Qwen3-32B", 1, 1, None, 61.03),
    ("Qwen/Qwen3-8B", 1, 1, "bfloat16", 15.27),
    ("Qwen/Qwen3-8B", 1, 3, None, 5.48),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", 2, 1, None, 74.28),
    ("Qwen/Qwen3-VL-30B-A3B-Instruct", 4, 1, None, 14.7708),
    ("google/gemma-2-2b-it", 1, 1, "bfloat16", 4.9),
    ("google/gemma-3-12b-it", 1, 1, "bfloat16", 23.31),
    ("google/gemma-3-1b-it", 1, 1, None, 1.9148),
    ("ibm-granite/granite-3.1-8b-instruct", 1, 1, "bfloat16", 15.25),
    ("meta-llama/Llama-3.1-8B-Instruct", 1, 1, "bfloat16", 14.99),
    ("meta-llama/Llama-3.1-8B-Instruct", 1, 1, "float32", 29.98),
    ("meta-llama/Llama-3.1-8B-Instruct", 1, 2, "bfloat16", 7.51),
    ("meta-llama/Llama-3.1-8B-Instruct", 2, 1, "bfloat16", 7.51),
    ("meta-llama/Llama-3.2-3B-Instruct", 1, 1, None, 6.04),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 4, 1, "bfloat16", 53.12),
    ("microsoft/phi-4", 1, 1, "bfloat16", 27.39),
    ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", 1, 1, "bfloat16", 44.76),
    ("openai/gpt-oss-120b", 1, 1, None, 64.38),
    ("openai/gpt-oss-20b", 1, 1, None, 13.47),
    ("openai/gpt-oss-20b", 1, 1, None, 13.72),
    ("openai/gpt-oss-20b", 2, 1, None, 7.01),
]


@pytest.mark.parametrize(("model", "tp", "pp", "dtype", "gib"), LOGS)
def test_public_logs_lie_in_the_band(model: str, tp: int, pp: int, dtype: str | None, gib: float) -> None:
    facts = catalogue_facts(model)
    count = weight_bytes(facts.config, facts.quant_config, tp=tp, pp=pp, dtype=dtype, facts=facts.weights)
    heaviest = max(count.per_stage, key=lambda stage: stage.value)
    assert heaviest.low / GIB - 0.005 <= gib <= heaviest.high / GIB + 0.005


def _shared() -> Path | None:
    named = os.environ.get("KVADVISE_SHARED")
    path = Path(named) if named else ROOT.parent / "shared"
    return path if (path / "oracle" / "answers.jsonl").exists() else None


@pytest.mark.oracle
@pytest.mark.skipif(_shared() is None, reason="the shared answers are not on this machine; their restatement is tested")
def test_every_shared_answer_that_states_weights() -> None:
    shared = _shared()
    assert shared is not None
    rows: list[Compared] = []
    failed: list[str] = []
    for line in (shared / "oracle" / "answers.jsonl").read_text(encoding="utf-8").splitlines():
        asked = json.loads(line)
        case, theirs = asked["case"], asked["answer"].get("meta_weight_gib_per_pp_rank")
        if not theirs:
            continue
        folder = shared / "configs" / case["model"].replace("/", "__")
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        beside = folder / "hf_quant_config.json"
        quant = json.loads(beside.read_text(encoding="utf-8")) if beside.exists() else None
        row = {**case, **case["args"], "max_model_len": asked["answer"]["max_model_len"]}
        try:
            mine = counted_gib(config, quant, row)
        except KvadviseError as error:
            failed.append(f"{case['id']}: {error}")
            continue
        rows.append(Compared(case["id"], config["architectures"][0], mine, theirs))
    assert not failed
    by_architecture = defaultdict(list)
    for c in rows:
        by_architecture[c.architecture].append(c)
    close = [c for c in rows if c.error <= CLOSE]
    assert len(close) >= 0.95 * len(rows), report(rows)
    assert all(c.is_exact for c in rows), report(rows)
    assert len(by_architecture) >= 50
