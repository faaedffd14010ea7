"""What one rank holds: weights, overheads and budget put together, one ledger per pipeline stage."""

from __future__ import annotations

from advisor.drafting import draft_kind
from advisor.engine import Engine
from advisor.errors import NotUnderstood
from advisor.estimate import Estimate, estimated, measured
from advisor.facts import ModelFacts
from advisor.ledger import Line, MemoryLedger, cpu_ledger, memory_ledger
from advisor.ledger_lines import lora_line, mtp_line
from advisor.model.spec import ModelSpec
from advisor.overhead_constants import OverheadConstants
from advisor.overhead_facts import encoder_shape, overhead_inputs
from advisor.overheads import overheads
from advisor.units import bytes_from_gib
from advisor.workload import ModelRef

_LORA_RANK = 16  # vLLM config/lora.py: max_lora_rank


def rank_ledgers(
    model: ModelSpec, facts: ModelFacts, engine: Engine, ref: ModelRef, constants: OverheadConstants
) -> tuple[MemoryLedger, ...]:
    """One ledger per pipeline stage, of the tensor-parallel rank with most weights."""
    weights = stage_weights(facts, engine, ref)
    return tuple(
        _ledger(model, facts, engine, constants, stage, weights[stage], stated=ref.weights_gib_per_gpu is not None)
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
    *,
    stated: bool,
) -> MemoryLedger:
    gpu = engine.gpu
    last = stage == engine.pipeline_parallel_size - 1
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
        lines=() if stated else _lines(model, engine, is_last=last),
        kv_cache_memory_bytes=engine.kv_cache_memory_bytes,
    )


def _lines(model: ModelSpec, engine: Engine, *, is_last: bool) -> tuple[Line, ...]:
    """LoRA slots and MTP layers; a stated "model loading" figure holds them already."""
    pins = engine.pinned
    lines = []
    if pins.get("enable_lora"):
        rank, slots = pins.get("max_lora_rank") or _LORA_RANK, pins.get("max_loras") or 1
        lines.append(lora_line(model, engine, max_loras=int(slots), max_lora_rank=int(rank)))
    if is_last and draft_kind(model, pins) == "mtp":
        bits = model.quantization.weight_bits or 16
        lines.append(mtp_line(model, engine, weight_bytes=bits / 8))
    return tuple(lines)
