"""Seeded random loads for the scheduler, and how kvadvise and vLLM are asked to play them.

A case is a plain dict, so that it can be handed to the scheduler oracle as a line of JSON.
"""

from __future__ import annotations

import math
import zlib
from random import Random
from typing import Any

import msgspec

from advisor.simulation.request import Part, SimRequest
from advisor.simulation.results import Simulation
from advisor.simulation.rules import GroupRule, Rules
from advisor.simulation.scheduler import Scheduler
from advisor.simulation.simulate import simulate

Row = list[
    Any
]  # [step, running, [[request, tokens]], blocks of each running request and group, used, preempted, waiting]

_RULE_KEYS = set(Rules.__struct_fields__) - {"groups", "behaviour"}


def rules_of(case: dict[str, Any]) -> Rules:
    """A case's settings, as kvadvise takes them."""
    groups = tuple(msgspec.convert(g, GroupRule) for g in case["groups"])
    behaviour = msgspec.structs.replace(
        Rules.__struct_defaults__[-1], retention_interval_tokens=case.get("retention_interval_tokens", 0)
    )
    return Rules(groups=groups, behaviour=behaviour, **{k: v for k, v in case.items() if k in _RULE_KEYS})


def requests_of(case: dict[str, Any]) -> list[SimRequest]:
    """A case's load, as kvadvise takes it."""
    return [
        SimRequest(
            arrival_step=row["arrival_step"],
            prompt=tuple(Part(text, tokens) for text, tokens in row["prompt"]),
            output_tokens=row["output_tokens"],
            output_text=row["output"],
            priority=row.get("priority", 0),
            abort_step=row.get("abort_step"),
        )
        for row in case["requests"]
    ]


def row_of(step: int, scheduler: Scheduler) -> Row:
    """What happened in a step, in the oracle's form."""
    scheduled, held = [], []
    for live in scheduler.running:
        held.append([sum(1 for block in table if block) for table in live.tables])
        if live.last_step == step:
            scheduled.append([live.index, live.last_new])
        elif live.flowing and not live.ending and live.stalled_step != step:
            scheduled.append([live.index, 1])
    pool = scheduler.memory.pool
    return [
        step,
        [live.index for live in scheduler.running],
        scheduled,
        held,
        pool.total - pool.free,
        sorted(live.index for live in scheduler.preempted),
        len(scheduler.waiting),
    ]


def play(case: dict[str, Any]) -> tuple[list[Row], Simulation]:
    """Every step of a case, and its results."""
    rows: list[Row] = []
    return rows, simulate(
        requests_of(case), rules_of(case), watch=lambda step, scheduler, _tokens: rows.append(row_of(step, scheduler))
    )


def digest(row: Row) -> int:
    """Sixteen bits of a row."""
    return zlib.crc32(repr(row).encode()) & 0xFFFF


GROUPS: dict[str, list[dict[str, Any]]] = {
    "full": [{"kind": "full", "block_size": 16}],
    "latent": [{"kind": "latent", "block_size": 64}],
    "window": [{"kind": "sliding", "block_size": 16, "span_tokens": 100}],
    "state": [{"kind": "mamba", "block_size": 32, "aligned": True}],
    "full+window": [
        {"kind": "full", "block_size": 16},
        {"kind": "sliding", "block_size": 16, "span_tokens": 64},
    ],
    "five windows+full": [
        *({"kind": "sliding", "block_size": 16, "span_tokens": 48} for _ in range(5)),
        {"kind": "full", "block_size": 16},
    ],
    "two sizes": [
        {"kind": "full", "block_size": 16},
        {"kind": "sliding", "block_size": 32, "span_tokens": 80},
        {"kind": "sliding", "block_size": 32, "span_tokens": 80},
    ],
    "two windows": [
        {"kind": "full", "block_size": 16},
        {"kind": "sliding", "block_size": 16, "span_tokens": 33},
        {"kind": "sliding", "block_size": 16, "span_tokens": 128},
    ],
    "full+chunks": [
        {"kind": "full", "block_size": 16},
        {"kind": "chunked", "block_size": 16, "span_tokens": 64},
    ],
    "full+states": [
        {"kind": "full", "block_size": 32},
        *({"kind": "mamba", "block_size": 32, "aligned": True} for _ in range(3)),
    ],
    "state inside": [{"kind": "mamba", "block_size": 16, "aligned": True, "checkpoint_alignment": 1}],
    "full+states inside": [
        {"kind": "full", "block_size": 16},
        *({"kind": "mamba", "block_size": 16, "aligned": True, "checkpoint_alignment": 1} for _ in range(2)),
    ],
    "two fulls": [
        {"kind": "full", "block_size": 16},
        {"kind": "full", "block_size": 32, "twin": 1},
        {"kind": "sliding", "block_size": 32, "span_tokens": 96},
    ],
}
UNCACHED: dict[str, list[dict[str, Any]]] = {
    "full+state, no cache": [
        {"kind": "full", "block_size": 16},
        {"kind": "mamba", "block_size": 512},
        {"kind": "mamba", "block_size": 512},
    ],
    "states only, no cache": [{"kind": "mamba", "block_size": 512}],
}
KINDS = (*GROUPS, *UNCACHED)
MAX_MODEL_LEN = 512


