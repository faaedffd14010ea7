"""The KV pool: too small for one request, nothing left for it, a neighbour or the graph estimate that took it."""

from __future__ import annotations

import math
import re

from advisor.units import GIB
from launch.diagnosis_types import Advice, Case, Rule, Seen, fixed
from launch.levers import (
    default_share,
    fewer_batched,
    from_gib,
    gib,
    higher_share,
    next_tp,
    to_block,
    within_blocks,
)

_ROOM_BYTES = GIB  # what a pool gets beyond what was missing, where one request's size is not known
_GRAPH_SHARE = 0.1  # more of the card than graphs ever take
_GRAPH_BYTES = 8 * GIB
_GREW_BYTES = GIB // 2
_LOW_SHARE = 0.85
_NO_GRAPH_ESTIMATE = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"
_SHARE_WITHOUT_ESTIMATE = 0.85


def _too_small(seen: Seen) -> Advice:
    """One request of max_model_len does not fit. vLLM's estimate is exact; without it, a share with a tenth off."""
    match, case = seen.match, seen.case
    length, needed, available = int(match["length"]), float(match["needed"]), float(match["available"])
    block = case.facts.attention_block_size or case.facts.block_size or case.flag("block_size")
    printed = match["estimate"]
    if printed is not None and int(printed) > 0:
        fits, sure = to_block(int(printed), block if isinstance(block, int) else None), True
    else:
        share = available / needed if needed else 0.0
        fits, sure = to_block(int(length * share * 0.9), block if isinstance(block, int) else None), False
    stated = case.flag("kv_cache_memory_bytes")
    source = f" (kv_cache_memory_bytes {stated})" if isinstance(stated, int) else ""
    message = (
        f"one request of max_model_len {length} needs {needed:.2f} GiB of KV cache, and there are {available:.2f} "
        f"GiB{source}"
    )
    wanted = case.context.longest_request_tokens
    if fits < 1 or (wanted is not None and wanted > fits):
        return _more_room(case, message, fits, from_gib(needed), from_gib(available))
    return Advice(
        message=message,
        remedy=f"set max_model_len to {fits}" + _other_ways(case, from_gib(needed), from_gib(available)),
        change={"max_model_len": fits},
        confidence="high" if sure else "medium",
        signals=("vLLM's own estimate",) if sure else ("ratio of the sizes, less a tenth: no estimate is printed",),
    )


def _other_ways(case: Case, needed: int, available: int) -> str:
    change = _room(case, needed, available)
    if change is None:
        return "; a smaller kv_cache_dtype or more GPUs hold the whole length"
    name, value = next(iter(change.items()))
    return f"; to keep the length, set {name} to {value}"


