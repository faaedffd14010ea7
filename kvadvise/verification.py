"""What `verify` and `gate` share: the order from a profile, the log as evidence, reports, the exit code.

This is the one place that knows both a running engine and a verdict.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from advisor.errors import InvalidInput, KvadviseError

if TYPE_CHECKING:
    from advisor.plan_types import Plan
    from advisor.workload import WorkloadFile
    from kvadvise.workload_text import WorkloadText
    from launch.diagnosis_types import Context, ExitState
    from verify.judge.types import Verdict
    from verify.record.types import LogWatch, Run
    from verify.session import Order

API_KEY = ("KVADVISE_API_KEY", "VLLM_API_KEY")
Inconclusive = Literal["75", "pass", "fail"]
_URL = re.compile(r"^https?://[^/\s]+")
_DEAD = frozenset({"engine-died", "killed-by-signal", "illegal-memory-access", "execute-timeout", "hang"})
_KINDS = {"jit-during-inference": "jit", "killed-by-host": "oom"}


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile says and what follows from it."""

    text: WorkloadText
    workload: WorkloadFile
    plan: Plan
    config: dict[str, Any]


def subject_of(reference: str, settings: tuple[str, ...]) -> Subject:
    """A profile, a workload file or a saved plan, planned unless it has a plan.

    Raises InvalidInput and NotUnderstood: what cannot be planned cannot be judged either.
    """
    from kvadvise.located import located
    from kvadvise.pipeline import plan_or_refusal, plan_text, saved_plan
    from kvadvise.workload_edit import edited
    from kvadvise.workload_text import read_text

    text = read_text(reference)
    plan = None if settings else saved_plan(text)
    if settings:
        text = edited(text, settings, keep=False)
    if plan is None:
        plan = plan_or_refusal(text)
        if plan.outcome in ("invalid", "not_understood"):
            plan_text(text)  # raises what was wrong with it, where it was not a matter of a pin
            raise InvalidInput(next(f.message for f in plan.findings if f.severity == "error"), where=text.label)
    return _subject(text, located(plan, text.base_dir))


def planned_subject(reference: str, plan: Plan) -> Subject:
    """A workload file whose plan is known. Raises as `subject_of`."""
    from kvadvise.workload_text import read_text

    return _subject(read_text(reference), plan)


def _subject(text: WorkloadText, plan: Plan) -> Subject:
    from advisor.workload import WorkloadFile
    from advisor.workload_yaml import read_workload_bytes
    from kvadvise.sources import resolve_model

    if text.question.lstrip()[:1] == b"{" and plan.workload is not None:
        workload = msgspec.convert(plan.workload | {"file": text.label}, WorkloadFile)
    else:
        workload = read_workload_bytes(text.question, text.label)
    facts = resolve_model(workload.model, base_dir=text.base_dir, where=text.label)
    return Subject(text=text, workload=workload, plan=plan, config=facts.config)


def order_of(
    subject: Subject,
    *,
    url: str,
    model: str | None,
    phases: tuple[str, ...] = (),
    env: Mapping[str, str] = os.environ,
    **more: Any,
) -> Order:
    """The order for a session. Raises InvalidInput for an address or a phase that is none."""
    from kvadvise import __version__
    from verify.record.planned import planned_of
    from verify.session import Order
    from verify.vocabulary import vocabulary_of

    if not _URL.match(url):
        raise InvalidInput(f"{url!r} is no address", where="--url", hint="such as http://127.0.0.1:8000")
    return Order(
        workload=subject.workload,
        vocabulary=vocabulary_of(subject.config),
        planned=planned_of(subject.plan),
        url=url.rstrip("/").removesuffix("/v1"),
        model=model,
        kvadvise_version=__version__,
        base_dir=subject.text.base_dir,
        phases=_phases(phases),
        api_key=next((env[name] for name in API_KEY if env.get(name)), None),
        **more,
    )


