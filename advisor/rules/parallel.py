"""Rules of parallelism: what divides over ranks, what is copied, how many GPUs there are."""

from __future__ import annotations

from advisor.parallel_sizes import TOWER_HINT, stages_refused
from advisor.rules.table import Hit, InputRule, Planned, PlanRule
from advisor.sizing import Problem
from advisor.tensor_parallel import allowed_tp, tp_problems
from advisor.towers import tower_refused

_SHOWN_SIZES = 16
_HALF = 0.5  # a share that another engine of the same size can match


def _pinned_tp(problem: Problem) -> int:
    return int(problem.pins.get("tensor_parallel_size") or 1)


def _divides(code: str) -> InputRule:
    def check(problem: Problem) -> Hit | None:
        expert_parallel = bool(problem.pins.get("enable_expert_parallel"))
        broken = tp_problems(problem.model, _pinned_tp(problem), expert_parallel=expert_parallel)
        mine = next((p for p in broken if p.code == code), None)
        if mine is None:
            return None
        sizes = allowed_tp(problem.model, expert_parallel=expert_parallel, limit=_SHOWN_SIZES)
        near = ", ".join(map(str, sizes))
        return Hit(mine.message, f"tensor_parallel_size may be {near}; other GPU counts need pipeline_parallel_size")

    return InputRule(
        code=code, severity="error", check=check, consequence="invalid", source="vLLM distributed/utils.py: divide"
    )


def _tower(problem: Problem) -> Hit | None:
    why = tower_refused(problem.model, _pinned_tp(problem), problem.pins)
    return Hit(why, TOWER_HINT) if why else None


def _stages_refused(problem: Problem) -> Hit | None:
    stages = int(problem.pins.get("pipeline_parallel_size") or 1)
    why = stages_refused(problem.model, problem.version) if stages > 1 else ""
    return Hit(why, "set pipeline_parallel_size: 1; tensor_parallel_size splits this model") if why else None


def _ray_share(problem: Problem) -> Hit | None:
    pins = problem.pins
    alone = _pinned_tp(problem) * int(pins.get("pipeline_parallel_size") or 1) == 1
    share = pins.get("gpu_memory_utilization")
    if pins.get("distributed_executor_backend") != "ray" or not alone or problem.gpu.is_cpu:
        return None
    if isinstance(share, int | float) and share <= _HALF:
        return None
    taken = f"{share:g}" if isinstance(share, int | float) else "its default share"
    return Hit(
        "a fraction of a GPU asked of Ray (num_gpus, VLLM_RAY_PER_WORKER_GPUS) places the actor and limits no memory: "
        f"each engine still takes {taken} of the whole card",
        "set gpu_memory_utilization to the card's share of each engine, so that all of them stay below 0.95, and start "
        "one after the other",
    )


