"""Out of memory once the KV cache is sized: its tensors, graphs, under load. The share of the card is the lever."""

from __future__ import annotations

from advisor.units import GIB, MIB
from advisor.versions import Version
from launch.diagnosis_types import Advice, Case
from launch.levers import default_share, gib, has_argument, lower_share
from launch.oom import OutOfMemory, read_oom

_GRAPHS_COUNTED = Version(0, 21, 0)
_UNCOUNTED_GRAPHS_BYTES = GIB  # the least they take where the profile does not count them
_FRAGMENTS_BYTES = GIB
_EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
_LEAST_CAPTURED = 8
_SPARE = 1.2  # requests of full length in the pool, below which it has nothing to give
_NO_ROOM = "use more GPUs, a smaller kv_cache_dtype or a quantised checkpoint: the KV cache is needed whole"


def kv_tensors(case: Case, says: OutOfMemory) -> Advice:
    """The pool itself does not fit: it was stated, or somebody else took memory in between."""
    if case.flag("num_gpu_blocks_override") is not None:
        return Advice(
            code="oom-kv-cache",
            message="memory ran out while the KV cache was allocated: num_gpu_blocks_override asks for more than fits",
            remedy="leave num_gpu_blocks_override out",
            change={"num_gpu_blocks_override": None},
        )
    stated = case.flag("kv_cache_memory_bytes")
    if isinstance(stated, int):
        fits = _fitting_pool(case, stated, says)
        return Advice(
            code="oom-kv-cache",
            message=f"memory ran out while the KV cache was allocated: kv_cache_memory_bytes {stated} does not fit "
            "beside the weights",
            remedy=f"set kv_cache_memory_bytes to {fits}",
            change={"kv_cache_memory_bytes": fits},
            confidence="medium",
            signals=("the bytes stated",),
        )
    return _by_share(case, says, "oom-kv-cache", "memory ran out while the KV cache was allocated", 0)