def _phases(names: tuple[str, ...]) -> tuple[Any, ...] | None:
    from typing import get_args

    from verify.load.types import PhaseName

    wanted = tuple(name.strip().replace("-", "_") for part in names for name in part.split(",") if name.strip())
    known = get_args(PhaseName)
    for name in wanted:
        if name not in known:
            raise InvalidInput(f"there is no phase {name!r}", where="--phases", hint=f"one of {', '.join(known)}")
    return wanted or None


def log_probe(
    path: str, *, begin: int = 0, context: Context | None = None, exit_state: Callable[[], ExitState] | None = None
) -> Callable[[], LogWatch]:
    """A reader of an engine's log for verify: what is found in it after now, by diagnosis' own table.

    Raises InvalidInput where there is no such log.
    """
    from launch.diagnosis import diagnose
    from launch.diagnosis_types import Context, ExitState
    from launch.log_file import read_whole
    from verify.record.types import LogEvent, LogWatch

    if not os.access(path, os.R_OK):
        raise InvalidInput("cannot be read", where=f"--log {path}", hint="the log of the server under test")
    before = len(read_whole(path, begin=begin))

    def look() -> LogWatch:
        if not os.access(path, os.R_OK):
            return LogWatch(path=path, readable=False)
        lines = read_whole(path, begin=begin)
        state = exit_state() if exit_state is not None else ExitState()
        found = diagnose(lines, state, context if context is not None else Context())
        events = [
            LogEvent(kind=_kind(f.code), line=f.evidence, message=f.message, remedy=f.remedy)
            for f in found
            if f.severity != "note" and (f.line is None or f.line > before or len(lines) < before)
        ]
        return LogWatch(path=path, readable=True, events=tuple(events))

    return look


def _kind(code: str) -> str:
    if code.startswith("oom-"):
        return "oom"
    return "engine_dead" if code in _DEAD else _KINDS.get(code, code)


def forget_old_reports(out: Path) -> None:
    """Take away what an earlier run left in `out`, so that nobody reads its verdict as this one's.

    Raises InvalidInput where `out` cannot be made or written to.
    """
    from verify.reports.writer import FILES

    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (out / name).unlink(missing_ok=True)
        if not os.access(out, os.W_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise InvalidInput(
            f"cannot be written to: {error.strerror}", where=f"--out {out}", hint="name another directory"
        ) from error


def exit_code(verdict: Verdict, *, inconclusive: Inconclusive, interrupted: bool) -> int:
    """Contracts section 5; a check that could not be told never counts as passed unless the caller says so."""
    if interrupted:
        return 130
    if verdict.verdict == "inconclusive":
        return {"75": 75, "pass": 0, "fail": 1}[inconclusive]
    return 0 if verdict.verdict == "pass" else 1


def judged(run: Run, subject: Subject, out: Path, notes: Sequence[str] = ()) -> Verdict:
    """The verdict of a run, and every report of it in `out`; `notes` are what was seen beside the run."""
    from verify.judge.thresholds import thresholds_of
    from verify.judge.verdict import judge
    from verify.reports.writer import write_reports

    verdict = judge(run, thresholds_of(subject.workload))
    if notes:
        verdict = msgspec.structs.replace(verdict, notes=(*verdict.notes, *notes))
    write_reports(out, run, verdict, _secrets(os.environ))
    return verdict


def not_started(error: KvadviseError, code: str, subject: Subject, out: Path, evidence: str | None = None) -> Verdict:
    """The verdict where no load could be sent, with its reports in `out`."""
    import datetime

    from kvadvise import __version__
    from verify.judge.thresholds import thresholds_of
    from verify.judge.verdict import engine_did_not_start
    from verify.record.planned import planned_of
    from verify.reports.writer import write_reports

    verdict = engine_did_not_start(
        {"code": code, "message": error.what, "remedy": error.hint, "evidence": evidence},
        planned_of(subject.plan),
        thresholds_of(subject.workload),
        kvadvise_version=__version__,
        started_at=datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        workload_name=subject.workload.name,
    )
    write_reports(out, None, verdict, _secrets(os.environ))
    return verdict


def _secrets(env: Mapping[str, str]) -> list[str]:
    """What must be in no report, however it came there."""
    return [env[name] for name in (*API_KEY, "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") if env.get(name)]