def _fp8_experts(planned: Planned) -> Hit | None:
    model, engine = planned.problem.model, planned.sized.engine
    tp, width = engine.tensor_parallel_size, model.moe_intermediate_size
    if tp == 1 or width is None or width % tp or model.quantization.method != "fp8":
        return None
    if (width // tp) % 128 == 0 or engine.enable_expert_parallel:
        return None
    return Hit(
        f"the experts' width per rank, {width // tp}, is no multiple of 128, the block of FP8 scales: older releases "
        "refuse it, newer ones pad it or use slower kernels",
        "set enable_expert_parallel: true, or a smaller tensor_parallel_size",
    )


def _kv_replicated(planned: Planned) -> Hit | None:
    model, tp = planned.problem.model, planned.sized.engine.tensor_parallel_size
    dcp = planned.sized.engine.decode_context_parallel_size
    if model.uses_mla or not model.num_kv_heads or tp <= model.num_kv_heads or dcp > 1:
        return None
    copies = tp // model.num_kv_heads
    return Hit(
        f"{model.num_kv_heads} key/value heads over {tp} ranks: every head is kept {copies} times, so the cache of one "
        f"rank is as large as with tensor_parallel_size {model.num_kv_heads}; only freed weights make room",
        f"decode_context_parallel_size up to {copies} divides the tokens instead",
    )


def _mla_replicated(planned: Planned) -> Hit | None:
    engine = planned.sized.engine
    if (
        not planned.problem.model.uses_mla
        or engine.tensor_parallel_size == 1
        or engine.decode_context_parallel_size > 1
    ):
        return None
    return Hit(
        f"the latent of an MLA model is the same on all {engine.tensor_parallel_size} ranks: tensor parallel does not "
        "divide the KV cache",
        "decode_context_parallel_size divides it by tokens; data_parallel_size serves more requests",
    )


def _gpu_count(planned: Planned) -> Hit | None:
    if planned.sized.checks["gpus"] is not False:
        return None
    engine, gpu = planned.sized.engine, planned.problem.gpu
    needed = planned.sized.world_size * engine.data_parallel_size
    return Hit(
        f"{needed} GPUs are needed (tensor {engine.tensor_parallel_size} x pipeline {engine.pipeline_parallel_size} x "
        f"data {engine.data_parallel_size}), {gpu.count} {'is' if gpu.count == 1 else 'are'} given",
        f"set gpu.count to {needed}, or lower the parallel sizes",
    )


def _gpus_unused(planned: Planned) -> Hit | None:
    used = planned.sized.world_size * planned.problem.replicas
    left = planned.problem.gpu.count - used
    if planned.problem.gpu.is_cpu or left < 1 or not planned.is_met:
        return None
    return Hit(
        f"{used} of {planned.problem.gpu.count} GPUs meet the target; {left} {'is' if left == 1 else 'are'} left over",
        "use them for replicas (see alternatives), or give fewer",
    )


def _shared_memory(planned: Planned) -> Hit | None:
    if planned.sized.engine.tensor_parallel_size == 1 or planned.problem.gpu.is_cpu:
        return None
    return Hit(
        "ranks exchange data through /dev/shm, which containers limit to 64 MB",
        "run the container with --ipc=host or --shm-size=16g, or a Memory emptyDir in Kubernetes",
    )


def _data_parallel(planned: Planned) -> Hit | None:
    replicas = planned.problem.replicas
    if replicas == 1:
        return None
    load = planned.problem.workload.workload.concurrency
    return Hit(
        f"all figures are per data-parallel engine: {replicas} engines share {load} requests, {planned.problem.target} "
        "each if the balancer spreads them evenly",
        "balance by requests in flight, not round robin: an uneven share preempts on one engine while another idles",
    )


def _pipeline_stages(planned: Planned) -> Hit | None:
    stages = planned.sized.engine.pipeline_parallel_size
    if stages == 1:
        return None
    return Hit(
        f"{stages} pipeline stages: the stage with most bytes per block and least room decides the blocks of all, and "
        "one request passes the stages one after the other",
        "choose tensor parallel where the model divides",
    )


INPUTS = (
    InputRule(
        code="tp-tower",
        severity="error",
        check=_tower,
        consequence="invalid",
        source="vLLM distributed/utils.py: divide",
    ),
    InputRule(
        code="pp-architecture",
        severity="error",
        check=_stages_refused,
        consequence="invalid",
        source="vLLM config/model.py: verify_with_parallel_config; model_executor/models: SupportsPP",
    ),
    InputRule(code="ray-gpu-share", severity="warning", check=_ray_share, source="vllm#4242, ray#59064, vllm#1821"),
    _divides("tp-heads"),
    _divides("tp-kv-heads"),
    _divides("tp-mlp"),
    _divides("tp-experts"),
    _divides("tp-vocab"),
    _divides("tp-quant-group"),
    _divides("tp-state"),
)
PLANS = (
    PlanRule(
        code="gpu-count",
        severity="error",
        check=_gpu_count,
        consequence="does_not_fit",
        source="vLLM config/parallel.py: world size",
    ),
    PlanRule(
        code="tp-fp8-block",
        severity="warning",
        check=_fp8_experts,
        source="vLLM model_executor/layers/quantization/utils/fp8_utils.py: validate_fp8_block_shape_moe",
    ),
    PlanRule(
        code="tp-kv-replicated",
        severity="warning",
        check=_kv_replicated,
        source="vLLM config/model.py: get_num_kv_heads; vllm#21348",
    ),
    PlanRule(
        code="mla-kv-replicated",
        severity="note",
        check=_mla_replicated,
        source="vLLM v1/kv_cache_interface.py: MLAAttentionSpec",
    ),
    PlanRule(code="gpus-unused", severity="note", check=_gpus_unused, source="plan"),
    PlanRule(
        code="container-shm",
        severity="note",
        check=_shared_memory,
        source="production-stack#276, vllm#1710",
    ),
    PlanRule(code="data-parallel-share", severity="note", check=_data_parallel, source="vLLM v1/engine/coordinator.py"),
    PlanRule(code="pipeline-stages", severity="note", check=_pipeline_stages, source="vLLM distributed/utils.py"),
)
