"""Rules of memory: the share of the card, what is free, what lies outside the budget, what is left for the
pool."""

from __future__ import annotations

from advisor.ledger import MemoryLedger
from advisor.rules.table import Hit, InputRule, Planned, PlanRule
from advisor.sizing import Problem
from advisor.units import GIB, gib
from advisor.utilization import largest_utilization, proposed_utilization, smallest_utilization

_UNSAFE_SHARE = 0.95
_REFUSED_SHARE = 0.99
_LOAD_PEAK_SHARE = 0.85
_SHARED_SHARE = 0.9
_TIGHT_BYTES = GIB
_TIGHT_EXPERTS_SHARE = 0.3  # mixtures of experts over several ranks started only without graphs at 28 %
_ESTIMATE_SUSPECT_BYTES = 8 * GIB
_SAMPLER_BYTES = 12


def _pinned_share(problem: Problem) -> float | None:
    value = problem.pins.get("gpu_memory_utilization")
    return float(value) if isinstance(value, int | float) else None


def _share_refused(problem: Problem) -> Hit | None:
    share = _pinned_share(problem)
    if share is None or share < _REFUSED_SHARE or problem.gpu.is_cpu:
        return None
    left = problem.gpu.total_bytes.value * (1 - share)
    return Hit(
        f"gpu_memory_utilization {share:g} leaves {gib(left)} for the CUDA context, NCCL, graphs and fragments",
        "0.90 to 0.95 is safe",
    )


def _share_unsafe(problem: Problem) -> Hit | None:
    share = _pinned_share(problem)
    if share is None or not _UNSAFE_SHARE < share < _REFUSED_SHARE or problem.gpu.is_cpu:
        return None
    left = problem.gpu.total_bytes.value * (1 - share)
    return Hit(
        f"gpu_memory_utilization {share:g} leaves {gib(left)} of {gib(problem.gpu.total_bytes.value)} for the CUDA "
        "context, NCCL, workspaces and fragments",
        "0.90 to 0.95 is safe; an out-of-memory after hours is the usual price",
    )


def _free_short(planned: Planned) -> Hit | None:
    ledger = planned.sized.ledger
    if ledger.start_check is True:
        return None
    total, free = ledger.total_bytes, ledger.free_bytes
    share = planned.sized.engine.gpu_memory_utilization
    ceiling = largest_utilization(total.high, max(0, free.low))
    return Hit(
        f"vLLM demands {share:g} x {gib(total.value)} = {gib(ledger.budget_bytes.value)} free at start; "
        f"{gib(free.low)} {'is' if ledger.start_check is False else 'may be'} free",
        f"the largest share that starts is {ceiling:g}; take "
        f"{proposed_utilization(total.high, max(0, free.low)):g}, or free the card",
    )


def _weights_over(planned: Planned) -> Hit | None:
    ledger = planned.sized.ledger
    if ledger.weights_bytes.low <= ledger.total_bytes.high:
        return None
    model = planned.problem.model
    experts = f" (all {model.num_experts} experts are loaded, however few are active)" if model.num_experts else ""
    return Hit(
        f"the weights of one rank are {gib(ledger.weights_bytes.value)}{experts}; the device has "
        f"{gib(ledger.total_bytes.value)}",
        "more tensor parallel, a quantised checkpoint or a larger GPU; the share of the card has no influence",
    )


def _no_room(planned: Planned) -> Hit | None:
    sized = planned.sized
    if sized.pool_low.starts or sized.pool_low.mamba_blocks_exceeded or planned.problem.gpu.is_cpu:
        return None
    pool, ledger = sized.pool_low, sized.ledger
    has = "has" if not sized.pool_high.starts else "may have only"
    text = (
        f"one request of max_model_len {sized.engine.max_model_len} needs {gib(pool.needed_bytes)}; the pool {has} "
        f"{gib(max(0, pool.available_bytes))}, enough for {pool.estimated_max_model_len} tokens"
    )
    return Hit(text, _smallest_share(ledger, pool.needed_bytes + pool.bytes_per_block))


