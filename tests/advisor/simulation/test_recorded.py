"""Every step of the recorded cases as vLLM 0.32's own scheduler took it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from advisor.simulation.simulate import simulate
from tests.advisor.simulation.cases import KINDS, digest, draw_case, play, requests_of, rules_of

RECORD = Path(__file__).resolve().parents[2] / "data" / "scheduler_answers.jsonl"
LINES = [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [line for line in LINES if line["kind"] == kind]


def expected_digests(line: dict[str, Any]) -> list[int]:
    packed = base64.b85decode(line["digests"])
    return [int.from_bytes(packed[i : i + 2], "little") for i in range(0, len(packed), 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_is_vllms(kind: str) -> None:
    """Running set in order, tokens and blocks of each request, blocks used, preempted ones, and the queue's length."""
    for line in of_kind(kind):
        rows, result = play(draw_case(line["seed"], kind))
        expected = expected_digests(line)
        wrong = next((row for row, theirs in zip(rows, expected, strict=False) if digest(row) != theirs), None)
        assert wrong is None, f"{kind} seed {line['seed']}: {wrong}"
        totals = (len(rows), result.stuck, result.preemptions, result.hit_tokens, result.query_tokens)
        keys = ("steps", "stuck", "preemptions", "hit_tokens", "query_tokens")
        assert totals == tuple(line[key] for key in keys), f"{kind} seed {line['seed']}"


@pytest.mark.parametrize("kind", KINDS)
def test_skipping_equal_steps_changes_nothing(kind: str) -> None:
    """Played step by step or in stretches: the same timeline, the same end."""
    for line in of_kind(kind)[::5]:
        case = draw_case(line["seed"], kind)
        rows, shown = play(case)
        skipped = simulate(requests_of(case), rules_of(case))
        timeline = [(s.first_step, s.running, s.waiting, s.tokens, s.blocks) for s in skipped.each_step()]
        assert timeline == [
            (row[0], len(row[1]), row[6], sum(tokens for _, tokens in row[2]), row[4]) for row in rows
        ], f"{kind} seed {line['seed']}"
        assert skipped.requests == shown.requests


def test_the_record_is_wide() -> None:
    assert len(LINES) >= 300
    assert sum(line["preemptions"] > 0 for line in LINES) >= 60
    assert sum(line["hit_tokens"] > 0 for line in LINES) >= 150
    assert sum(line["steps"] for line in LINES) >= 30_000
