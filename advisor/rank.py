"""What one rank holds: weights, overheads and budget put together, one ledger per pipeline stage."""

from __future__ import annotations

import msgspec

from advisor.drafting import draft_kind
from advisor.engine import Engine
from advisor.estimate import Estimate
from advisor.facts import ModelFacts
from advisor.ledger import Line, MemoryLedger, cpu_ledger, memory_ledger
from advisor.ledger_lines import lora_line, mtp_line
from advisor.measured import Measurement, with_measured
from advisor.model.spec import ModelSpec
from advisor.overhead_constants import OverheadConstants
from advisor.overhead_facts import encoder_shape, overhead_inputs
from advisor.overheads import Overheads, overheads
from advisor.towers import is_multimodal_off
from advisor.weights import WeightCount, weight_bytes
from advisor.workload import ModelRef

_LORA_RANK = 16  # vLLM config/lora.py: max_lora_rank


def rank_ledgers(
    model: ModelSpec,
    facts: ModelFacts,
    engine: Engine,
    constants: OverheadConstants,
    weights: WeightCount,
    *,
    widen: int = 1,
    known: Measurement | None = None,
) -> tuple[MemoryLedger, ...]:
    """One ledger per pipeline stage, of the tensor-parallel rank with most weights.

    `widen` multiplies the bands of the overheads, for a release that nobody has measured; `known` is what starts with
    these very settings cost, and takes the place of what is predicted.
    """
    return tuple(
        _ledger(
            model,
            facts,
            engine,
            constants,
            stage,
            weights,
            widen=widen,
            known=known,
        )
        for stage in range(engine.pipeline_parallel_size)
    )


def stage_weights(facts: ModelFacts, engine: Engine, ref: ModelRef) -> WeightCount:
    """Weight bytes of one rank of each stage, by `advisor.weights`.

    Raises NotUnderstood where neither the architecture nor the checkpoint's size is known.
    """
    gpu = engine.gpu
    return weight_bytes(
        facts.config,
        facts.quant_config,
        version=engine.version,
        tp=engine.tensor_parallel_size,
        pp=engine.pipeline_parallel_size,
        ep=engine.enable_expert_parallel,
        dp=engine.data_parallel_size,
        dtype=engine.dtype,
        quantization=engine.quantization,
        facts=facts.weights,
        weights_gib_per_gpu=ref.weights_gib_per_gpu,
        max_model_len=engine.max_model_len,
        capability=None if gpu.is_cpu else gpu.compute_capability,
        towers=not is_multimodal_off(engine.pinned),
    )


def _ledger(
    model: ModelSpec,
    facts: ModelFacts,
    engine: Engine,
    constants: OverheadConstants,
    stage: int,
    weights: WeightCount,
    *,
    widen: int,
    known: Measurement | None,
) -> MemoryLedger:
    gpu = engine.gpu
    last = stage == engine.pipeline_parallel_size - 1
    encoder = encoder_shape(facts.config, constants.encoders) if model.is_multimodal else None
    costs = _widened(overheads(overhead_inputs(model, engine, stage=stage, encoder=encoder), constants), widen)
    costs = costs if known is None else with_measured(costs, known)
    if gpu.is_cpu:
        return cpu_ledger(
            total=gpu.free_bytes,
            weights=weights.per_stage[stage],
            overheads=costs,
            kv_cache_memory_bytes=engine.kv_cache_memory_bytes,
        )
    return memory_ledger(
        version=engine.version,
        total=gpu.total_bytes,
        free=gpu.free_bytes,
        utilization=engine.gpu_memory_utilization,
        weights=weights.per_stage[stage],
        overheads=costs,
        lines=() if weights.basis == "measured" else _lines(model, engine, is_last=last),
        kv_cache_memory_bytes=engine.kv_cache_memory_bytes,
    )


def _widened(costs: Overheads, times: int) -> Overheads:
    """The same middle with wider bands, never below zero."""
    if times == 1:
        return costs
    wide = {
        name: Estimate(
            e.value, max(0, e.value - times * (e.value - e.low)), e.value + times * (e.high - e.value), e.basis
        )
        for name, e in msgspec.structs.asdict(costs).items()
        if isinstance(e, Estimate)
    }
    return msgspec.structs.replace(costs, **wide)


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
