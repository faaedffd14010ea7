"""Did the engine live through the run, did it run out of memory, and was the run played to its end?"""

from __future__ import annotations

import re
from itertools import pairwise

from advisor.server_metrics import ServerMetrics
from verify.judge.evidence import FAILURES, Evidence, fig, of
from verify.judge.thresholds import HANG_S
from verify.judge.types import Check
from verify.record.types import LogEvent

# How PyTorch, CUDA, HIP and the host's kernel word it; vLLM hands the text on in its error answers.
_OOM = re.compile(
    r"(?:CUDA|HIP|XPU)?\s*out of memory|OutOfMemory|CUBLAS_STATUS_ALLOC_FAILED|cannot allocate memory|oom-?kill"
    r"|DefaultCPUAllocator: (?:can't|not enough)",
    re.IGNORECASE,
)
_OOM_KINDS = ("killed-by-host", "sampler-warmup")
_DEAD_KINDS = ("engine_dead", "engine-dead")
_BROKEN = ("connect_error", "stream_error", "truncated", "http_5xx")
# What changes while an engine works; steps that only compute a prompt show in the pool alone.
_MOVES = (
    *("generation_tokens", "prompt_tokens", "iterations", "iteration_tokens", "requests_done", "preemptions"),
    *("kv_usage", "running", "waiting", "prefix_queries"),
)


def run_complete(e: Evidence) -> Check:
    """Every phase was played. Who was interrupted has measured nothing; who ran out of time, too little to pass."""
    ended, text = e.run.ended, e.run.ending_text
    ask = e.ask("run_complete", observed=ended, threshold="finished", is_validity=ended != "time_limit")
    if ended == "finished":
        return ask.passes("every phase was played")
    if ended in ("engine_lost", "hung"):
        return ask.does_not_apply("the engine ended the run: see engine_alive")
    why = {
        "time_limit": "the run reached its time limit",
        "interrupted": "the run was interrupted",
        "load_refused": "the server refused the load",
        "harness_error": "the run was ended by an error of kvadvise itself",
    }[ended]
    open_ = sum(1 for row in e.run.rows if row.outcome == "abandoned")
    still = f"; {of(open_, 'request')} still open" if open_ else ""
    remedy = "give it more --minutes or fewer --phases" if ended == "time_limit" else ""
    return ask.unknown(f"{why}{f' ({text})' if text else ''}{still}", remedy)


def engine_alive(e: Evidence) -> Check:
    """The engine was there to the end, and made tokens while it had requests."""
    run = e.run
    ask = e.ask("engine_alive", n=len(e.readings))
    remedy = "kvadvise diagnose --log names the cause from the engine's log"
    if run.ended == "engine_lost" or run.engine_exit is not None:
        exited = f"the engine's process ended: {run.engine_exit}" if run.engine_exit is not None else ""
        return ask.fails("; ".join(text for text in (run.ending_text, exited) if text) or "the engine is gone", remedy)
    if run.ended == "hung":
        return ask.fails(f"the engine hangs: {run.ending_text or 'no token came'}", _HANG_REMEDY)
    dead = _event(e, _DEAD_KINDS)
    if dead is not None:
        return ask.fails(f"the log says the engine died: {dead.message or dead.line}", dead.remedy or remedy)
    still = longest_standstill(e)
    if still is not None and still[0] >= HANG_S:
        return ask.fails(
            f"the engine hangs: no counter moved for {fig(still[0])} s with {still[1]}"
            + ("; /health still answers 200" if any(seen.is_healthy for seen in e.looks) else ""),
            _HANG_REMEDY,
        )
    if _is_unhealthy(e):
        return ask.fails("/health says the engine is not alive, again and again or at the last", remedy)
    last = e.looks[-1] if e.looks else None
    if last is None:
        return ask.unknown("nobody looked at the server during the run")
    if last.metrics is None and last.is_healthy is False:
        return ask.fails(f"the server did not answer at the end: {last.error or '/health is not 200'}", remedy)
    if last.metrics is None and last.is_healthy is None:
        return ask.unknown(f"the server could not be read at the end: {last.error or 'no metrics'}")
    if not e.readings:
        return ask.unknown("/health answers, and nothing tells whether tokens were made: there were no metrics")
    return ask.passes("the engine answered to the end and was never still with requests running")