def _smallest_share(ledger: MemoryLedger, pool_bytes: int) -> str:
    """The smallest share that starts: budget taken at its worst, plus one request and the block kept back."""
    taken = ledger.budget_bytes.high - ledger.kv_cache_bytes.low
    needed = smallest_utilization(ledger.total_bytes.low, taken + pool_bytes)
    if needed is None or needed > _UNSAFE_SHARE:
        return "no safe share of this card holds it: shorten max_model_len, or see the alternatives"
    return f"gpu_memory_utilization {needed:g} or more holds it; below weights and overhead nothing is left"


def _outside_short(planned: Planned) -> Hit | None:
    ledger = planned.sized.ledger
    if ledger.outside_check is True:
        return None
    need = ledger.outside_budget_bytes
    certain = "do not fit" if ledger.outside_check is False else "may not fit"
    total = ledger.total_bytes
    return Hit(
        f"{gib(need.value)} ({gib(need.low)} to {gib(need.high)}) for the CUDA context, graphs and workspaces "
        f"{certain} in the {gib(ledger.outside_room_bytes)} outside the budget",
        "lower gpu_memory_utilization to "
        f"{largest_utilization(total.low, max(0, total.low - need.high)):g}, or max_num_seqs",
    )


def _graphs_outside(planned: Planned) -> Hit | None:
    ledger = planned.sized.ledger
    if ledger.cuda_graphs_in_budget or ledger.cuda_graph_bytes.high == 0:
        return None
    graphs = ledger.cuda_graph_bytes
    return Hit(
        f"vLLM {planned.problem.version} captures CUDA graphs ({gib(graphs.low)} to {gib(graphs.high)}) after the pool "
        "is allocated, outside gpu_memory_utilization",
        "the plan keeps that much free; from 0.21 the budget holds them",
    )


def _graph_estimate(planned: Planned) -> Hit | None:
    problem, ledger = planned.problem, planned.sized.ledger
    if not problem.model.is_hybrid or problem.version < (0, 26) or not ledger.cuda_graphs_in_budget:
        return None
    return Hit(
        "on hybrid models since 0.26 vLLM charges a transient of the profile run as graph memory, up to "
        f"{gib(ledger.cuda_graph_bytes.high)} here: the pool may come out 18 to 24 % smaller",
        "compare the pool after the start with the plan; VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 takes the estimate "
        "out, with a lower share to make up for it",
    )


def _tight(planned: Planned) -> Hit | None:
    ledger = planned.sized.ledger
    left = ledger.budget_bytes.value - ledger.weights_bytes.value - ledger.non_torch_bytes.value
    rest = left - ledger.activation_bytes.value - ledger.cuda_graph_bytes.value
    engine = planned.sized.engine
    spread = planned.problem.model.num_experts and engine.tensor_parallel_size > 1
    tight = rest < _TIGHT_BYTES or (spread and left < _TIGHT_EXPERTS_SHARE * ledger.budget_bytes.value)
    if planned.problem.gpu.is_cpu or engine.enforce_eager or not tight or left < 0:
        return None
    return Hit(
        f"weights leave {gib(left)} of the budget, and overhead {gib(max(0, rest))} of that: tight",
        "before enforce_eager, which costs speed, try fewer max_num_seqs and a smaller max_cudagraph_capture_size; or "
        "more tensor parallel",
    )


def _load_peak(planned: Planned) -> Hit | None:
    ledger = planned.sized.ledger
    if planned.problem.gpu.is_cpu or ledger.weights_bytes.value <= _LOAD_PEAK_SHARE * ledger.total_bytes.value:
        return None
    return Hit(
        f"the weights take {100 * ledger.weights_bytes.value / ledger.total_bytes.value:.0f} % of the device; "
        "repacking while loading needs some of them twice for a moment",
        "start on a clean GPU; an out-of-memory before `Model loading took` is this, and no share of the card cures it",
    )


def _sampler(planned: Planned) -> Hit | None:
    problem, engine = planned.problem, planned.sized.engine
    need = engine.max_num_seqs * problem.model.vocab_size * _SAMPLER_BYTES
    pinned = "max_num_seqs" in problem.pins and engine.max_num_seqs > 2 * problem.target
    if problem.gpu.is_cpu or not pinned or need < GIB // 4:
        return None
    return Hit(
        f"warming up the sampler with {engine.max_num_seqs} rows of {problem.model.vocab_size} may take {gib(need)} "
        "beside the pool",
        f"max_num_seqs {-(-problem.target // 8) * 8} is enough for {problem.target} requests at once",
    )


