"""Rules: what is wrong with a configuration, why, and the one change that helps."""

from __future__ import annotations

from advisor.rules import devices, features, kv_dtype, lengths, load, lora, memory, parallel, versions
from advisor.rules.table import InputRule, Planned, PlanRule, Verdicts, judge
from advisor.sizing import Problem

INPUT_RULES: tuple[InputRule, ...] = (
    *versions.INPUTS,
    *parallel.INPUTS,
    *devices.INPUTS,
    *kv_dtype.INPUTS,
    *lengths.INPUTS,
    *memory.INPUTS,
    *load.INPUTS,
    *features.INPUTS,
    *lora.INPUTS,
)
PLAN_RULES: tuple[PlanRule, ...] = (
    *memory.PLANS,
    *load.PLANS,
    *parallel.PLANS,
    *devices.PLANS,
    *kv_dtype.PLANS,
    *lengths.PLANS,
    *features.PLANS,
)


def ask(problem: Problem, planned: Planned | None) -> Verdicts:
    """Every rule that applies to a problem and, where there is one, to its configuration."""
    return judge(problem, planned, INPUT_RULES, PLAN_RULES)