def _fitting_pool(case: Case, stated: int, says: OutOfMemory) -> int:
    free, weights = case.facts.free_at_start_gib, case.facts.weights_gib
    most = stated * 0.9
    if free is not None and weights is not None:
        most = min(most, (free.low - weights.high) * 0.9 * GIB)
    if says.short_bytes:
        most = min(most, stated - says.short_bytes * 1.1)
    return max(0, int(most) // MIB * MIB)


def graphs(case: Case, says: OutOfMemory) -> Advice:
    """Graphs come out of what the pool left. The share first; where the pool cannot shrink, fewer sizes; eager last."""
    release = case.version
    counted = case.facts.graphs_applied
    if counted is None:
        counted = release is not None and release >= _GRAPHS_COUNTED
    estimate = case.facts.graphs_estimated_gib
    if estimate is not None and estimate.high <= 0:  # counted as nothing (vllm#49224)
        counted = False
    reserve = 0 if counted else _UNCOUNTED_GRAPHS_BYTES
    what = "memory ran out while CUDA graphs were captured, after the KV cache was allocated"
    advice = _by_share(case, says, "oom-graphs", what, reserve)
    if _same_wanted(case, says):
        return _fewer_graphs(case, f"{what}, as with another gpu_memory_utilization before", "an earlier attempt")
    if advice.change is None and advice.remedy == _NO_ROOM:
        return _fewer_graphs(case, f"{what}, which is needed whole", "KV pool and concurrency printed")
    return advice


def _by_share(case: Case, says: OutOfMemory, code: str, what: str, reserve: int) -> Advice:
    """A smaller share of the card for weights and pool; no change where the pool could not pay for it."""
    share = case.flag("gpu_memory_utilization") or default_share(case.version)
    total = says.total_bytes or case.total_bytes
    if not isinstance(share, int | float) or total is None:
        return _blind(share, code, what)
    missing = (says.short_bytes or 0) + reserve
    stated = case.flag("kv_cache_memory_bytes")
    if isinstance(stated, int):
        less = max(0, stated - max(missing, stated // 10)) // MIB * MIB
        return Advice(
            code=code,
            message=what,
            remedy=f"set kv_cache_memory_bytes to {less}",
            change={"kv_cache_memory_bytes": less},
        )
    lower = lower_share(share, total, missing)
    if lower is None or not _pool_pays(case, (share - lower) * total):
        return Advice(code=code, message=what, remedy=_NO_ROOM, confidence="medium")
    return Advice(
        code=code,
        message=what,
        remedy=f"set gpu_memory_utilization to {lower}",
        change={"gpu_memory_utilization": lower},
        signals=("sizes of the message", "gpu_memory_utilization"),
    )


def _blind(share: object, code: str, what: str) -> Advice:
    """Two hundredths, where sizes are missing to compute it."""
    lower = round(share - 0.02, 2) if isinstance(share, int | float) and share > 0.03 else None
    return Advice(
        code=code,
        message=what,
        remedy=f"set gpu_memory_utilization to {lower}" if lower else "lower gpu_memory_utilization by 0.02",
        change={"gpu_memory_utilization": lower} if lower else None,
        confidence="medium",
        not_seen=("the card's size" if lower else "gpu_memory_utilization",),
    )


def _pool_pays(case: Case, less: float) -> bool:
    """Whether the pool still holds one request when it is smaller by so much; True where nothing tells."""
    pool, concurrency = case.facts.smallest_kv_gib, case.facts.concurrency
    if concurrency is None or concurrency.low <= 0:
        return True
    if pool is None:
        return concurrency.low >= _SPARE
    return pool * GIB - less > pool * GIB / concurrency.low


def _fewer_graphs(case: Case, what: str, signal: str) -> Advice:
    seqs = case.flag("max_num_seqs")
    largest = case.flag("max_cudagraph_capture_size")
    if not isinstance(largest, int):
        largest = min(2 * seqs, 512) if isinstance(seqs, int) else 512
    half = largest // 2
    if half >= _LEAST_CAPTURED and has_argument("max_cudagraph_capture_size", case.version):
        change: dict[str, object] = {"max_cudagraph_capture_size": half}
        told = f"set max_cudagraph_capture_size to {half}; eager mode (enforce_eager) only after that"
    elif isinstance(seqs, int) and seqs >= 2 * _LEAST_CAPTURED:
        change, told = {"max_num_seqs": seqs // 2}, f"set max_num_seqs to {seqs // 2}: fewer graph sizes follow from it"
    else:
        change, told = {"enforce_eager": True}, "set enforce_eager: nothing else is left to make smaller"
    return Advice(
        code="oom-graphs",
        message=what,
        remedy=told,
        change=change,
        confidence="medium",
        signals=(signal,),
    )


def logprobs(case: Case, says: OutOfMemory) -> Advice:
    """Logprobs of a prompt, which no profile run covers (vllm#5907)."""
    advice = _by_share(case, says, "oom-prompt-logprobs", "memory ran out computing logprobs of a whole prompt", 0)
    return Advice(
        code="oom-prompt-logprobs",
        message=advice.message + ": the profile run does not count them",
        remedy=f"refuse prompt_logprobs at the gateway, or {advice.remedy}",
        change=advice.change,
        signals=advice.signals,
    )


def running(case: Case, says: OutOfMemory) -> Advice:
    """Under load. Memory that torch holds in pieces is cured by expandable segments and a little room, both."""
    if says.unallocated_bytes is not None and says.unallocated_bytes > _FRAGMENTS_BYTES:
        extra = 2 * GIB if case.context.is_moe else 0
        advice = _by_share(case, says, "oom-fragmented", "memory ran out under load", extra)
        share = case.flag("gpu_memory_utilization") or default_share(case.version)
        lower = _at_least(share, advice.change)
        return Advice(
            code="oom-fragmented",
            message=f"memory ran out under load while torch held {gib(says.unallocated_bytes)} in pieces it could not "
            "use",
            remedy="set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
            + (f" and gpu_memory_utilization {lower['gpu_memory_utilization']}" if lower else " and a lower share"),
            change=lower,
            environment=dict(_EXPANDABLE),
            signals=("memory reserved but unallocated",),
        )
    advice = _by_share(case, says, "oom-running", "memory ran out under load, after the start", 0)
    share = case.flag("gpu_memory_utilization") or default_share(case.version)
    lower = _at_least(share, advice.change)
    told = f"set gpu_memory_utilization to {lower['gpu_memory_utilization']}" if lower else advice.remedy
    return Advice(
        code="oom-running",
        message=advice.message,
        remedy=f"{told}; then see which requests need more than the profile run: long prompts with LoRA, images, "
        "logprobs, a popular expert",
        change=lower or advice.change,
        confidence="medium",
        signals=advice.signals,
        not_seen=advice.not_seen,
    )


def _at_least(share: object, change: dict[str, object] | None) -> dict[str, object] | None:
    """Two hundredths of the share at least: an OOM under load comes back after one."""
    lower = (change or {}).get("gpu_memory_utilization")
    if not isinstance(lower, int | float) or not isinstance(share, int | float):
        return None
    return {"gpu_memory_utilization": min(lower, max(0.01, round(share - 0.02, 2)))}


def _same_wanted(case: Case, says: OutOfMemory) -> bool:
    """Whether an earlier attempt wanted the very same piece: another share has not cured it then."""
    wanted = says.wanted_bytes
    texts = (line.text for lines in case.earlier for line in lines if "out of memory" in line.text)
    return wanted is not None and any(read_oom(text).wanted_bytes == wanted for text in texts)
