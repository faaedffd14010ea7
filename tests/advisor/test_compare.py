"""What differs between two plans is told by path, once, and in a plan's order."""

from __future__ import annotations

import json

import msgspec

from advisor.compare import Difference, diff_plans
from tests.advisor import plan_samples as s


def test_the_same_plan_differs_in_nothing() -> None:
    made = s.plan(s.LLAMA)
    saved = json.loads(msgspec.json.encode(made))
    assert diff_plans(made, made) == ()
    assert diff_plans(saved, saved) == ()


def test_a_plan_and_its_saved_form_are_the_same() -> None:
    made = s.plan(s.LLAMA)
    saved = json.loads(msgspec.json.encode(made))
    assert diff_plans(made, saved) == ()


def test_what_a_longer_prompt_changes() -> None:
    differences = diff_plans(s.plan(s.LLAMA, prompt=2000), s.plan(s.LLAMA, prompt=4000))
    paths = {difference.path: difference for difference in differences}
    assert paths["flags.max_model_len"] == Difference("flags.max_model_len", 2208, 4208)
    assert paths["concurrency.at_p95"].before > paths["concurrency.at_p95"].after
    assert "outcome" not in paths
    order = [path.split(".")[0] for path in paths]
    assert order == sorted(
        order, key=["outcome", "starts", "subject", "flags", "memory", "kv", "concurrency", "findings"].index
    )


def test_findings_come_and_go_by_code() -> None:
    differences = diff_plans(s.plan(s.LLAMA), s.plan(s.LLAMA, headroom=0.95))
    assert Difference("findings.headroom-thin", None, "warning") in differences


def test_a_plan_without_numbers_beside_one_with() -> None:
    differences = {d.path: d for d in diff_plans(s.plan("BAAI/bge-m3"), s.plan(s.LLAMA))}
    assert (differences["outcome"].before, differences["outcome"].after) == ("not_understood", "fits")
    assert differences["memory"].before is None
    assert differences["flags.max_model_len"].before is None
