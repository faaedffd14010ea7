"""What one rank holds: weights, overheads and budget put together, one ledger per pipeline stage."""

from __future__ import annotations

from advisor.engine import Engine
from advisor.errors import NotUnderstood
from advisor.estimate import Estimate, estimated, measured
from advisor.facts import ModelFacts
from advisor.ledger import MemoryLedger, cpu_ledger, memory_ledger
from advisor.model.spec import ModelSpec
from advisor.overhead_constants import OverheadConstants
from advisor.overhead_facts import encoder_shape, overhead_inputs
from advisor.overheads import overheads
from advisor.units import bytes_from_gib
from advisor.workload import ModelRef


def rank_ledgers(
    model: ModelSpec, facts: ModelFacts, engine: Engine, ref: ModelRef, constants: OverheadConstants
) -> tuple[MemoryLedger, ...]:
    """One ledger per pipeline stage, of the tensor-parallel rank with most weights."""
    weights = stage_weights(facts, engine, ref)
    return tuple(
        _ledger(model, facts, engine, constants, stage, weights[stage])
        for stage in range(engine.pipeline_parallel_size)
    )


def stage_weights(facts: ModelFacts, engine: Engine, ref: ModelRef) -> tuple[Estimate, ...]:
    """Weight bytes of one rank of each stage: as stated, else the checkpoint split evenly.

    Raises NotUnderstood where neither is known.
    """
    if ref.weights_gib_per_gpu is not None:
        return (_stated(ref.weights_gib_per_gpu),) * engine.pipeline_parallel_size
    if facts.weights is None:
        raise NotUnderstood(f"the size of {facts.id} is not known", hint="state model.weights_gib_per_gpu")
    ranks = engine.tensor_parallel_size * engine.pipeline_parallel_size
    value = facts.weights.total_bytes // ranks
    return (estimated(value, round(0.9 * value), round(1.1 * value)),) * engine.pipeline_parallel_size


def _stated(gib: float) -> Estimate:
    """A log prints two decimals."""
    return measured(bytes_from_gib(gib), bytes_from_gib(gib - 0.005), bytes_from_gib(gib + 0.005))


def _ledger(
    model: ModelSpec,
    facts: ModelFacts,
    engine: Engine,
    constants: OverheadConstants,
    stage: int,
    weights: Estimate,
) -> MemoryLedger:
    gpu = engine.gpu
    encoder = encoder_shape(facts.config, constants.encoders) if model.is_multimodal else None
    costs = overheads(overhead_inputs(model, engine, stage=stage, encoder=encoder), constants)
    if gpu.is_cpu:
        return cpu_ledger(
            total=gpu.free_bytes,
            weights=weights,
            overheads=costs,
            kv_cache_memory_bytes=engine.kv_cache_memory_bytes,
        )
    return memory_ledger(
        version=engine.version,
        total=gpu.total_bytes,
        free=gpu.free_bytes,
        utilization=engine.gpu_memory_utilization,
        weights=weights,
        overheads=costs,
        kv_cache_memory_bytes=engine.kv_cache_memory_bytes,
    )