def _shared_gpu(planned: Planned) -> Hit | None:
    gpu = planned.problem.gpu
    if gpu.is_cpu or gpu.free_bytes.value >= _SHARED_SHARE * gpu.total_bytes.value:
        return None
    held = gpu.total_bytes.value - gpu.free_bytes.value
    kv = planned.sized
    wanted = _wanted_bytes(planned)
    return Hit(
        f"{gib(held)} of the card are held by others; gpu_memory_utilization is a share of the whole card, and a "
        "neighbour that loads during the start is charged to this engine",
        "start one engine at a time on a card, and wait until its memory is steady; "
        f"kv_cache_memory_bytes {wanted} would hold the target instead of {gib(kv.kv_bytes.value)}",
    )


def _wanted_bytes(planned: Planned) -> int:
    """Bytes for the target with its headroom, a shared prefix, one request of max_model_len and the block
    kept back."""
    sized = planned.sized
    longest = 1 + sized.layout.blocks_per_request(sized.engine.max_model_len)
    return max(planned.problem.blocks_needed(sized.requests), longest) * max(sized.layout.bytes_per_block)


def _unified(planned: Planned) -> Hit | None:
    gpu = planned.problem.gpu
    if gpu.is_cpu or not gpu.unified_memory:
        return None
    return Hit(
        f"{gpu.name} shares its memory with the host: what is free at start is what the host has available, page cache "
        "counted as free, and other processes take from the same memory",
        "leave more room than on a card of its own",
    )


def _slice(problem: Problem) -> Hit | None:
    if "mig" not in problem.gpu.name.lower().split() and "MIG " not in problem.gpu.device_name:
        return None
    return Hit(
        f"{problem.gpu.name} is a slice: NVML may report the whole card, and some vLLM releases cannot parse a MIG "
        "UUID",
        "select the slice through the container runtime, or by its index",
    )


INPUTS = (
    InputRule(
        code="utilization-refused",
        severity="error",
        check=_share_refused,
        consequence="does_not_fit",
        source="vllm#1298, vllm#10797",
    ),
    InputRule(code="utilization-unsafe", severity="warning", check=_share_unsafe, source="vllm#19186, vllm#57475"),
    InputRule(code="mig-slice", severity="warning", check=_slice, source="vllm#41848, vllm#41776"),
)
PLANS = (
    PlanRule(
        code="weights-over-device",
        severity="error",
        check=_weights_over,
        source="vLLM v1/worker/gpu_worker.py: load_model; vllm#12716",
    ),
    PlanRule(
        code="utilization-over-free",
        severity="error",
        check=_free_short,
        source="vLLM v1/worker/utils.py: request_memory; cognithor#318",
    ),
    PlanRule(
        code="kv-pool-too-small",
        severity="error",
        check=_no_room,
        source="vLLM v1/core/kv_cache_utils.py: _check_enough_kv_cache_memory; vllm#7028",
    ),
    PlanRule(code="outside-budget", severity="error", check=_outside_short, source="vllm#57475, vllm#33920"),
    PlanRule(code="graphs-outside-budget", severity="note", check=_graphs_outside, source="vLLM envs.py; vllm#7553"),
    PlanRule(code="graph-estimate-hybrid", severity="note", check=_graph_estimate, source="vllm#50780"),
    PlanRule(code="room-tight", severity="warning", check=_tight, source="vllm#17327"),
    PlanRule(code="load-peak", severity="warning", check=_load_peak, source="vllm#47851, vllm#29360"),
    PlanRule(code="sampler-warmup", severity="warning", check=_sampler, source="vllm#29049, vllm#15105"),
    PlanRule(code="gpu-shared", severity="warning", check=_shared_gpu, source="vllm#55827, gpustack#611"),
    PlanRule(code="memory-unified", severity="warning", check=_unified, source="vLLM v1/worker/utils.py"),
)
