"""What a log says of a server that started: preemptions, compiles in between, requests it cannot hold, fallbacks."""

from __future__ import annotations

import re

from advisor.units import GIB
from launch.arguments_in_effect import differing_arguments
from launch.diagnosis_types import Advice, Case, Rule, Seen, StateRule, fixed
from launch.levers import default_share, free_share, from_gib, gib
from launch.progress import Phase

_STATS = re.compile(
    r"Running: (?P<running>\d+) reqs, (?:Swapped: \d+ reqs, )?(?:Waiting|Pending): (?P<waiting>\d+) reqs.*?"
    r"KV cache usage: (?P<usage>\d+(?:\.\d+)?)%"
)
_FULL_PERCENT, _FULL_LINES = 95.0, 3
_LARGE_BLOCK = 512
_USABLE_SHARE = 0.5
_FAR_BELOW_PLAN = 0.8
_GREW_BYTES = GIB // 2
_OVERESTIMATE_BYTES = 4 * GIB


def _preempted(seen: Seen) -> Advice:
    counts = [m for line in seen.case.lines if (m := _V0_COUNT.search(line.text)) is not None]
    total = max((int(m[1]) for m in counts), default=None)
    seqs, target = seen.case.flag("max_num_seqs"), seen.case.context.target_concurrency
    fewer = target if isinstance(seqs, int) and target is not None and target < seqs else None
    return Advice(
        message=f"{total if total is not None else 'some'} preemptions: more requests ran than the KV cache holds, and "
        "their work was done again",
        remedy=(f"set max_num_seqs to {fewer}, or " if fewer else "lower max_num_seqs, or ")
        + "give the cache more room; count them with vllm:num_preemptions_total, newer releases do not log them",
        change={"max_num_seqs": fewer} if fewer else None,
        signals=("the cumulative count",) if total is not None else ("the line itself",),
    )


_V0_COUNT = re.compile(r"total_num_cumulative_preemption=(\d+)|Preemptions: (?=\d)(\d+)")


