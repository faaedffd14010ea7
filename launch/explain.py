"""Why a start failed, from all that is known of it: its log, how it ended, and what the launcher itself saw."""

from __future__ import annotations

import signal

import msgspec

from launch.diagnosis import EVIDENCE_LENGTH, diagnose
from launch.diagnosis_types import Context, Diagnosis, ExitState
from launch.log_lines import read_lines
from launch.ports import free_port_near
from launch.server import StartFailure

_NOTHING = Context()
_LOST = "Failed core proc(s): {}"
_RANKS = ("EngineCore", "Worker", "VllmWorker", "RayWorker")
_PORT_TAKEN = "port-in-use"
_SILENCE = "a process of the engine ended without an error of its own"


def explain(failure: StartFailure, context: Context = _NOTHING) -> list[Diagnosis]:
    """The findings, the cause first; never empty. What the launcher ended itself is its own finding, unless the log
    holds an error that explains it.
    """
    ended = failure.exit
    was_asked = failure.kind != "exited"
    code = -ended.signal if ended.signal is not None else ended.code
    state = ExitState(code=code, asked=was_asked, seconds=failure.elapsed_s)
    lines = failure.lines()
    found = diagnose(lines, state, context)
    if _is_unexplained(found) and not was_asked and _ended_without_a_word(lines):
        state = msgspec.structs.replace(state, code=-signal.SIGKILL)
        found = [_with_signal(finding, _SILENCE) for finding in diagnose(lines, state, context)]
    if not any(finding.severity == "error" for finding in found):
        evidence = next((line for line in reversed(lines) if not line.startswith("[kvadvise]")), "the log is empty")
        found = [_own(failure, evidence[:EVIDENCE_LENGTH]), *found]
    return [_with_port(finding, failure) for finding in found]


def _with_port(finding: Diagnosis, failure: StartFailure) -> Diagnosis:
    """Where a port is to blame: the next one that is free just now."""
    if finding.code != _PORT_TAKEN or finding.change is not None or failure.port is None:
        return finding
    other = free_port_near(failure.host, failure.port)
    if other is None:
        return finding
    remedy = f"set port to {other}, which is free, or stop what listens on {failure.port}"
    return msgspec.structs.replace(finding, remedy=remedy, change={"port": other})


def _is_unexplained(found: list[Diagnosis]) -> bool:
    return bool(found) and found[0].confidence == "low"


def _ended_without_a_word(lines: list[str]) -> bool:
    """Whether the server lost its engine and the engine had said nothing of an error: vLLM then names no process (its
    exit code is not there yet, 0.32 v1/engine/utils.py wait_for_engine_startup), and only SIGKILL leaves no trace.
    """
    parsed = read_lines(lines)
    has_lost = any(_LOST in line.text for line in parsed)
    has_spoken = any(
        (line.engine or line.process.startswith(_RANKS))
        and (line.level in ("ERROR", "CRITICAL") or line.text.startswith("Traceback"))
        for line in parsed
    )
    return has_lost and not has_spoken


def _with_signal(finding: Diagnosis, signal_text: str) -> Diagnosis:
    return msgspec.structs.replace(finding, signals=(*finding.signals, signal_text))


_REMEDIES = {
    "start-limit": "give it more time, or none: a start is given up anyway once nothing moves",
    "start-stalled": "see the last lines of its log; allow more time where a step is known to be slow",
    "wrong-server": "stop the other server or choose another port",
    "api-key": "set VLLM_API_KEY to the key that the server was started with",
    "no-completions": "kvadvise serves models that generate text; see what the server answers",
    "engine-ended": "see its log",
}
_MAY_WORK_NEXT_TIME = frozenset({"start-limit", "start-stalled"})


def _own(failure: StartFailure, evidence: str) -> Diagnosis:
    """What the launcher saw where the log tells nothing of an error."""
    return Diagnosis(
        code=failure.code,
        message=failure.text,
        remedy=_REMEDIES[failure.code],
        evidence=evidence,
        retry=failure.code in _MAY_WORK_NEXT_TIME,
        signals=(f"phase {failure.phase.name.lower()}", f"{failure.elapsed_s:.0f} s", str(failure.exit)),
        source="seen by the launcher",
    )
