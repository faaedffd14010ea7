"""Other ways to serve the load, each planned in full: more GPUs, replicas, other precision, model, GPU, or a pin let
go.

Nothing here is applied. Those that meet the target come first, then those that lose no quality, use fewer GPUs, and
promise more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from advisor.command import flags_of
from advisor.errors import EngineRefuses, NotUnderstood
from advisor.facts import ModelFacts
from advisor.gpu import Gpu
from advisor.model.read import read_model
from advisor.plan_types import Alternative, Concurrency, Finding, Outcome
from advisor.search import Found, search
from advisor.sizing import Problem, Sized
from advisor.steps import is_lossy, met

_MOST = 8
_MOST_OF_A_KIND = 2
_WORTH_SAYING = 1.1
_MOST_GPUS_TRIED = 16
_RELEASABLE = (
    "max_model_len",
    "gpu_memory_utilization",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_cache_dtype",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "enforce_eager",
    "kv_cache_memory_bytes",
    "num_gpu_blocks_override",
)


def concurrency_of(problem: Problem, sized: Sized) -> Concurrency:
    """What a configuration holds and promises, per data-parallel engine."""
    return Concurrency(
        target=problem.target,
        at_p95=sized.at_p95,
        promised=problem.promised(sized.at_p95),
        bound_by=sized.requests.bound_by,
        replicas=problem.replicas,
        at_p95_high=sized.requests_high.count,
        blocks_per_request=sized.requests.blocks_per_request,
        shared_blocks=sized.requests.shared_blocks,
    )


def outcome_of(problem: Problem, sized: Sized) -> Outcome:
    """fits, fits_with_loss or does_not_fit, by the numbers alone."""
    if not met(problem, sized):
        return "does_not_fit"
    return "fits_with_loss" if is_lossy(sized) else "fits"


def alternatives(
    problem: Problem, found: Found, known_gpus: Sequence[Gpu], siblings: Sequence[ModelFacts]
) -> tuple[Alternative, ...]:
    """The best few other ways; `known_gpus` and `siblings` are tried only while the target is not met."""
    fits = met(problem, found.state.sized)
    ways: list[Alternative] = [*_released(problem, found), *_replicas(problem, found)]
    if not fits:
        ways += [*_policy(problem), *_models(problem, siblings), *_more_gpus(problem), *_gpus(problem, known_gpus)]
    if fits:
        ways = [way for way in ways if way.outcome != "does_not_fit"]
    return tuple(sorted(ways, key=_rank)[:_MOST])


def _rank(way: Alternative) -> tuple[int, int]:
    """Those that fit by GPUs, in the order of this module; those that do not by what they promise."""
    order: dict[Outcome, int] = {"fits": 0, "fits_with_loss": 1}
    rank = order.get(way.outcome, 2)
    return rank, way.gpus if rank < 2 else -way.concurrency.promised * way.concurrency.replicas


def pin_costs(ways: Iterable[Alternative], promised: int, *, is_met: bool) -> tuple[Finding, ...]:
    """What each pin costs, from the alternatives that let it go."""
    return tuple(
        Finding(
            code="pin-cost",
            severity="note" if is_met or way.outcome == "does_not_fit" else "warning",
            message=f"{way.description}, {way.concurrency.promised} requests would be promised, not {promised}"
            + ("" if way.starts else ", and it would still not surely start"),
            remedy="let the pin go if nothing else needs it (see the alternative of kind unpin)",
            source="plan",
        )
        for way in ways
        if way.kind == "unpin"
    )


def _way(kind: str, description: str, problem: Problem, found: Found) -> Alternative:
    sized = found.state.sized
    return Alternative(
        kind=kind,
        description=description,
        outcome=outcome_of(problem, sized),
        starts=sized.starts,
        model=problem.facts.id,
        gpu=problem.gpu.name,
        gpus=sized.world_size * problem.replicas,
        flags=flags_of(problem, sized),
        concurrency=concurrency_of(problem, sized),
    )


def _try(problem: Problem) -> Found | None:
    try:
        return search(problem)
    except (EngineRefuses, NotUnderstood):
        return None


def _with(problem: Problem, **changes: Any) -> Problem:
    return msgspec.structs.replace(problem, **changes)


def _replicas(problem: Problem, found: Found) -> Iterator[Alternative]:
    """The GPUs that one engine leaves over, as engines of their own."""
    if problem.gpu.is_cpu or "data_parallel_size" in problem.pins:
        return
    engine = found.state.sized.engine
    for world in _worlds(problem, found):
        replicas = problem.gpu.count // world
        if replicas < 2:
            continue
        ranks = engine.tensor_parallel_size if world == found.state.sized.world_size else 1
        pins = problem.pins | {
            "data_parallel_size": replicas,
            "tensor_parallel_size": ranks,
            "pipeline_parallel_size": world // ranks,
        }
        other = _with(problem, pins=pins)
        way = _try(other)
        if way is not None:
            text = f"{replicas} engines of {world} GPU(s) each, with the requests spread evenly over them"
            yield _way("replicas", text, other, way)


def _worlds(problem: Problem, found: Found) -> list[int]:
    pinned = "tensor_parallel_size" in problem.pins or "pipeline_parallel_size" in problem.pins
    world = found.state.sized.world_size
    return [world] if pinned or world == 1 else [1, world]


def _released(problem: Problem, found: Found) -> Iterator[Alternative]:
    """Each pin let go by itself, where that changes what is promised or whether it starts."""
    before = found.state.sized
    for name in _RELEASABLE:
        if name not in problem.pins:
            continue
        other = _with(problem, pins={k: v for k, v in problem.pins.items() if k != name})
        way = _try(other)
        if way is None or not _differs(problem, before, way.state.sized):
            continue
        value = flags_of(other, way.state.sized).get(name)
        text = f"without the pin {name}: {problem.pins[name]}" + (
            f", with {value} instead" if value is not None else ""
        )
        yield _way("unpin", text, other, way)


def _differs(problem: Problem, before: Sized, after: Sized) -> bool:
    """Whether it starts or meets the target only without the pin, or promises a good deal more."""
    gains = problem.promised(after.at_p95) > _WORTH_SAYING * problem.promised(before.at_p95)
    starts = after.starts is True and before.starts is not True
    return gains or starts or (met(problem, after) and not met(problem, before))


def _policy(problem: Problem) -> Iterator[Alternative]:
    """What an 8-bit cache would give where the policy forbids it, or where it does not suffice by itself."""
    policy = problem.workload.policy
    if policy.kv_cache_quantization == "prefer" or "kv_cache_dtype" in problem.pins:
        return
    allowed = msgspec.structs.replace(policy, kv_cache_quantization="prefer")
    other = _with(problem, workload=msgspec.structs.replace(problem.workload, policy=allowed))
    way = _try(other)
    if way is not None and is_lossy(way.state.sized):
        yield _way("kv_cache_dtype", "an 8-bit KV cache (policy.kv_cache_quantization: prefer)", other, way)


def _more_gpus(problem: Problem) -> Iterator[Alternative]:
    """The smallest larger number of the same GPU that meets the target."""
    if problem.gpu.is_cpu:
        return
    pins = {k: v for k, v in problem.pins.items() if k not in ("tensor_parallel_size", "pipeline_parallel_size")}
    count = problem.gpu.count
    while count < _MOST_GPUS_TRIED:
        count *= 2
        other = _with(problem, pins=pins, gpu=msgspec.structs.replace(problem.gpu, count=count))
        way = _try(other)
        if way is not None and met(other, way.state.sized):
            yield _way("gpus", f"{way.state.sized.world_size} x {problem.gpu.name}", other, way)
            return


def _models(problem: Problem, siblings: Sequence[ModelFacts]) -> Iterator[Alternative]:
    """Smaller or quantised checkpoints, the largest that fits first."""
    sizes = sorted(siblings, key=lambda facts: -(facts.weights.total_bytes if facts.weights else 0))
    yield from _first_met(_model(problem, facts) for facts in sizes if facts.id != problem.facts.id)


def _model(problem: Problem, facts: ModelFacts) -> Alternative | None:
    try:
        model = read_model(facts, problem.version)
    except NotUnderstood:
        return None
    if model.max_length.tokens < problem.longest_tokens:
        return None
    ref = msgspec.structs.replace(
        problem.workload.model, id=facts.id, revision=None, path=None, quantization=None, weights_gib_per_gpu=None
    )
    workload = msgspec.structs.replace(problem.workload, model=ref)
    pins = {k: v for k, v in problem.pins.items() if k != "quantization"}
    other = _with(problem, facts=facts, model=model, workload=workload, pins=pins)
    way = _try(other)
    return None if way is None else _way("model", f"{facts.id} in its place", other, way)


def _gpus(problem: Problem, known: Sequence[Gpu]) -> Iterator[Alternative]:
    """The same number of a larger GPU, the smallest first."""
    larger = [gpu for gpu in known if gpu.total_bytes.value > problem.gpu.total_bytes.value and not gpu.is_cpu]
    same_vendor = [gpu for gpu in larger if problem.gpu.is_cpu or gpu.vendor == problem.gpu.vendor]
    ordered = sorted(same_vendor, key=lambda gpu: (gpu.total_bytes.value, gpu.name))
    yield from _first_met(_gpu(problem, gpu) for gpu in ordered)


def _gpu(problem: Problem, gpu: Gpu) -> Alternative | None:
    other = _with(problem, gpu=msgspec.structs.replace(gpu, count=problem.gpu.count))
    way = _try(other)
    return None if way is None else _way("gpu", f"{problem.gpu.count} x {gpu.name}", other, way)


def _first_met(ways: Iterable[Alternative | None]) -> Iterator[Alternative]:
    left = _MOST_OF_A_KIND
    for way in ways:
        if way is not None and way.outcome != "does_not_fit":
            yield way
            left -= 1
            if not left:
                return
