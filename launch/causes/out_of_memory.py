"""Out of memory, by where: loading, profiling, sampler warm-up, the KV tensors, graph capture, under load.

Each place has its own lever; gpu_memory_utilization is one only from the KV tensors on, because before them nothing
depends on it.
"""

from __future__ import annotations

import re

from advisor.units import GIB
from launch.causes import oom_early, oom_late
from launch.diagnosis_types import Advice, Rule, Seen
from launch.levers import gib
from launch.log_lines import LogLine
from launch.oom import OutOfMemory, frames_above, read_oom, stage_of
from launch.progress import Phase

_OTHER_BYTES = GIB


def _any(seen: Seen) -> Advice | None:
    """One out-of-memory line: where it happened decides who answers."""
    if seen.line.text.lstrip().startswith(("#", "raise ")) or seen.line.level in ("INFO", "DEBUG"):
        return None
    frames = frames_above(seen.case.lines, seen.index)
    stage = stage_of(frames, seen.phase)
    says = read_oom(seen.line.text)
    answers = {
        "loading": oom_early.loading,
        "profiling": oom_early.profiling,
        "encoder": oom_early.encoder,
        "sampler": oom_early.sampler,
        "kv": oom_late.kv_tensors,
        "graphs": oom_late.graphs,
        "warm-up": oom_late.graphs,
        "logprobs": oom_late.logprobs,
        "running": oom_late.running,
    }
    advice = answers[stage](seen.case, says)
    signals = (*advice.signals, f"traceback: {frames[-1]}" if frames else f"phase: {seen.phase.name.lower()}")
    return Advice(
        code=advice.code,
        message=_with_sizes(advice.message, says),
        remedy=advice.remedy + _others(says),
        change=advice.change,
        environment=advice.environment,
        confidence=advice.confidence if frames or says.wanted_bytes is not None else "medium",
        signals=signals,
        not_seen=advice.not_seen if says.wanted_bytes is not None else (*advice.not_seen, "how much was wanted"),
    )


def _with_sizes(message: str, says: OutOfMemory) -> str:
    if says.wanted_bytes is None:
        return message
    free = f", {gib(says.free_bytes)} free" if says.free_bytes is not None else ""
    total = f" of {gib(says.total_bytes)}" if says.total_bytes is not None else ""
    return f"{message}: {gib(says.wanted_bytes)} wanted{free}{total}"


def _others(says: OutOfMemory) -> str:
    held = [(pid, size) for pid, size in says.others if size >= _OTHER_BYTES]
    if not held:
        return ""
    named = ", ".join(f"process {pid} with {gib(size)}" for pid, size in held)
    return f"; also on this GPU: {named}"


def _warm_up(seen: Seen) -> Advice:
    """vLLM's own sentence, which says how many requests; torch's sizes stand above it."""
    above = (line for line in reversed(seen.case.lines[max(0, seen.index - 400) : seen.index]))
    says = next((read for read in map(_sized, above) if read is not None), OutOfMemory())
    if says.wanted_bytes is None:
        below = seen.case.lines[seen.index : seen.index + 400]
        says = next((read for read in map(_sized, below) if read is not None), says)
    advice = oom_early.sampler_advice(seen.case, int(seen.match["rows"]), says)
    return Advice(
        message=_with_sizes(advice.message, says),
        remedy=advice.remedy,
        change=advice.change,
        signals=advice.signals,
    )


def _sized(line: LogLine) -> OutOfMemory | None:
    says = read_oom(line.text) if "allocate" in line.text else None
    return says if says is not None and says.wanted_bytes is not None else None


def _failed_to_load(seen: Seen) -> Advice:
    return oom_early.loading(seen.case, OutOfMemory())


def _host(seen: Seen) -> Advice:
    wanted = int(seen.match["bytes"])
    stated = seen.case.flag("kv_cache_memory_bytes")
    half = stated // 2 if isinstance(stated, int) and seen.phase >= Phase.PROFILING else None
    return Advice(
        message=f"the host's memory ran out: {gib(wanted)} wanted",
        remedy=f"set kv_cache_memory_bytes to {half}" if half else "give the process more memory",
        change={"kv_cache_memory_bytes": half} if half else None,
        confidence="medium",
        signals=("the CPU allocator's message",),
    )


_STAGES = (
    *("oom-loading", "oom-profiling", "oom-encoder", "sampler-warmup", "oom-kv-cache", "oom-graphs"),
    *("oom-prompt-logprobs", "oom-fragmented", "oom-running"),
)


RULES: tuple[Rule, ...] = (
    Rule(
        codes=("sampler-warmup",),
        hint="dummy requests",
        pattern=re.compile(
            r"out of memory occurred when warming up (?:sampler|pooler)(?: \([^)]{1,60}\))? with (?P<rows>\d+) "
            r"dummy requests"
        ),
        explain=_warm_up,
        source="vLLM v1/worker/gpu_model_runner.py: _dummy_sampler_run; vllm#33920, vllm#29049",
        hides=_STAGES,
        rank=10,
    ),
    Rule(
        codes=("oom-loading",),
        hint="failed to load model - not enough",
        pattern=re.compile(r"Failed to load model - not enough GPU memory"),
        explain=_failed_to_load,
        source="vLLM v1/worker/gpu_model_runner.py: load_model; vllm#7721, vllm#40291",
        rank=19,
    ),
    Rule(
        codes=_STAGES,
        hint="out of memory",
        pattern=re.compile(
            r"(?:(?:CUDA|HIP|XPU|Cuda|hip)[\w ]{0,20}?'?out of memory|OutOfMemoryError: |: out of memory\b)"
            r"(?! occurred when warming)"
        ),
        explain=_any,
        source="torch c10/cuda/CUDACachingAllocator; vllm#7721, vllm#57475, vllm#27466",
        rank=20,
    ),
    Rule(
        codes=("oom-host",),
        hint="defaultcpuallocator",
        pattern=re.compile(
            r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory): "
            r"you tried to allocate (?P<bytes>\d+) bytes"
        ),
        explain=_host,
        source="torch c10/core/impl/alloc_cpu.cpp",
        rank=20,
    ),
)
