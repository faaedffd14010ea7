"""Why it did not start, or what is wrong with the server whose log this is: one table asked of every line.

Pure: the log's lines, the exit state and what is known beside them come in as values. The cause comes first; what only
follows from it (a dead engine, ranks that lost each other) is left out where a cause was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from launch.causes.ended import phase_words
from launch.diagnosis_rules import CONSEQUENCES, DIED, RULES, STATE_RULES, UNEXPLAINED
from launch.diagnosis_types import Advice, Case, Context, Diagnosis, ExitState, Rule, Seen, StateRule
from launch.log_lines import LogLine, read_lines, starts
from launch.progress import Phase, Progress, advance
from launch.startup_log import facts_of

EVIDENCE_LENGTH = 400

_HINTS_OF: tuple[tuple[str, ...], ...] = tuple(
    (rule.hint,) if isinstance(rule.hint, str) else rule.hint for rule in RULES
)
_ANY_HINT = re.compile("|".join(sorted({re.escape(hint) for hints in _HINTS_OF for hint in hints}, key=len)))
_SEVERITY = {"error": 0, "warning": 1, "note": 2}
_FRAME = re.compile(r"^\s*File \"[^\"]*\", line \d+, in ")
_EXCEPTION = re.compile(r"^(?:\s{0,4})((?:[A-Za-z_][\w.]{0,100})?(?:Error|Exception|Interrupt|Exit)): (.+)$")
_FATAL = re.compile(
    r"EngineCore failed to start|EngineCore encountered a fatal error|Engine core initialization failed"
    r"|WorkerProc failed to start|EngineDeadError"
)
_ASKED = re.compile(
    r"\[shutdown\] .*(?:trigger received|stopping engine client)|KeyboardInterrupt|Received SIG(?:TERM|INT)"
)
_NAMED_SECRET = re.compile(
    r"(\b(?:api[_-]key|hf[_-]token|vllm_api_key)\b['\"]?(?:\s*[:=]\s*|\s+))(?!None\b)(?:\[[^\]]{1,400}\]|'[^']{1,400}'"
    r"|\"[^\"]{1,400}\"|[^\s,}]{1,400})",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"(\bhf_|\bBearer )[\w.~+/-]{12,400}")
_STOPPED = ExitState()
_NOTHING = Context()


def diagnose(
    log_lines: Iterable[str], exit_state: ExitState = _STOPPED, context: Context = _NOTHING
) -> list[Diagnosis]:
    """Every finding of the last start in a log, the cause first; empty for a start that went well.

    A failure that no rule knows is one finding, `unexplained`, with the last exception as its evidence.
    """
    return judge(read_case(log_lines, exit_state, context))


def read_case(log_lines: Iterable[str], exit_state: ExitState = _STOPPED, context: Context = _NOTHING) -> Case:
    """What the rules look at: the last start's lines, how far it had come at each, its figures."""
    attempts = list(starts(read_lines(log_lines))) or [()]
    last = attempts[-1]
    earlier = (*(tuple(read_lines(log)) for log in context.earlier), *(tuple(a) for a in attempts[:-1]))
    return Case(last, _phases(last), facts_of(last), exit_state, context, earlier)


def judge(case: Case) -> list[Diagnosis]:
    """The findings of a case, the cause first."""
    found = sorted([*_from_lines(case), *_from_state(case)], key=lambda item: item[0])
    hidden = {code for _, finding, hides in found for code in hides if code != finding.code}
    kept: dict[tuple[str, str], tuple[int, Diagnosis]] = {}
    for rank, finding, _ in found:
        if finding.code not in hidden:
            kept.setdefault(_key(finding), (rank, finding))
    if any(f.severity == "error" and f.code not in CONSEQUENCES for _, f in kept.values()):
        kept = {key: (rank, f) for key, (rank, f) in kept.items() if f.code not in CONSEQUENCES}
    if not any(f.severity == "error" for _, f in kept.values()) and _has_failed(case):
        unknown = _unexplained(case)
        kept[_key(unknown)] = (0, unknown)
    ordered = sorted(kept.values(), key=lambda item: (_SEVERITY[item[1].severity], item[0], item[1].line or 0))
    return [finding for _, finding in ordered]


def _key(finding: Diagnosis) -> tuple[str, str]:
    """One finding a code; arguments are counted one by one."""
    return finding.code, ",".join(finding.change or ()) if finding.code.startswith(("unknown-", "argument-")) else ""


def _phases(lines: Sequence[LogLine]) -> list[Phase]:
    state, phases = Progress(), list[Phase]()
    for line in lines:
        state = advance(state, line)
        phases.append(state.phase)
    return phases


