"""A model as a stack of layers with edges, and its bytes on each pipeline stage.

Source: vLLM 0.32 distributed/utils.py (get_pp_indices) and model_executor/models/utils.py (make_layers): layers a stage
does not hold cost nothing. Layers of one kind weigh the same, so one of each is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from advisor.errors import EngineRefuses
from advisor.weights.tally import Bytes, Rank, Tally


class Blueprint(NamedTuple):
    """`kind(i)` is equal for layers of one build; `edges(tally, first, last)` adds all a stage holds besides layers."""

    layers: int
    kind: Callable[[int], Hashable]
    layer: Callable[[Tally, int], None]
    edges: Callable[[Tally, bool, bool], None]


def stage_bounds(layers: int, stages: int, partition: tuple[int, ...] | None = None) -> list[tuple[int, int]]:
    """First and past-last layer of each stage; what does not divide goes to the stages before the last."""
    if stages > layers:
        raise EngineRefuses(
            "more_stages_than_layers",
            f"pipeline_parallel_size {stages} is more than the model's {layers} layers",
            hint="use at most one stage a layer",
        )
    sizes = [layers // stages] * stages if partition is None else list(partition)
    if partition is None:
        for i in range(2, layers % stages + 2):
            sizes[-i] += 1
    bounds, start = [], 0
    for size in sizes:
        bounds.append((start, start + size))
        start += size
    return bounds


def stage_bytes(plan: Blueprint, rank: Rank, stages: int, partition: tuple[int, ...] | None = None) -> list[Bytes]:
    """Bytes that tensor-parallel rank 0 of each stage holds."""
    counted: dict[Hashable, Tally] = {}
    result = []
    for stage, (start, end) in enumerate(stage_bounds(plan.layers, stages, partition)):
        here = Tally(rank)
        plan.edges(here, stage == 0, stage == stages - 1)
        times: dict[Hashable, int] = {}
        for i in range(start, end):
            key: Hashable = (plan.kind(i), rank.quantiser.signature(i))
            if key not in counted:
                one = counted[key] = Tally(rank)
                plan.layer(one, i)
            times[key] = times.get(key, 0) + 1
        for key, count in times.items():
            here.absorb(counted[key], count)
        result.append(here.total())
    return result
