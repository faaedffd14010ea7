"""Fresh random loads, played by the installed vLLM's own scheduler and by the simulation: every step must be the same.

The seed is new each time and stands in every failure; KVADVISE_SEED repeats a run. Groups are made up, and those of
random models as vLLM's own planner forms them.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from advisor.errors import NotUnderstood
from advisor.facts import ModelFacts
from advisor.simulation.groups import group_rules
from advisor.simulation.simulate import simulate
from advisor.versions import DEFAULT
from tests.advisor.simulation.cases import KINDS, Row, draw_case, draw_for_groups, play, rules_of
from tests.engine.asking import ask
from tests.engine.conftest import ROOT
from tests.engine.random_cases import draw_case as draw_model
from tests.engine.random_models import FAMILIES
from tests.engine.server import OFFLINE
from tests.layouts import predict

SEED = int(os.environ.get("KVADVISE_SEED") or int.from_bytes(os.urandom(3), "big"))
ORACLE = Path(__file__).with_name("scheduler_oracle.py")
ROUNDS = 4
LOADS = [(kind, n) for kind in KINDS for n in range(ROUNDS)]
MODELS = [f"{family}-{n}" for family in FAMILIES for n in range(3)]
_KINDS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "latent",
    "SlidingWindowSpec": "sliding",
    "ChunkedLocalAttentionSpec": "chunked",
    "MambaSpec": "mamba",
}


def ask_scheduler(python: Path, cases: list[dict[str, Any]], scratch: Path) -> list[dict[str, Any]]:
    """vLLM's rows and totals for each case, in order."""
    path = scratch / "cases.jsonl"
    path.write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
    env = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")} | OFFLINE
    command = [str(part) for part in (python, ORACLE, ROOT / "tests" / "data" / "tiny-llama", "--cases", path)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(cases)
    return answers


def assert_same(case: dict[str, Any], answer: dict[str, Any], name: str) -> None:
    """Every step's row, and the totals."""
    rows, result = play(case)
    theirs: list[Row] = answer["rows"]
    mine: list[Row] = json.loads(json.dumps(rows))
    differing = next(((a, b) for a, b in zip(mine, theirs, strict=False) if a != b), None)
    settings = {k: v for k, v in case.items() if k != "requests"}
    assert differing is None, f"KVADVISE_SEED={SEED} {name}: {settings}\nkvadvise {differing[0]}\nvLLM {differing[1]}"
    found = (len(rows), result.stuck, result.preemptions, result.hit_tokens, result.query_tokens)
    assert found == tuple(answer[k] for k in ("steps", "stuck", "preemptions", "hit_tokens", "query_tokens")), name


@pytest.fixture(scope="session")
def answers(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], dict[str, Any]]:
    """vLLM's answers to all random loads."""
    cases = [draw_case(f"{SEED}-{n}", kind) for kind, n in LOADS]
    return dict(zip(LOADS, ask_scheduler(engine_python, cases, tmp_path_factory.mktemp("loads")), strict=True))


@pytest.mark.parametrize(("kind", "n"), LOADS)
def test_a_random_load_is_played_as_vllm_does(
    kind: str, n: int, answers: dict[tuple[str, int], dict[str, Any]]
) -> None:
    assert_same(draw_case(f"{SEED}-{n}", kind), answers[kind, n], f"{kind} {n}")


def groups_of(answer: dict[str, Any], name: str, line: dict[str, Any]) -> list[dict[str, Any]] | None:
    """vLLM's own groups of a model as the scheduler sees them; what bytes cannot say is kvadvise's."""
    layout = predict(ModelFacts(id=name, config=line["config"]), line["case"], DEFAULT).layout
    if layout is None or "groups" not in answer or not answer["groups"]:
        return None
    try:
        rules = group_rules(layout)
    except NotUnderstood:
        return None
    theirs = [(_KINDS.get(g["kind"]), g["block"]) for g in answer["groups"]]
    assert [(rule.kind, rule.block_size // layout.dcp) for rule in rules] == theirs or layout.dcp > 1
    return [{name: getattr(rule, name) for name in rule.__struct_fields__} for rule in rules]


def is_simulated(case: dict[str, Any]) -> bool:
    """Whether kvadvise knows the schedule of these groups, or says that it does not."""
    try:
        simulate([], rules_of(case))
    except NotUnderstood:
        return False
    return True


def test_the_groups_of_random_models_are_played_as_vllm_does(engine_python: Path, tmp_path: Path) -> None:
    """Groups that vLLM's planner forms of random models, each with a load that fills its pool."""
    lines = [draw_model(Random(f"{SEED}-{name}"), name.rsplit("-", 1)[0], name) for name in MODELS]  # noqa: S311
    laid_out = ask(engine_python, lines, tmp_path)
    cases: dict[str, dict[str, Any]] = {}
    for name, line in zip(MODELS, laid_out, strict=True):
        groups = groups_of(line["answer"], name, line)
        if groups is not None:
            case = draw_for_groups(f"{SEED}", name, groups, caching=bool(line["answer"]["prefix_caching"]))
            if case is not None and is_simulated(case):
                cases[name] = case
    assert len(cases) >= len(MODELS) // 4, f"KVADVISE_SEED={SEED}: {sorted(cases)}"
    for (name, case), answer in zip(
        cases.items(), ask_scheduler(engine_python, list(cases.values()), tmp_path), strict=True
    ):
        assert_same(case, answer, name)
