"""How the engine ended: it gave up waiting, the host killed it, a worker died, or it is dead and does not say why."""

from __future__ import annotations

import re
import signal

import msgspec

from advisor.units import MIB
from launch.diagnosis_types import Advice, Case, Rule, Seen, StateRule
from launch.levers import from_gib, gib
from launch.progress import TEXT, Phase

_READY_TIMEOUT = "VLLM_ENGINE_READY_TIMEOUT_S"
_DEFAULT_TIMEOUT_S = 600
_CPU = "device_config=cpu"  # in the engine's config, before it has a pool
_NEAR = 0.05
_LONGER = 3
_NAMES = {int(s): s.name for s in signal.Signals}


def phase_words(case: Case) -> str:
    """How far a start had come, for a sentence."""
    return TEXT[case.phase]


def _timeout_s(case: Case) -> int:
    text = case.context.environment.get(_READY_TIMEOUT, "")
    return int(text) if text.isdigit() else _DEFAULT_TIMEOUT_S


def _timed_out(seen: Seen) -> Advice:
    waited = seen.match["s"]
    return _timeout_advice(seen.case, int(waited) if waited else None, ("the message",))


def _timeout_advice(case: Case, waited_s: int | None, signals: tuple[str, ...]) -> Advice:
    longer = _LONGER * max(waited_s or 0, _timeout_s(case))
    took = f" after {waited_s} s" if waited_s is not None else ""
    return Advice(
        code="ready-timeout",
        message=f"vLLM gave up waiting for its engine{took}; nothing crashed (phase: {phase_words(case)})",
        remedy=f"set {_READY_TIMEOUT}={longer}; kernels compiled meanwhile are kept, so the next start is quicker",
        environment={_READY_TIMEOUT: str(longer)},
        retry=True,
        signals=signals,
    )


def _empty_failure(seen: Seen) -> Advice | None:
    """`Failed core proc(s): {}` near the timeout is the timeout; elsewhere it only says that a cause stands above."""
    seconds, limit = seen.case.exit.seconds, _timeout_s(seen.case)
    if seconds is None or abs(seconds - limit) > _NEAR * limit:
        return None
    return _timeout_advice(
        seen.case, round(seconds), ("no process is named", f"{seconds:.0f} s of {limit} s had passed")
    )


def _worker_died(seen: Seen) -> Advice | None:
    code = seen.match["code"]
    if code is None:
        return _died_silently(seen)
    if code in ("None", "0"):
        return None
    return _ended_by(-int(code), seen.case) if int(code) < 0 else None


def _died_silently(seen: Seen) -> Advice | None:
    """Releases before the exit code was printed: a worker without an error of its own was killed from outside."""
    before = seen.case.lines[: seen.index]
    if any(line.level in ("ERROR", "CRITICAL") or line.text.startswith("Traceback") for line in before):
        return None
    return msgspec.structs.replace(
        _killed(seen.case),
        confidence="low",
        signals=("a worker that ended without an error of its own", "no out-of-memory text of the GPU"),
        not_seen=("its exit code, which this release does not print", "the kernel's own message (dmesg)"),
    )


def _failed_core(seen: Seen) -> Advice | None:
    return _ended_by(int(seen.match["code"]), seen.case)


def _ended_by(number: int, case: Case) -> Advice | None:
    """What a signal means: SIGKILL is the host's memory, SIGBUS shared memory, SIGILL a CPU too old."""
    name = _NAMES.get(number, f"signal {number}")
    if number == signal.SIGKILL:
        return _killed(case)
    if number == signal.SIGBUS:
        return Advice(
            code="container-shm",
            message="a process died of a bus error: shared memory is full or too small",
            remedy="run the container with --ipc=host or --shm-size=16g (Kubernetes: a Memory emptyDir at /dev/shm)",
            confidence="medium",
            signals=(name,),
        )
    if number == signal.SIGILL:
        return Advice(
            code="illegal-instruction",
            message="the build uses instructions that this CPU does not have (AVX2, AVX-512)",
            remedy="use a vLLM built for this CPU",
            signals=(name,),
        )
    if number == signal.SIGTERM:
        return _terminated(case)
    if number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE):
        return Advice(
            code="killed-by-signal",
            message=f"a process crashed with {name} while {phase_words(case)}",
            remedy="try enforce_eager and another attention backend to tell kernels apart; then another vLLM release",
            confidence="low",
            signals=(name,),
        )
    return None


def _killed(case: Case) -> Advice:
    limit, weights = case.context.memory_limit_bytes, case.context.weights_bytes
    room = f"; the limit is {gib(limit)}" if limit is not None else ""
    need = f" and the weights are {gib(weights)}" if weights is not None else ""
    half = _smaller_cpu_pool(case)
    return Advice(
        code="killed-by-host",
        message=f"the host killed it (SIGKILL) while {phase_words(case)}: its memory, not the GPU's, ran out"
        f"{room}{need}",
        remedy=(f"set kv_cache_memory_bytes to {half}, or " if half else "")
        + "give it more memory: the container's limit must hold the largest shard per rank, image processing and the "
        "page cache",
        change={"kv_cache_memory_bytes": half} if half else None,
        confidence="high" if limit is not None else "medium",
        signals=("SIGKILL that the launcher did not send", "no out-of-memory text of the GPU"),
        not_seen=() if limit is not None else ("the memory limit of the container",),
    )


