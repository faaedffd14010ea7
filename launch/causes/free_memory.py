"""What was free at the start: too little for the share asked, because of others, an orphan, or the share itself."""

from __future__ import annotations

import re

from advisor.units import GIB
from launch.diagnosis_types import Advice, Case, Rule, Seen, fixed
from launch.levers import free_share, from_gib, gib

_ENGINE_NAMES = ("VLLM::", "vllm", "EngineCore")
_LEAST_OF_ASKED = 0.5  # of the share asked; below it the model would hardly start, and others are the cause
_OTHERS_BYTES = 3 * GIB // 2  # more than a context, a desktop or WSL holds


def _too_little(seen: Seen) -> Advice:
    match, case = seen.match, seen.case
    free, total, asked = from_gib(float(match["free"])), from_gib(float(match["total"])), float(match["asked"])
    share = float(match["share"])
    message = (
        f"{gib(free)} of {gib(total)} are free on the GPU, and gpu_memory_utilization {share:g} asks for "
        f"{asked:.2f} GiB"
    )
    for look in (_orphan, _other_gpu):
        advice = look(case, message, from_gib(asked))
        if advice is not None:
            return advice
    lower = free_share(total, free) if total > 0 else None
    return _lower_share(case, message, lower, share, total - free)


def _orphan(case: Case, message: str, asked: int) -> Advice | None:
    """An engine that outlived its server still holds the memory (vllm#55510)."""
    del asked
    left = [holder for holder in case.context.others if holder.name.startswith(_ENGINE_NAMES)]
    if not left:
        return None
    held = ", ".join(f"pid {h.pid} ({h.name}) {gib(h.held_bytes)}" for h in left)
    return Advice(
        code="engine-on-gpu",
        message=f"{message}; another vLLM process holds the rest: {held}",
        remedy="if it is an orphan of an earlier start, end that process; if it serves, choose another GPU",
        signals=("free and total memory of the error", "processes on the device"),
    )


def _other_gpu(case: Case, message: str, asked: int) -> Advice | None:
    """Another GPU of this machine has room (vllm#20305)."""
    tp = case.flag("tensor_parallel_size")
    if isinstance(tp, int) and tp > 1:
        return None
    roomy = [(free, -i) for i, free in enumerate(case.context.all_free_bytes) if free >= asked]
    if not roomy:
        return None
    free, minus_index = max(roomy)
    return Advice(
        message=message,
        remedy=f"start it on GPU {-minus_index}, where {gib(free)} are free",
        environment={"CUDA_VISIBLE_DEVICES": str(-minus_index), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        signals=("free and total memory of the error", "free memory of every GPU"),
    )


def _lower_share(case: Case, message: str, lower: float | None, share: float, held: int) -> Advice:
    total = case.total_bytes or 0
    weights = case.context.weights_bytes
    holder = f"; others hold about {gib(held)}, which stopping them gives back" if held >= _OTHERS_BYTES else ""
    if lower is None or lower < _LEAST_OF_ASKED * share or (weights is not None and lower * total <= weights):
        needed = f" (the weights alone are {gib(weights)})" if weights is not None else ""
        return Advice(
            message=message,
            remedy=f"free the GPU or use another: what is left hardly starts this model{needed}{holder}",
            signals=("free and total memory of the error",),
        )
    return Advice(
        message=message,
        remedy=f"set gpu_memory_utilization to {lower}; do not raise it{holder}",
        change={"gpu_memory_utilization": lower},
        signals=("free and total memory of the error",),
        not_seen=() if case.context.others else ("which processes hold memory on the device",),
    )


RULES: tuple[Rule, ...] = (
    Rule(
        codes=("utilization-over-free", "engine-on-gpu"),
        hint="on startup is less than",
        pattern=re.compile(
            r"Free memory on device (?:\S+ )?\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than "
            r"(?:desired GPU memory utilization|the engine's budget after excluding external process's weights) "
            r"\((?P<share>[\d.]+), (?P<asked>[\d.]+) GiB\)"
        ),
        explain=_too_little,
        source="vLLM v1/worker/utils.py: request_memory; cognithor#318, vllm#55510",
        rank=15,
    ),
    Rule(
        codes=("weights-outside-budget",),
        hint="externally held weights",
        pattern=re.compile(
            r"Externally held weights on device \S+ \(([\d.]+)/([\d.]+) GiB\) exceed the desired GPU memory "
            r"utilization \(([\d.]+), ([\d.]+) GiB\)"
        ),
        explain=fixed(
            "weights held by another process take {1} GiB, and gpu_memory_utilization {3} is {4} GiB of {2} GiB",
            "raise gpu_memory_utilization above the weights' share, with room for the KV cache",
        ),
        source="vLLM v1/worker/utils.py: request_memory",
        rank=15,
    ),
)