_HANG_REMEDY = (
    "keep the log and a stack dump (py-spy), restart the server, and let its probe watch vllm:iteration_tokens_total "
    "instead of /health"
)


_UNHEALTHY_S = 10.0


def _is_unhealthy(e: Evidence) -> bool:
    """Whether /health was not 200 in the last two looks, or for ten seconds on end; vLLM says 503 there of a dead
    engine only. What was too slow to tell says nothing.
    """
    said = [
        (seen.at_s, seen.is_healthy) for seen in e.looks if seen.is_healthy is not None and seen.metrics is not None
    ]
    since: float | None = None
    for at_s, healthy in said:
        since = None if healthy else at_s if since is None else since
        if since is not None and at_s - since >= _UNHEALTHY_S:
            return True
    return len(said) > 1 and not any(healthy for _, healthy in said[-2:])


def longest_standstill(e: Evidence) -> tuple[float, str] | None:
    """How long nothing moved while requests ran or waited, and what there was to do; None where that is not told.

    An answer that came back is movement, too.
    """
    came = sorted(row.ended_s for row in e.run.rows if row.ended_s is not None and row.outcome == "ok")
    worst: tuple[float, str] | None = None
    since: float | None = None
    for (a, before), (b, after) in pairwise(e.readings):
        is_busy = bool((before.running or before.waiting) and (after.running or after.waiting))
        has_moved = _figures(before) != _figures(after) or any(a.at_s < t <= b.at_s for t in came)
        if not is_busy or has_moved:
            since = None
            continue
        since = a.at_s if since is None else since
        if worst is None or b.at_s - since > worst[0]:
            worst = (b.at_s - since, f"{after.running or 0:.0f} running and {after.waiting or 0:.0f} waiting")
    return worst


def _figures(m: ServerMetrics) -> tuple[object, ...]:
    return tuple(getattr(m, name) for name in _MOVES)


def no_oom(e: Evidence) -> Check:
    """Nobody ran out of memory: by the log where it is ours, else by an engine that lived and broke no answer."""
    ask = e.ask("no_oom")
    seen = [event for event in (e.run.log.events if e.run.log is not None else ()) if is_oom(event)]
    if seen:
        event = seen[0]
        at = f" at {fig(event.at_s)} s" if event.at_s is not None else ""
        return ask.fails(
            f"the engine ran out of memory{at}: {event.message or event.line}", event.remedy or _OOM_REMEDY
        )
    said = next((row for row in e.run.rows if row.error and _OOM.search(row.error)), None)
    if said is not None:
        return ask.fails(f"request {said.index} was answered with: {said.error}", _OOM_REMEDY)
    for text in (e.run.engine_exit, e.run.ending_text):
        if text and _OOM.search(text):
            return ask.fails(f"the engine ran out of memory: {text}", _OOM_REMEDY)
    has_log = e.run.log is not None and e.run.log.readable
    if has_log and e.run.ended not in ("engine_lost", "hung") and e.run.engine_exit is None:
        return ask.passes("no line of the engine's log tells of memory that ran out")
    if has_log:
        return ask.unknown("the engine ended, and its log does not say that memory ran out")
    broken = sum(1 for row in e.run.rows if row.outcome in _BROKEN)
    if broken or e.restart or engine_alive(e).status != "pass":
        why = "is not ours to read" if e.run.log is None else "could not be read to its end"
        return ask.unknown(f"the engine's log {why}, and it may have run out of memory: {_trouble(e, broken)}")
    return ask.passes("the engine lived and broke no answer, which it does not do without memory; its log is not ours")


_OOM_REMEDY = "lower gpu_memory_utilization by 0.02 or max_num_batched_tokens, then plan again"


def is_oom(event: LogEvent) -> bool:
    """Whether a line of the log is about memory that ran out."""
    return event.kind.startswith("oom") or event.kind in _OOM_KINDS


def _trouble(e: Evidence, broken: int) -> str:
    if broken:
        return f"{of(broken, 'answer')} broke off"
    return "it was started anew" if e.restart else "it did not answer to the end"


def _event(e: Evidence, kinds: tuple[str, ...]) -> LogEvent | None:
    events = e.run.log.events if e.run.log is not None else ()
    return next((event for event in events if event.kind in kinds), None)


def failed_by_class(e: Evidence) -> dict[str, int]:
    """Requests of each class of failure."""
    return {name: sum(1 for row in e.run.rows if row.outcome == name) for name in FAILURES}