def _smaller_cpu_pool(case: Case) -> int | None:
    """On the CPU the pool is the host's memory: the plan's, where it is smaller, else half of what was taken."""
    taken, stated = case.facts.cpu_kv_gib, case.flag("kv_cache_memory_bytes")
    if taken is None and case.facts.device != "CPU" and not any(_CPU in line.text for line in case.lines):
        return None
    pool = stated if isinstance(stated, int) else from_gib(taken.high) if taken is not None else None
    if pool is None:
        return None
    planned = case.context.planned_kv_bytes
    return planned if planned is not None and planned < 0.9 * pool else pool // 2 // MIB * MIB


def _terminated(case: Case) -> Advice:
    loading = case.phase < Phase.READY
    return Advice(
        code="stopped-while-loading" if loading else "stopped",
        message="somebody stopped it (SIGTERM) " + ("before it was ready" if loading else "while it served"),
        remedy="give the start-up probe more time than loading takes: failureThreshold x period at least twice the "
        "load time, liveness only after it"
        if loading
        else "see who sent it: an eviction, a liveness probe, a rollout",
        retry=True,
        confidence="medium",
        signals=("SIGTERM that the launcher did not send",),
    )


def _by_exit(case: Case) -> tuple[Advice, str, int | None] | None:
    number = case.exit.signal
    if number is None or case.exit.asked:
        return None
    advice = _ended_by(number, case)
    return None if advice is None else (advice, f"exit status {case.exit.code}", None)


def _command_missing(case: Case) -> tuple[Advice, str, int | None] | None:
    if case.exit.code != 127 or case.exit.asked:
        return None
    advice = Advice(
        message="the vLLM command was not found",
        remedy="name it with --engine or KVADVISE_ENGINE: a vllm command, or a python that has vLLM",
        signals=("exit status 127",),
    )
    return advice, "exit status 127", None


def _rpc_timeout(seen: Seen) -> Advice:
    return Advice(
        message=f"a worker did not answer {seen.match[1]} in time: it hangs, or a step takes longer than "
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
        remedy="look at that rank's log and GPU first; with first-time compilation raise "
        "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
        environment={"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "900"},
        retry=True,
        confidence="medium",
    )


def _stalled(seen: Seen) -> Advice | None:
    """Printed once a minute by a waiting reader: normal while loading or compiling, a hang after that."""
    if seen.phase is not Phase.READY:
        return None
    return Advice(
        message="the engine waits for a worker that does not answer: a hang, or one very long step",
        remedy="see whether tokens still come (generation_tokens_total); if not, restart it and keep the log",
        confidence="low",
        signals=("no shared memory broadcast block for a minute",),
        not_seen=("whether the token counters move",),
    )


RULES: tuple[Rule, ...] = (
    Rule(
        codes=("ready-timeout",),
        hint=("timed out waiting for", "did not receive response from front-end"),
        pattern=re.compile(
            r"Timed out waiting for (?:new )?engine core processes to start(?:.*?Waited (?P<s>\d+) ?s)?"
            r"|Did not receive response from front-end process within"
        ),
        explain=_timed_out,
        source="vLLM v1/engine/core_client.py; vllm#35616, vllm#48031",
        rank=30,
    ),
    Rule(
        codes=("ready-timeout",),
        hint="failed core proc",
        pattern=re.compile(r"Failed core proc\(s\): \{\}"),
        explain=_empty_failure,
        source="vLLM v1/engine/utils.py: wait_for_engine_startup; vllm#48031",
        rank=60,
    ),
    Rule(
        codes=("killed-by-host", "container-shm", "illegal-instruction", "killed-by-signal", "stopped-while-loading"),
        hint="failed core proc",
        pattern=re.compile(r"Failed core proc\(s\): \{[^}]*: -(?P<code>\d{1,2})\b"),
        explain=_failed_core,
        source="vLLM v1/engine/utils.py: wait_for_engine_startup",
        rank=40,
    ),
    Rule(
        codes=("killed-by-host", "container-shm", "illegal-instruction", "killed-by-signal"),
        hint="died unexpectedly",
        pattern=re.compile(r"Worker proc \S+ died unexpectedly(?: \(exit code: (?P<code>-?\d+|None)\)|, )"),
        explain=_worker_died,
        source="vLLM v1/executor/multiproc_executor.py",
        rank=40,
    ),
    Rule(
        codes=("killed-by-host",),
        hint=("out of memory: killed process", "oom-kill", "memory cgroup out of memory", "oomkilled"),
        pattern=re.compile(r"[Oo]ut of memory: Killed process|oom-kill:|OOMKilled"),
        explain=lambda seen: _killed(seen.case),
        source="Linux; vllm#35191",
        rank=8,
    ),
    Rule(
        codes=("execute-timeout",),
        hint="rpc call to",
        pattern=re.compile(r"RPC call to (\w+) timed out"),
        explain=_rpc_timeout,
        source="vLLM v1/executor/multiproc_executor.py",
        rank=30,
    ),
    Rule(
        codes=("hang",),
        hint="shared memory broadcast block",
        pattern=re.compile(r"No available shared memory broadcast block found"),
        explain=_stalled,
        severity="warning",
        source="vLLM distributed/device_communicators/shm_broadcast.py; vllm#39863",
        rank=70,
    ),
)

STATE_RULES: tuple[StateRule, ...] = (
    StateRule(
        codes=(
            *("killed-by-host", "container-shm", "illegal-instruction", "killed-by-signal"),
            *("stopped-while-loading", "stopped"),
        ),
        explain=_by_exit,
        source="the exit status; vllm#35191, kserve#5062",
        rank=45,
    ),
    StateRule(codes=("engine-missing",), explain=_command_missing, source="the exit status", rank=3),
)