def _from_lines(case: Case) -> list[tuple[int, Diagnosis, tuple[str, ...]]]:
    found: list[tuple[int, Diagnosis, tuple[str, ...]]] = []
    done: set[int] = set()
    for index, line in enumerate(case.lines):
        text = line.text.lower()
        if _ANY_HINT.search(text) is None or _is_source(case.lines, index):
            continue
        for number, rule in enumerate(RULES):
            if number in done or not any(hint in text for hint in _HINTS_OF[number]):
                continue
            match = rule.pattern.search(line.text)
            advices = _asked(rule, Seen(case, match, index)) if match is not None else ()
            found += [(rule.rank, _finding(rule, advice, line), rule.hides) for advice in advices]
            if advices:
                done.add(number)
    return found


def _is_source(lines: Sequence[LogLine], index: int) -> bool:
    """Whether a line is the source text that a traceback shows under a frame: it names errors that did not happen."""
    text = lines[index].text
    if not text.startswith("    "):
        return False
    above = lines[index - 1].text if index else ""
    return text.strip().startswith(("raise ", "except ")) or _FRAME.search(above) is not None


def _asked(rule: Rule, seen: Seen) -> Sequence[Advice]:
    answer = rule.explain(seen)
    if answer is None:
        return ()
    return (answer,) if isinstance(answer, Advice) else answer


def _from_state(case: Case) -> list[tuple[int, Diagnosis, tuple[str, ...]]]:
    found: list[tuple[int, Diagnosis, tuple[str, ...]]] = []
    for rule in STATE_RULES:
        answer = rule.explain(case)
        if answer is not None:
            advice, evidence, number = answer
            found.append((rule.rank, _made(rule, advice, evidence, number), rule.hides))
    return found


def _finding(rule: Rule, advice: Advice, line: LogLine) -> Diagnosis:
    return _made(rule, advice, line.text.strip(), line.number)


def _made(rule: Rule | StateRule, advice: Advice, evidence: str, number: int | None) -> Diagnosis:
    return Diagnosis(
        code=advice.code or rule.codes[0],
        severity=advice.severity or rule.severity,
        message=advice.message,
        remedy=advice.remedy,
        evidence=without_secrets(evidence)[:EVIDENCE_LENGTH],
        line=number,
        change=advice.change,
        environment=advice.environment,
        retry=advice.retry,
        confidence=advice.confidence,
        signals=advice.signals or ("the line itself",),
        not_seen=advice.not_seen,
        source=rule.source,
    )


def without_secrets(text: str) -> str:
    """A line without keys and tokens, which releases before 0.2x print among the arguments."""
    return _TOKEN.sub(r"\1***", _NAMED_SECRET.sub(r"\1***", text))


def _has_failed(case: Case) -> bool:
    """Whether the start ended badly, by its exit or, where that is not known, by what the log ends with."""
    if case.exit.asked or any(
        _ASKED.search(line.text) for line in case.lines if "hutdown" in line.text or "SIG" in line.text
    ):
        return False
    if case.exit.code is not None:
        return case.exit.code != 0
    if any(_FATAL.search(line.text) for line in case.lines if line.level in ("ERROR", "CRITICAL", "")):
        return True
    last = next((line for line in reversed(case.lines) if line.text.strip()), None)
    return last is not None and case.phase is not Phase.READY and _EXCEPTION.match(last.text) is not None


def _unexplained(case: Case) -> Diagnosis:
    """The last exception that is not itself a consequence, or how far it came: never a guess."""
    said = [line for line in case.lines if line.level in ("ERROR", "CRITICAL", "") and _EXCEPTION.match(line.text)]
    causes = [line for line in said if not _FATAL.search(line.text)] or said
    line = causes[0] if causes else next((item for item in reversed(case.lines) if item.text.strip()), None)
    status = f" (exit status {case.exit.code})" if case.exit.code is not None else ""
    is_ready = case.phase is Phase.READY
    when = "died under load" if is_ready else f"stopped while {phase_words(case)}"
    return Diagnosis(
        code=DIED if is_ready else UNEXPLAINED,
        message=f"the engine {when}{status}, for a reason that no rule knows",
        remedy="read the evidence; start again with VLLM_LOGGING_LEVEL=DEBUG, and report the log",
        evidence=without_secrets(line.text.strip())[:EVIDENCE_LENGTH] if line is not None else "the log is empty",
        line=line.number if line is not None else None,
        retry=is_ready,
        confidence="low",
        signals=("the first exception",) if causes else ("how far it came", "how it ended"),
        not_seen=("a known error",),
    )
