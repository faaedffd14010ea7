"""Fresh random models and arguments, laid out by the installed vLLM and by kvadvise: they must agree to the byte.

The seed is new each time and stands in every failure; KVADVISE_SEED repeats a run.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from advisor.engine import resolve_engine
from advisor.facts import ModelFacts
from advisor.kv.layout import lay_out
from advisor.model.read import read_model
from advisor.units import GIB
from advisor.versions import DEFAULT
from tests.engine.asking import ask, expected, this_cpu
from tests.engine.random_cases import draw_case
from tests.engine.random_models import FAMILIES
from tests.layouts import Prediction, differences, predict

SEED = int(os.environ.get("KVADVISE_SEED") or int.from_bytes(os.urandom(3), "big"))
ROUNDS = 5
NAMES = [f"{family}-{n}" for family in FAMILIES for n in range(ROUNDS)]
CPU_NAMES = ["dense", "windowed", "delta_net", "short_conv", "selective_state"]


def draw(name: str) -> dict[str, Any]:
    """The case of a name, the same wherever it is drawn in one run."""
    return draw_case(Random(f"{SEED}-{name}"), name.rsplit("-", 1)[0], name)  # noqa: S311 - no secret


def draw_for_cpu(name: str) -> dict[str, Any]:
    """A model of the family under what the CPU backend allows: one rank, its own block size, no quantised cache."""
    line = draw(f"{name}-cpu")
    args = {k: v for k, v in line["case"]["args"].items() if k in ("max_model_len", "max_num_seqs")}
    line["case"] = {"id": name, "kv_gib": line["case"]["kv_gib"], "args": args}
    line["config"]["torch_dtype"] = "bfloat16"
    return line


@pytest.fixture(scope="session")
def answers(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """vLLM's answers to all cases, by name; asked in one batch."""
    lines = ask(engine_python, [draw(name) for name in NAMES], tmp_path_factory.mktemp("live"))
    return {line["case"]["id"]: line for line in lines}


@pytest.fixture(scope="session")
def cpu_answers(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The same of the CPU backend."""
    lines = [draw_for_cpu(name) for name in CPU_NAMES]
    answered = ask(engine_python, lines, tmp_path_factory.mktemp("live-cpu"), platform="cpu")
    return {line["case"]["id"]: line for line in answered}


def found(line: dict[str, Any], got: Prediction) -> list[str]:
    """Where vLLM and kvadvise differ.

    A pipeline's estimated length is vLLM's for one rank, kvadvise's for all; where its workers disagree on the block
    size, the server states the smallest of the groups.
    """
    answer, row = line["answer"], expected(line["answer"])
    if line["case"].get("pp", 1) > 1 and got.pool is not None and "estimated" in row:
        row["estimated"] = min(row["estimated"], got.pool.estimated_max_model_len)
    if got.layout is not None and got.layout.block_size == answer.get("reported_block_size"):
        row["block_size"] = got.layout.block_size
    wrong = differences(row, got)
    if "max_num_seqs" in answer and got.layout is not None:
        mine = (got.max_model_len, *got.batch)
        theirs = (answer["max_model_len"], answer["max_num_batched_tokens"], answer["max_num_seqs"])
        wrong += [f"length and batch: {mine} instead of {theirs}"] if mine != theirs else []
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_a_random_model_is_laid_out_as_vllm_does(name: str, answers: dict[str, dict[str, Any]]) -> None:
    line = answers[name]
    got = predict(ModelFacts(id=name, config=line["config"]), line["case"], DEFAULT)
    wrong = found(line, got)
    assert not wrong, f"KVADVISE_SEED={SEED}: {line['case']} {line['config']}\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", CPU_NAMES)
def test_a_random_model_on_the_cpu_is_laid_out_as_vllm_does(name: str, cpu_answers: dict[str, dict[str, Any]]) -> None:
    line = cpu_answers[name]
    model = read_model(ModelFacts(id=name, config=line["config"]), DEFAULT)
    engine = resolve_engine(model, this_cpu(), DEFAULT, line["case"]["args"])
    layout = lay_out(model, engine)
    got = Prediction(layout, layout.pool([int(line["case"]["kv_gib"] * GIB)]), "")
    wrong = differences(expected(line["answer"]), got)
    assert not wrong, f"KVADVISE_SEED={SEED}: {line['case']} {line['config']}\n" + "\n".join(wrong)


def test_enough_random_cases_were_laid_out_and_enough_refused(answers: dict[str, dict[str, Any]]) -> None:
    refused = {name: line["answer"]["refused"] for name, line in answers.items() if "refused" in line["answer"]}
    assert len(NAMES) // 8 <= len(refused) <= len(NAMES) * 5 // 8, f"KVADVISE_SEED={SEED}: {refused}"
