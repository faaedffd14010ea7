"""How many of the GPUs given one engine takes: the smallest split that meets the target.

Without a pin vLLM takes one GPU. The planner starts from the smallest split that starts at all (its
baseline), walks the priority table there, and goes to a larger one, without loss first, only while the
target is not met. Larger splits are tried by tensor parallel where the model divides, by pipeline stages
where it does not.
"""

from __future__ import annotations

from typing import Any

import msgspec

from advisor.errors import EngineRefuses
from advisor.plan_types import Step
from advisor.sizing import Problem, Sized, size
from advisor.steps import TABLE, State, Walk, better, met, record, walk
from advisor.tensor_parallel import tp_problems
from advisor.units import MIB

_MOST_GPUS = 64
LAST_ROW = "model_or_gpus"


class Split(msgspec.Struct, frozen=True, order=True):
    """GPUs of one engine: `world` in all."""

    world: int
    stages: int
    ranks: int

    @property
    def moves(self) -> dict[str, Any]:
        """As engine arguments."""
        return {"tensor_parallel_size": self.ranks, "pipeline_parallel_size": self.stages}


class Found(msgspec.Struct, frozen=True):
    """The walk that was chosen, with all five steps."""

    state: State
    steps: tuple[Step, ...]


def splits(problem: Problem) -> list[Split]:
    """Every way to use up to the GPUs given, smallest first; pins leave only what they allow."""
    count = max(1, problem.gpu.count // problem.replicas)
    tp, pp = problem.pins.get("tensor_parallel_size"), problem.pins.get("pipeline_parallel_size")
    if problem.gpu.is_cpu or tp is not None:
        return [Split((tp or 1) * (pp or 1), pp or 1, tp or 1)]
    ranks = [n for n in range(1, min(count, _MOST_GPUS) + 1) if _divides(problem, n)]
    if pp is not None:
        return [Split(n * pp, pp, n) for n in ranks if n * pp <= count] or [Split(pp, pp, 1)]
    found = [Split(n, 1, n) for n in ranks]
    if count not in ranks:
        found += [Split(n * s, s, n) for n in ranks for s in _stages(problem, n, count) if s > 1]
    return sorted(found) or [Split(1, 1, 1)]


def _divides(problem: Problem, ranks: int) -> bool:
    expert_parallel = bool(problem.pins.get("enable_expert_parallel"))
    dcp = problem.pins.get("decode_context_parallel_size") or 1
    return ranks % dcp == 0 and not tp_problems(problem.model, ranks, expert_parallel=expert_parallel)


def _stages(problem: Problem, ranks: int, count: int) -> list[int]:
    """One stage, and as many as are needed to use all GPUs where tensor parallel cannot."""
    most = count // ranks
    return [1] + ([most] if 1 < most <= problem.model.num_layers and not problem.model.is_encoder_decoder else [])


def search(problem: Problem) -> Found:
    """Walk the table over the splits and choose; raises EngineRefuses where no split can be sized."""
    candidates = splits(problem)
    policy = problem.workload.policy.kv_cache_quantization
    at_once = policy == "prefer" or len(candidates) == 1
    walks = _walks(problem, candidates, may_lose=at_once)
    if not at_once and policy == "ask" and not met(problem, walks[-1].state.sized):
        walks = _walks(problem, candidates, may_lose=True)
    chosen = walks[-1] if met(problem, walks[-1].state.sized) else _best(problem, walks)
    baseline = next((w for w in walks if w.state.sized.starts is True), chosen)
    return Found(chosen.state, (*baseline.steps, _last_step(problem, baseline.state, chosen.state)))


def _walks(problem: Problem, candidates: list[Split], *, may_lose: bool) -> list[Walk]:
    """One walk per split, up to the first that meets the target; a split that vLLM refuses is left out."""
    walks: list[Walk] = []
    refused: EngineRefuses | None = None
    for split in candidates:
        try:
            walks.append(walk(problem, split.moves | _stated_pool(problem, split.moves), may_lose=may_lose))
        except EngineRefuses as refusal:
            refused = refused or refusal
            continue
        if met(problem, walks[-1].state.sized):
            break
    if not walks and refused is not None:
        raise refused
    return walks


def _stated_pool(problem: Problem, moves: dict[str, Any]) -> dict[str, Any]:
    """On a CPU the pool is always stated: what the memory leaves at the low end, in whole MiB."""
    if not problem.gpu.is_cpu or "kv_cache_memory_bytes" in problem.pins:
        return {}
    sized = size(problem, moves)
    room = min(available.low for available in sized.available) // MIB * MIB
    return {"kv_cache_memory_bytes": max(room, *sized.layout.bytes_per_block)}


def _best(problem: Problem, walks: list[Walk]) -> Walk:
    """The walk that starts most surely and promises most; of equals the smallest split."""
    best = walks[0]
    for other in walks[1:]:
        if better(problem, other.state.sized, best.state.sized):
            best = other
    return best


def _last_step(problem: Problem, before: State, after: State) -> Step:
    """Row 5: more of the GPUs given. What else would help is in the plan's alternatives."""
    step = record(len(TABLE) + 1, LAST_ROW, before, after, _reason(problem, before.sized, after.sized))
    return msgspec.structs.replace(step, before=before.sized.world_size, after=after.sized.world_size)


def _reason(problem: Problem, before: Sized, after: Sized) -> str:
    if before.world_size != after.world_size:
        return (
            f"{after.world_size} of {problem.gpu.count} GPUs for one engine: they hold {after.at_p95} requests of p95 "
            f"length; with {before.world_size} it is {before.at_p95} at best."
        )
    if met(problem, after):
        return "Not needed: the target is met."
    return "Needed: no setting meets the target with this model on these GPUs. The alternatives say what would."