def draw_case(seed: int | str, kind: str) -> dict[str, Any]:
    """A random load and random settings for one kind of model; small enough that blocks are scarce."""
    rng = Random(f"{kind} {seed}")  # noqa: S311 - no secret
    groups = GROUPS.get(kind) or UNCACHED[kind]
    return _draw(rng, groups, MAX_MODEL_LEN, cacheable=kind in GROUPS)


def draw_for_groups(seed: str, name: str, groups: list[dict[str, Any]], *, caching: bool) -> dict[str, Any] | None:
    """The same for the groups of a real model, the lengths grown with its blocks; None where they are too long."""
    rng = Random(f"{name} {seed}")  # noqa: S311 - no secret
    states = [g["block_size"] for g in groups if g["kind"] == "mamba" and not g["aligned"]]
    if states and caching:
        return None
    longest = (
        max(g["block_size"] for g in groups if g["kind"] != "mamba" or g["aligned"])
        if len(states) < len(groups)
        else 16
    )
    longest *= 32
    own = [{**g, "block_size": longest} if g["kind"] == "mamba" and not g["aligned"] else g for g in groups]
    if longest > 40_000:
        return None
    return _draw(rng, own, longest, cacheable=caching, scale=longest // MAX_MODEL_LEN or 1)


def _draw(
    rng: Random, groups: list[dict[str, Any]], longest: int, *, cacheable: bool, scale: int = 1
) -> dict[str, Any]:
    budget = rng.choice([33, 64, 100, 128, 256]) * scale
    case: dict[str, Any] = {
        "groups": groups,
        "max_model_len": longest,
        "max_num_seqs": rng.choice([3, 8, 16, 40]),
        "max_num_batched_tokens": budget,
        "prefix_caching": cacheable and rng.random() < 0.8,
        "async_scheduling": rng.random() < 0.5,
        "policy": rng.choice(["fcfs", "fcfs", "priority"]),
        "chunked_prefill": True,
        "reserve_full_prompt": rng.random() < 0.75,
        "watermark_fraction": rng.choice([0.0, 0.0, 0.05]),
        "long_prefill_token_threshold": rng.choice([0, 0, 0, 20 * scale, 48 * scale]),
        "long_prefill_token_threshold_adaptive": rng.random() < 0.3,
        "max_num_active_seqs": rng.choice([None, None, None, 2]),
        "retention_interval_tokens": rng.choice([0, 0, 0, None, 2 * _lcm(groups)]),
    }
    if not any(g["kind"] in ("sliding", "mamba") for g in groups):
        case["retention_interval_tokens"] = 0
    if rng.random() < 0.1 and not any(g.get("aligned") for g in groups):
        case["chunked_prefill"] = False
        case["max_num_batched_tokens"] = longest
    case["num_blocks"] = _least_blocks(case) + rng.choice([0, 0, 3, 10, 40])
    case["requests"] = _draw_requests(rng, rng.choice([6, 15, 25]), longest, scale)
    return case


def _lcm(groups: list[dict[str, Any]]) -> int:
    return math.lcm(*(g["block_size"] for g in groups))


def _least_blocks(case: dict[str, Any]) -> int:
    """Blocks with which one request of the longest length can be served, and the null block."""
    in_flight = case["max_num_batched_tokens"] * (2 if case["async_scheduling"] else 1)
    total = 2
    for g in case["groups"]:
        whole = -(-case["max_model_len"] // g["block_size"])
        kept = in_flight + g["span_tokens"] if g["kind"] in ("sliding", "chunked") else case["max_model_len"]
        total += min(whole, -(-kept // g["block_size"]) + 2)
    return total


def _draw_requests(rng: Random, count: int, longest: int, scale: int) -> list[dict[str, Any]]:
    shared = [(f"system {i}", rng.randrange(10, 200) * scale) for i in range(2)]
    spread = rng.choice([0, 30, 150])
    rows: list[dict[str, Any]] = []
    for i in range(count):
        prompt: list[tuple[str, int]] = []
        if rows and rng.random() < 0.15:  # the next turn of a conversation
            before = rng.choice(rows)
            prompt = [*before["prompt"], (before["output"], before["output_tokens"])]
        elif rng.random() < 0.6:
            prompt = [rng.choice(shared)]
        prompt.append((f"own {i % 7 if rng.random() < 0.2 else i}", rng.randrange(1, 180) * scale))
        while sum(n for _, n in prompt) > longest - 10:
            prompt.pop(0)
        arrival = rng.randrange(spread + 1)
        row: dict[str, Any] = {
            "arrival_step": arrival,
            "prompt": prompt,
            "output_tokens": rng.choice([1, 2, rng.randrange(1, 40), rng.randrange(1, 140)]),
            "output": f"answer {i}",
            "priority": rng.randrange(3),
        }
        if rng.random() < 0.12:
            row["abort_step"] = arrival + rng.randrange(1, 60)
        rows.append(row)
    return rows