def _image(seen: Seen) -> Advice:
    item, budget = int(seen.match[2]), int(seen.match[3])
    return Advice(
        message=f"a request's {seen.match[1]} takes {item} tokens and the encoder cache holds {budget}",
        remedy=f"shrink it below {budget} tokens (max_pixels in mm_processor_kwargs), or set max_num_batched_tokens to "
        f"{-(-item // 256) * 256}: the encoder cache follows it",
        change={"max_num_batched_tokens": -(-item // 256) * 256},
        confidence="medium",
        signals=("both numbers of the error",),
    )


def _sliding_as_full(seen: Seen) -> Advice:
    connector = seen.case.flag("kv_transfer_config")
    why = "a KV connector that cannot keep groups apart" if connector else "a flag or a connector"
    return Advice(
        message=f"sliding-window layers are kept at full length: the hybrid KV cache manager is off ({why})",
        remedy="take away what switches it off (disable_hybrid_kv_cache_manager, the connector), or plan all layers as "
        "full",
        change={"disable_hybrid_kv_cache_manager": None} if seen.case.flag("disable_hybrid_kv_cache_manager") else None,
        signals=("vLLM's own warning",),
    )


def _full(case: Case) -> tuple[Advice, str, int | None] | None:
    """Statistics lines with a full cache and requests waiting, one after the other."""
    full, last = 0, None
    for line in case.lines:
        match = _STATS.search(line.text) if "KV cache usage" in line.text else None
        if match is None:
            continue
        if float(match["usage"]) >= _FULL_PERCENT and int(match["waiting"]) > 0:
            full, last = full + 1, line
        elif full < _FULL_LINES:
            full = 0
    if full < _FULL_LINES or last is None:
        return None
    advice = Advice(
        message=f"the KV cache was full with requests waiting in {full} statistics lines: the load is more than it "
        "holds",
        remedy="read vllm:num_preemptions_total and the token rate over that time; then lower max_num_seqs or give the "
        "cache more room",
        confidence="medium",
        signals=("KV usage and waiting requests in the statistics lines",),
        not_seen=("preemptions: this vLLM does not log them",),
    )
    return advice, last.text, last.number


def _block_waste(case: Case) -> tuple[Advice, str, int | None] | None:
    """A hybrid model's attention block is as large as its state: short requests fill little of it (vllm#54458)."""
    block, tokens = case.facts.attention_block_size, case.context.p95_request_tokens
    if block is None or block < _LARGE_BLOCK or tokens is None:
        return None
    share = tokens / (-(-tokens // block) * block)
    if share >= _USABLE_SHARE:
        return None
    advice = Advice(
        message=f"a block holds {block} tokens and a p95 request {tokens}: {share:.0%} of what it takes is used",
        remedy=f"count capacity in blocks of {block}; the longer the requests, the less is lost",
        signals=("attention block size", "the load's p95 request"),
    )
    return advice, f"Setting attention block size to {block} tokens", None


def _estimate_too_high(case: Case) -> tuple[Advice, str, int | None] | None:
    estimated, actual = case.facts.graphs_estimated_gib, case.facts.graph_pool_gib
    if estimated is None or actual is None or case.facts.graphs_applied is False:
        return None
    over = from_gib(estimated.high - actual.low)
    if over < _OVERESTIMATE_BYTES:
        return None
    advice = Advice(
        message=f"vLLM kept {gib(over)} more for CUDA graphs than they took; the KV cache is smaller by that",
        remedy="set VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 and a gpu_memory_utilization that leaves graphs room",
        environment={"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"},
        confidence="medium",
        signals=("estimated and actual size",),
    )
    return advice, f"{actual.low} GiB (actual), {estimated.high} GiB (estimated)", None


def _no_estimate(case: Case) -> tuple[Advice, str, int | None] | None:
    estimated = case.facts.graphs_estimated_gib
    eager = case.flag("enforce_eager")
    if estimated is None or estimated.high > 0 or eager or case.phase is Phase.READY:
        return None
    share, total = case.flag("gpu_memory_utilization") or default_share(case.version), case.total_bytes
    lower = None
    if isinstance(share, int | float) and total is not None:
        lower = free_share(total, int(total * share) - GIB)
    advice = Advice(
        message="vLLM estimates nothing for CUDA graphs although it captures them: capture may run out of memory",
        remedy=f"set gpu_memory_utilization to {lower}" if lower else "leave 1 GiB beside gpu_memory_utilization",
        confidence="medium",
        signals=("an estimate of 0 with graphs on",),
    )
    return advice, f"Estimated CUDA graph memory: {estimated.high} GiB total", None


def _not_as_planned(case: Case) -> tuple[Advice, str, int | None] | None:
    """An image with defaults of its own serves something else than what was asked (worker-vllm#35)."""
    wrong = differing_arguments(case.context.flags, case.facts)
    if not wrong:
        return None
    told = ", ".join(f"{one.name} {one.actual} instead of {one.planned}" for one in wrong)
    advice = Advice(
        message=f"the engine runs with other arguments than given: {told}",
        remedy="look for an image or script that sets its own (environment variables of a worker image, a config file)",
        signals=("non-default args", "the arguments given"),
    )
    return advice, told, None


def _below_plan(case: Case) -> tuple[Advice, str, int | None] | None:
    """It started, with far less cache than planned, while a neighbour grew (vllm#55827)."""
    pool, planned, grew = case.facts.smallest_kv_gib, case.context.planned_kv_bytes, case.context.others_grew_bytes
    if pool is None or planned is None or grew is None or pool <= 0:
        return None
    if grew < _GREW_BYTES or from_gib(pool) >= _FAR_BELOW_PLAN * planned:
        return None
    advice = Advice(
        message=f"the KV cache got {pool:.2f} GiB of {gib(planned)} planned while another process took {gib(grew)} of "
        "the GPU: vLLM counted that as its own",
        remedy="start again alone, once the other is ready and its memory stands still",
        retry=True,
        signals=("KV memory far below plan", "device use by other processes before and after"),
    )
    return advice, f"Available KV cache memory: {pool} GiB", None


RULES: tuple[Rule, ...] = (
    Rule(
        codes=("preemptions",),
        hint=("is preempted by", "preemptions: "),
        pattern=re.compile(r"is preempted by (?:Preemption)?[Mm]ode\.?(?:RECOMPUTE|SWAP)|Preemptions: [1-9]\d*"),
        explain=_preempted,
        severity="warning",
        source="vLLM core/scheduler.py (V0), v1/metrics/loggers.py; vllm#42827",
        rank=70,
    ),
    Rule(
        codes=("jit-during-inference",),
        hint="during inference",
        pattern=re.compile(
            r"(\w+) (?:kernel )?(?:JIT compilation|autotun\w+|compile)[^:]{0,40} during inference: (\w+)"
        ),
        explain=fixed(
            "{1} compiled {2} while it served: the requests waiting for it were slow once",
            "warm up with the load's own shapes before measuring, and repeat what was measured meanwhile",
        ),
        severity="note",
        source="vLLM utils/jit_monitor.py; vllm#43009, vllm#39790",
        rank=80,
    ),
    Rule(
        codes=("image-over-budget",),
        hint="encoder cache size",
        pattern=re.compile(
            r"(?:contains a\(n\) |The )(\w+) item with (?:length )?(\d+)(?: embedding tokens)?, which exceeds the "
            r"pre-allocated encoder cache size (\d+)"
        ),
        explain=_image,
        severity="warning",
        source="vLLM v1/engine/input_processor.py; GLM-OCR#67",
        rank=60,
    ),
    Rule(
        codes=("nvfp4-fallback",),
        hint=("marlin' nvfp4", "marlin nvfp4", "native support for fp4"),
        pattern=re.compile(r"Using '?MARLIN'? NvFp4 MoE backend|does not have native support for FP4 computation"),
        explain=fixed(
            "the GPU has no FP4 kernels: NVFP4 weights run through Marlin, slower and with extra memory",
            "verify answers and latency before relying on it; a checkpoint in FP8 or INT4 is the safer choice",
        ),
        severity="warning",
        source="vLLM quantization/utils/marlin_utils_fp4.py; vllm#50925, vllm#49070",
        rank=75,
    ),
    Rule(
        codes=("sliding-as-full",),
        hint="hybrid kv cache manager is disabled",
        pattern=re.compile(r"Hybrid KV cache manager is disabled for this hybrid model"),
        explain=_sliding_as_full,
        severity="warning",
        source="vLLM v1/core/kv_cache_utils.py: unify_hybrid_kv_cache_specs",
        rank=75,
    ),
    Rule(
        codes=("swap-space",),
        hint="too large swap space",
        pattern=re.compile(r"Too large swap space\. ([\d.]+) GiB out of the ([\d.]+) GiB total CPU memory"),
        explain=fixed(
            "swap_space wants {1} GiB of {2} GiB host memory; nothing is swapped there since V1",
            "set swap_space to 0",
            change={"swap_space": 0},
        ),
        source="vLLM config/cache.py",
        rank=6,
    ),
)

STATE_RULES: tuple[StateRule, ...] = (
    StateRule(
        codes=("kv-full",),
        explain=_full,
        severity="warning",
        source="vLLM v1/metrics/loggers.py; vllm#25538",
        rank=70,
    ),
    StateRule(codes=("block-waste",), explain=_block_waste, severity="note", source="vllm#54458", rank=80),
    StateRule(
        codes=("graph-estimate-fault",),
        explain=_estimate_too_high,
        severity="warning",
        source="vllm#45178, vllm#50780",
        rank=75,
    ),
    StateRule(codes=("graph-estimate-zero",), explain=_no_estimate, severity="warning", source="vllm#49224", rank=75),
    StateRule(
        codes=("plan-not-applied",), explain=_not_as_planned, severity="warning", source="worker-vllm#35", rank=60
    ),
    StateRule(codes=("neighbour-loading",), explain=_below_plan, severity="warning", source="vllm#55827", rank=65),
)
