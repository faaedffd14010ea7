"""Rules of the vLLM release: how well it is known."""

from __future__ import annotations

from advisor.rules.table import Hit, InputRule
from advisor.sizing import Problem
from advisor.versions import ASKED, NEWEST, OLDEST, Version, parse_version


def _stated(problem: Problem) -> Version:
    text = problem.workload.engine.get("vllm_version")
    return parse_version(str(text)) if text is not None else problem.version


def _newer(problem: Problem) -> Hit | None:
    stated = _stated(problem)
    if stated[:2] <= NEWEST[:2]:
        return None
    return Hit(
        f"vLLM {stated} is newer than any known here; it is planned as {problem.version}",
        "compare the blocks after the start with the plan, or update kvadvise",
    )


def _older(problem: Problem) -> Hit | None:
    stated = _stated(problem)
    if stated >= OLDEST:
        return None
    return Hit(f"vLLM {stated} is older than {OLDEST}, the first with rules here", f"use vLLM {OLDEST} or newer")


def _between(problem: Problem) -> Hit | None:
    asked = {version[:2] for version in ASKED}
    if problem.version[:2] in asked or problem.version[:2] > NEWEST[:2]:
        return None
    return Hit(
        f"vLLM {problem.version} lies between the releases whose own answers were compared; its rules come from "
        "reading where each changed",
        "compare the blocks after the start with the plan",
    )


def _partial(problem: Problem) -> Hit | None:
    partial = [note for note in problem.facts.notes if "partial" in note.lower()]
    if not partial:
        return None
    return Hit(
        f"the catalogue's config is partial: {'; '.join(partial)}", "give the model's own directory or hub access"
    )


INPUTS = (
    InputRule(
        code="vllm-too-old", severity="error", check=_older, consequence="invalid", source="kvadvise's version table"
    ),
    InputRule(code="vllm-newer", severity="warning", check=_newer, source="kvadvise's version table"),
    InputRule(code="vllm-between", severity="note", check=_between, source="kvadvise's version table"),
    InputRule(code="catalogue-partial", severity="warning", check=_partial, source="model catalogue"),
)
