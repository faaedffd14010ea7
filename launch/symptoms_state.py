"""Symptoms of the server itself: started anew, frozen, short of memory, turning requests away, answering worse."""

from __future__ import annotations

from itertools import pairwise

from advisor.server_metrics import grew, restarted
from launch.diagnosis_types import Diagnosis
from launch.server_types import Answer, NotJudged, Reading

FROZEN_AFTER_S = 60.0
LEAST_FREE_BYTES = 512 * 1024**2
GROWTH_BYTES = 1024**3


def anew(r: Reading) -> Diagnosis | None:
    """Another process answers than before."""
    if not restarted(r.before, r.after):
        return None
    return Diagnosis(
        code="server-restarted",
        message="the server was started anew between the readings: nothing can be compared",
        remedy="read the log of the earlier process (kvadvise diagnose --log), then measure again",
        evidence="process start time or a counter that fell",
        signals=("process_start_time_seconds", "counters"),
    )


def dead(r: Reading) -> Answer:
    """The server answers for an engine that is gone (vLLM entrypoints/openai/api_server.py: /health gives 503)."""
    if r.facts.health_status is None:
        return NotJudged("engine-died", "an answer of /health")
    if r.facts.health_status != 503:
        return None
    return Diagnosis(
        code="engine-died",
        message="the engine behind the server is dead; every request fails until it is started anew",
        remedy="read its log for the cause (kvadvise diagnose --log), then start it again",
        evidence="/health answers 503",
        retry=True,
        signals=("/health",),
        not_seen=("why: only its log says",),
        source="vLLM v1/engine/exceptions.py: EngineDeadError",
    )


def frozen(r: Reading) -> Answer:
    """Requests run and no counter moves, whatever /health says."""
    if r.after.running is None:
        return NotJudged("engine-frozen", "vllm:num_requests_running")
    moved = [grew(r.before, r.after, name) for name in ("iterations", "generation_tokens", "prompt_tokens")]
    counted = [m for m in moved if m is not None]
    if not counted:
        return NotJudged("engine-frozen", "token and iteration counters")
    if min(r.known("running")) <= 0 or any(counted):
        return None
    if r.seconds is None or r.seconds < FROZEN_AFTER_S:
        return NotJudged("engine-frozen", f"{FROZEN_AFTER_S:.0f} s between the readings: no token came in this time")
    health = {True: "; /health still answers 200", False: "; /health fails too", None: ""}[r.facts.health_ok]
    return Diagnosis(
        code="engine-frozen",
        message=f"the engine hangs: requests run and no token has come{health}",
        remedy="keep the log and a stack dump (py-spy), restart the server, and let the probe watch "
        "vllm:iteration_tokens_total instead of /health",
        evidence=f"{r.after.running:.0f} running, counters unchanged for {r.seconds:.0f} s",
        signals=("running requests", "token and iteration counters"),
        not_seen=() if r.facts.health_ok is not None else ("/health",),
        source="vllm#39863, gonka#1421",
    )


def device_room(r: Reading) -> Answer:
    """How close the GPU came to its end."""
    free = r.facts.least_free_bytes
    if free is None:
        return NotJudged("gpu-memory-thin", "free memory of the GPU over time")
    if free >= LEAST_FREE_BYTES:
        return None
    return Diagnosis(
        code="gpu-memory-thin",
        severity="warning",
        message="the GPU came close to its end: one unusual request more and the engine dies",
        remedy="lower gpu_memory_utilization by 0.02, more for a mixture of experts",
        evidence=f"{free / 1024**2:.0f} MiB free at the least",
        signals=("free memory of the GPU",),
        source="vllm#27466",
    )


def host_memory(r: Reading) -> Answer:
    """Resident memory that only grows."""
    resident = r.known("resident_bytes")
    if len(resident) < 3:
        return NotJudged("host-memory-grows", "three readings of process_resident_memory_bytes")
    growth = resident[-1] - resident[0]
    if growth < GROWTH_BYTES or not all(b > a for a, b in pairwise(resident)):
        return None
    return Diagnosis(
        code="host-memory-grows",
        severity="warning",
        message="the server's host memory grows steadily: it will be killed by the host",
        remedy="limit concurrent image requests and the processor cache (mm_processor_cache_gb); watch it over hours",
        evidence=f"+{growth / 1024**3:.2f} GiB of {resident[0] / 1024**3:.2f} GiB",
        confidence="medium",
        signals=("resident memory over time",),
        not_seen=("memory of the engine's other processes",),
        source="vllm#35191",
    )


def rejections(r: Reading) -> Answer:
    """Requests turned away by the queue limit."""
    count = grew(r.before, r.after, "rejections")
    if count is None:
        return NotJudged("admission-rejected", "vllm:admission_rejections_total, from 0.29 on")
    if not count:
        return None
    return Diagnosis(
        code="admission-rejected",
        severity="note",
        message="the queue limit turned requests away with 503, as it should under more load than planned",
        remedy="let the client retry later, or add replicas",
        evidence=f"vllm:admission_rejections_total +{count:.0f}",
        signals=("rejections",),
    )


def quality(r: Reading) -> Answer:
    """Falling quality on long contexts: what of the settings can cause it."""
    if "quality-long-context" not in r.facts.symptoms:
        return NotJudged("quality-long-context", "to be asked for: it shows in no metric")
    dtype = r.facts.kv_cache_dtype or r.after.cache.get("cache_dtype")
    if dtype is not None and dtype not in ("auto", "bfloat16", "float16"):
        scales = {True: "calibrated", False: "uncalibrated (1.0)", None: "unknown"}[r.facts.kv_scales_calibrated]
        message = f"the KV cache is {dtype} with {scales} scales, which loses most on long contexts and MLA models"
        remedy = "compare answers at the load's p95 length with kv_cache_dtype auto before anything else"
        change: dict[str, object] | None = {"kv_cache_dtype": "auto"}
    elif r.facts.rope_overridden:
        message, change = "rope scaling was overridden: answers change with the length, short ones too", None
        remedy = "compare with the model's own length"
    else:
        message, change = (
            "the server's settings give no cause: the cache is 16 bit and the rope scaling the model's",
            None,
        )
        remedy = "look at the prompts: the template, truncation (truncate_prompt_tokens), what stands in the middle"
    return Diagnosis(
        code="quality-long-context",
        severity="warning",
        message=message,
        remedy=remedy,
        change=change,
        evidence=f"cache_dtype {dtype}" if dtype else "no cache dtype seen",
        confidence="medium",
        signals=("KV cache dtype", "rope override"),
        not_seen=tuple(
            n for n, v in (("KV cache dtype", dtype), ("rope override", r.facts.rope_overridden)) if v is None
        ),
        source="vllm#23813, vllm#38652",
    )