def _room(case: Case, needed: int, available: int) -> dict[str, int | float] | None:
    """What makes the pool large enough for a need: the bytes where they are stated, else the share of the card."""
    stated = case.flag("kv_cache_memory_bytes")
    if isinstance(stated, int):
        return {"kv_cache_memory_bytes": math.ceil(needed * 1.02 / 2**20 + 16) * 2**20}
    share, total = case.flag("gpu_memory_utilization") or default_share(case.version), case.total_bytes
    if not isinstance(share, int | float) or total is None or case.facts.device == "CPU":
        return None
    more = higher_share(share, total, needed - available + GIB // 32, case.context.free_bytes)
    return None if more is None else {"gpu_memory_utilization": more}


def _more_room(case: Case, message: str, fits: int, needed: int, available: int) -> Advice:
    """The load needs the length: only more room helps."""
    change = _room(case, needed, available)
    wanted = case.context.longest_request_tokens
    why = f"the load's longest request has {wanted} tokens and only {fits} fit" if fits else "not even one block fits"
    if change is None:
        larger = next_tp(case.flag("tensor_parallel_size"), case.context.allowed_tp, case.context.gpu_count)
        change = {"tensor_parallel_size": larger} if larger else None
    ways = "halve the cache with kv_cache_dtype fp8, quantise the weights, or use more GPUs"
    told = "".join(f"set {name} to {value}" for name, value in (change or {}).items()) or ways
    return Advice(
        message=f"{message}; {why}",
        remedy=told,
        change=change,
        confidence="medium",
        signals=("the error's sizes", "the load's longest request" if wanted else "vLLM's own estimate"),
    )


def _too_long_for_v0(seen: Seen) -> Advice:
    length, tokens = int(seen.match["length"]), int(seen.match["tokens"])
    fits = to_block(tokens, 16)
    return Advice(
        message=f"max_model_len {length} is more than the {tokens} tokens that the KV cache holds",
        remedy=f"set max_model_len to {fits}",
        change={"max_model_len": fits},
        signals=("the number of tokens that vLLM counted",),
    )


def _nothing_left(seen: Seen) -> Advice:
    """Weights, activations and graphs took the whole budget. Why decides the lever."""
    case = seen.case
    left = case.facts.available_kv_gib
    says = f"{left.low:.2f} GiB are left" if left is not None else "nothing is left"
    for look in (_neighbour, _graph_fault, _short_of_budget):
        advice = look(case, says)
        if advice is not None:
            return advice
    return _less_beside(case, says)


def _neighbour(case: Case, says: str) -> Advice | None:
    grew = case.context.others_grew_bytes
    if grew is None or grew < _GREW_BYTES:
        return None
    return Advice(
        code="neighbour-loading",
        message=f"another process took {gib(grew)} of the GPU while this one profiled it, and vLLM counts that as its "
        f"own: {says} for the KV cache",
        remedy="start again alone, once the other is ready and its memory stands still; utilisation is not the cause",
        retry=True,
        confidence="high",
        signals=("KV memory below zero or far below plan", "device use by other processes before and after"),
    )


def _graph_fault(case: Case, says: str) -> Advice | None:
    estimate, total = case.facts.graphs_estimated_gib, case.total_bytes
    if estimate is None:
        return None
    size = from_gib(estimate.high)
    if size <= _GRAPH_BYTES and (total is None or size <= _GRAPH_SHARE * total):
        return None
    share = case.flag("gpu_memory_utilization") or default_share(case.version)
    lower = min(share, _SHARE_WITHOUT_ESTIMATE) if isinstance(share, int | float) else _SHARE_WITHOUT_ESTIMATE
    return Advice(
        code="graph-estimate-fault",
        message=f"vLLM estimates {gib(size)} for CUDA graphs, which is the estimator's fault, and takes it from the "
        f"KV cache: {says}",
        remedy=f"set {_NO_GRAPH_ESTIMATE}=0 and leave room for the graphs with gpu_memory_utilization {lower}",
        change={"gpu_memory_utilization": lower},
        environment={_NO_GRAPH_ESTIMATE: "0"},
        signals=("the estimate printed", "the card's size" if total else "8 GiB"),
    )


def _short_of_budget(case: Case, says: str) -> Advice | None:
    """A larger share of the card cures it, where there is one."""
    share, total, left = case.flag("gpu_memory_utilization"), case.total_bytes, case.facts.available_kv_gib
    share = share if share is not None else default_share(case.version)
    if not isinstance(share, int | float) or total is None:
        return None
    weights, wanted = case.context.weights_bytes, case.context.planned_kv_bytes or _ROOM_BYTES
    if left is not None:
        missing = wanted - from_gib(left.low)
    elif weights is not None:
        missing = weights + _ROOM_BYTES + wanted - math.floor(share * total)
    else:
        return None
    more = higher_share(share, total, missing, case.context.free_bytes)
    if more is None:
        return None
    return Advice(
        message=f"weights and activations need more than gpu_memory_utilization {share} of the card: {says} for the "
        "KV cache",
        remedy=f"set gpu_memory_utilization to {more}; lowering it leaves still less",
        change={"gpu_memory_utilization": more},
        confidence="medium",
        signals=("KV memory printed" if left is not None else "weights", "the card's size"),
    )


def _less_beside(case: Case, says: str) -> Advice:
    """No share is left: what stands beside the pool has to shrink."""
    seqs = case.flag("max_num_seqs")
    half = fewer_batched(case.flag("max_num_batched_tokens"), seqs if isinstance(seqs, int) else None)
    peak, left = case.facts.torch_peak_gib or case.facts.activation_gib, case.facts.available_kv_gib
    helps = peak is None or left is None or peak.high / 2 > -left.low
    larger = next_tp(case.flag("tensor_parallel_size"), case.context.allowed_tp, case.context.gpu_count)
    message = f"weights, activations and graphs fill the whole budget: {says} for the KV cache"
    share = case.flag("gpu_memory_utilization")
    if isinstance(share, int | float) and share < _LOW_SHARE and case.total_bytes is None:
        return Advice(
            message=message,
            remedy=f"raise gpu_memory_utilization from {share:g}; if something else started on this GPU meanwhile, "
            "start again alone instead",
            confidence="medium",
            signals=("gpu_memory_utilization",),
            not_seen=("the card's size", "memory of other processes before and after"),
        )
    if half is not None and helps:
        return Advice(
            message=message,
            remedy=f"set max_num_batched_tokens to {half}: activations shrink with it; else more GPUs or a quantised "
            "checkpoint",
            change={"max_num_batched_tokens": half},
            confidence="medium" if peak is not None else "low",
            signals=("KV memory printed",) if left is not None else (),
            not_seen=() if peak is not None else ("the activation peak",),
        )
    return Advice(
        message=message,
        remedy=f"set tensor_parallel_size to {larger}"
        if larger
        else "use more GPUs, a quantised checkpoint or a smaller model",
        change={"tensor_parallel_size": larger} if larger else None,
        confidence="medium",
        not_seen=("the card's size",) if case.total_bytes is None else (),
    )


def _mamba_blocks(seen: Seen) -> Advice | None:
    asked, blocks = int(seen.match["seqs"]), int(seen.match["blocks"])
    fewer = within_blocks(blocks, seen.case.context.target_concurrency)
    message = f"max_num_seqs {asked} is more than the {blocks} Mamba state blocks: every sequence needs one"
    if fewer is None:
        return Advice(message=message, remedy="use more GPUs or a smaller max_model_len: no block is left")
    return Advice(
        message=message,
        remedy=f"set max_num_seqs to {fewer}; {blocks} itself is the edge, and LoRA or a longer max_model_len lowers "
        "it",
        change={"max_num_seqs": fewer},
        signals=("both numbers of the error",),
    )


RULES: tuple[Rule, ...] = (
    Rule(
        codes=("kv-pool-too-small",),
        hint="to serve at least one request",
        pattern=re.compile(
            r"To serve at least one request with the models?'s max seq len \((?P<length>\d+)\), \((?P<needed>[\d.]+) "
            r"GiB KV cache is needed, which is larger than the available KV cache memory \((?P<available>[\d.]+) GiB\)"
            r"(?:.{0,80}?estimated maximum model length is (?P<estimate>\d+))?"
        ),
        explain=_too_small,
        source="vLLM v1/core/kv_cache_utils.py: _check_enough_kv_cache_memory; vllm#29233",
        rank=20,
    ),
    Rule(
        codes=("kv-pool-too-small",),
        hint="that can be stored in kv cache",
        pattern=re.compile(
            r"max seq len \((?P<length>\d+)\) is larger than the maximum number of tokens that can be stored in KV "
            r"cache \((?P<tokens>\d+)\)"
        ),
        explain=_too_long_for_v0,
        source="vLLM worker/worker.py (V0): raise_if_cache_size_invalid; vllm#10517",
        rank=20,
    ),
    Rule(
        codes=("kv-no-memory", "neighbour-loading", "graph-estimate-fault"),
        hint="memory",
        pattern=re.compile(
            r"No available memory for the cache blocks|Cannot auto-fit max_model_len: not enough GPU memory"
        ),
        explain=_nothing_left,
        source="vLLM v1/core/kv_cache_utils.py; vllm#7028, vllm#55827, vllm#53013",
        rank=20,
    ),
    Rule(
        codes=("mamba-blocks",),
        hint="mamba cache blocks",
        pattern=re.compile(r"max_num_seqs \((?P<seqs>\d+)\) exceeds available Mamba cache blocks \((?P<blocks>\d+)\)"),
        explain=_mamba_blocks,
        source="vLLM config/compilation.py; recipes#551, kaito#2319",
        rank=20,
    ),
    Rule(
        codes=("neighbour-changed",),
        hint="error in memory profiling",
        pattern=re.compile(
            r"Error in memory profiling\. Initial free memory ([\d.]+) GiB, current free memory ([\d.]+)"
        ),
        explain=fixed(
            "another process gave memory back while vLLM profiled the GPU: {1} GiB were free, then {2} GiB",
            "start again alone, once nothing else starts or stops on this GPU",
            retry=True,
        ),
        source="vLLM utils/mem_utils.py: memory_profiling; vllm#10643",
        rank=20,
    ),
)
