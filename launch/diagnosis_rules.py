"""The whole table of causes: what a log, an exit status or a figure can show, and who answers for it.

Codes are shared with the plan's findings (advisor/rules, advisor/arguments) where the same thing is meant.
"""

from __future__ import annotations

from launch.causes import (
    arguments,
    cpu_memory,
    device,
    ended,
    free_memory,
    model,
    out_of_memory,
    parallel,
    pool,
    process,
    running,
)
from launch.diagnosis_types import Rule, StateRule

RULES: tuple[Rule, ...] = (
    *arguments.RULES,
    *model.RULES,
    *device.RULES,
    *parallel.RULES,
    *free_memory.RULES,
    *pool.RULES,
    *cpu_memory.RULES,
    *out_of_memory.RULES,
    *process.RULES,
    *ended.RULES,
    *running.RULES,
)
STATE_RULES: tuple[StateRule, ...] = (*ended.STATE_RULES, *running.STATE_RULES)

# What is only said where nothing better is: a process crashed, ranks lost each other, a worker does not answer.
CONSEQUENCES = frozenset({"killed-by-signal", "nccl", "execute-timeout", "hang", "oom-host"})

UNEXPLAINED, DIED = "unexplained", "engine-died"


def all_codes() -> tuple[str, ...]:
    """Every code a log's diagnosis may have, in order, each once."""
    tables = ([rule.codes for rule in RULES], [rule.codes for rule in STATE_RULES])
    return tuple(sorted({UNEXPLAINED, DIED, *(code for table in tables for codes in table for code in codes)}))
