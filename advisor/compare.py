"""Two plans side by side: what differs, in the order a plan is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from advisor.plan_types import Plan

# What decides and what is figured; words (reasons, assumptions) and identity change without meaning anything.
_COMPARED = ("outcome", "starts", "subject", "flags", "memory", "kv", "concurrency")


class Difference(msgspec.Struct, frozen=True):
    """One value that differs, by its dotted path; None where one plan does not have it."""

    path: str
    before: Any
    after: Any


def diff_plans(before: Plan | Mapping[str, Any], after: Plan | Mapping[str, Any]) -> tuple[Difference, ...]:
    """Every difference between two plans, made or saved: outcome, flags, memory, pool, concurrency, findings.

    Takes plans or the mappings that `kvadvise.plan/1` is read into; of a saved plan of an older release the keys that
    it has are compared.
    """
    one, other = _mapping(before), _mapping(after)
    found = [d for key in _COMPARED for d in _walk(key, one.get(key), other.get(key))]
    return (*found, *_findings(one, other))


def _mapping(plan: Plan | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(plan, Plan):
        made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(plan))
        return made
    return plan


def _walk(path: str, before: Any, after: Any) -> Iterator[Difference]:
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from _walk(f"{path}.{key}", before.get(key), after.get(key))
        return
    yield Difference(path, before, after)


def _findings(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """Findings that came or went, by code; a reworded message is no difference."""
    old, new = ({f["code"]: f["severity"] for f in plan.get("findings") or ()} for plan in (before, after))
    for code in sorted(old.keys() | new.keys()):
        if old.get(code) != new.get(code):
            yield Difference(f"findings.{code}", old.get(code), new.get(code))
