"""Out of memory before the KV cache exists: loading, profiling, sampler warm-up. No share of the card cures it."""

from __future__ import annotations

from launch.diagnosis_types import Advice, Case
from launch.levers import fewer_batched, fewer_seqs, gib, next_tp
from launch.oom import OutOfMemory, read_oom


def _signals(case: Case, says: OutOfMemory) -> tuple[str, ...]:
    same = ("an earlier attempt failed with the same sizes",) if same_before(case, says) else ()
    return ("no KV cache line before it", *same)


def loading(case: Case, says: OutOfMemory) -> Advice:
    """Weights and what repacking them takes: more ranks or smaller weights (vllm#7721, vllm#47851)."""
    larger = next_tp(case.flag("tensor_parallel_size"), case.context.allowed_tp, case.context.gpu_count)
    weights = case.context.weights_bytes
    size = f" ({gib(weights)} a rank)" if weights is not None else ""
    other = "a quantised checkpoint, or a newer vLLM where repacking is the peak"
    return Advice(
        code="oom-loading",
        message=f"memory ran out while the weights were loaded{size}; the KV cache takes none yet",
        remedy=f"set tensor_parallel_size to {larger}, or use {other}"
        if larger
        else f"use more GPUs (tensor_parallel_size), {other}, and an otherwise empty GPU",
        change={"tensor_parallel_size": larger} if larger else None,
        signals=_signals(case, says),
        not_seen=() if larger or case.context.gpu_count else ("how many GPUs there are",),
    )


def profiling(case: Case, says: OutOfMemory) -> Advice:
    """One full batch of max_num_batched_tokens: the activations are the lever."""
    seqs = case.flag("max_num_seqs")
    seqs = seqs if isinstance(seqs, int) else None
    half = fewer_batched(case.flag("max_num_batched_tokens"), seqs)
    larger = next_tp(case.flag("tensor_parallel_size"), case.context.allowed_tp, case.context.gpu_count)
    change = {"max_num_batched_tokens": half} if half else {"tensor_parallel_size": larger} if larger else None
    told = "".join(f"set {name} to {value}" for name, value in (change or {}).items())
    return Advice(
        code="oom-profiling",
        message="memory ran out while vLLM profiled one full batch, before the KV cache exists",
        remedy=(told or "set a smaller max_num_batched_tokens")
        + "; then multimodal limits (limit_mm_per_prompt), tensor_parallel_size, a quantised checkpoint",
        change=change,
        confidence="high" if change else "medium",
        signals=_signals(case, says),
        not_seen=() if half else ("max_num_batched_tokens",),
    )


def encoder(_case: Case, _says: OutOfMemory) -> Advice:
    """The largest image or video that a request may hold (vllm#18550)."""
    return Advice(
        code="oom-encoder",
        message="memory ran out while vLLM profiled the largest image or video a request may hold",
        remedy="limit what a request may hold: limit_mm_per_prompt (video 0 where it is not used) and max_pixels in "
        "mm_processor_kwargs; for text only, limit everything to 0",
    )


def sampler(case: Case, says: OutOfMemory) -> Advice:
    """The sampler outside vLLM's own sentence: the number of rows comes from the arguments."""
    return sampler_advice(case, case.flag("max_num_seqs"), says)


def sampler_advice(case: Case, rows: object, says: OutOfMemory) -> Advice:
    """The sampler sorts max_num_seqs rows of the whole vocabulary: fewer rows first, the share second."""
    asked = rows if isinstance(rows, int) else None
    fewer = fewer_seqs(asked, case.context.target_concurrency) if asked else None
    per_row = f" ({says.wanted_bytes // asked // 1024} KiB a row)" if asked and says.wanted_bytes else ""
    return Advice(
        code="sampler-warmup",
        message=f"memory ran out in the sampler's warm-up, which sorts the vocabulary for max_num_seqs "
        f"{asked or ''}".rstrip()
        + f" requests at once{per_row}",
        remedy=(f"set max_num_seqs to {fewer}" if fewer else "set a smaller max_num_seqs")
        + "; only if that is too few, lower gpu_memory_utilization",
        change={"max_num_seqs": fewer} if fewer else None,
        signals=("the number of dummy requests",) if asked else (),
        not_seen=() if asked else ("max_num_seqs",),
    )


def same_before(case: Case, says: OutOfMemory) -> bool:
    """Whether an earlier attempt with another share died of the very same sizes (vllm#7721)."""
    return any(
        _held(read_oom(line.text)) == _held(says)
        for lines in case.earlier
        for line in lines
        if says.wanted_bytes is not None and "out of memory" in line.text
    )


def _held(says: OutOfMemory) -> tuple[int | None, int | None]:
    return says.wanted_bytes, says.allocated_bytes
