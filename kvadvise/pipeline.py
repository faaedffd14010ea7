"""From a workload to its plan: what is read, in which order, and what a file that cannot be planned becomes.

This is the only place that knows all the readers; `advisor` gets values and decides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from advisor.errors import EngineRefuses, InvalidInput, KvadviseError, NotUnderstood
from advisor.plan_types import PLAN_SCHEMA, Finding, Outcome, Plan
from advisor.problems import InvalidWorkload
from kvadvise import __version__
from kvadvise.identity import inputs_sha256, used_bytes
from kvadvise.workload_text import WorkloadText, read_text

if TYPE_CHECKING:
    from advisor.measured import Measurement
    from advisor.workload import WorkloadFile
    from kvadvise.measured_files import LookedUp


def plan(source: str | os.PathLike[str] | Mapping[str, Any]) -> Plan:
    """The plan of a workload file, a profile's name, or a mapping with the same keys.

    Raises InvalidInput for a workload that cannot be read and NotUnderstood for a model that nothing is
    known of; a plan that does not fit, or whose pins vLLM refuses, is a plan with that outcome.
    """
    return plan_text(_text_of(source))


def plan_text(text: WorkloadText) -> Plan:
    """The plan of a workload's text; raises like `plan`."""
    if _is_plan(text):
        raise InvalidInput(
            "this is a plan, not a workload", where=text.label, hint="give the workload file it was made from"
        )
    from advisor.workload_yaml import read_workload_bytes

    return plan_workload(read_workload_bytes(text.question, text.label), text)


def saved_plan(text: WorkloadText) -> Plan | None:
    """The plan that a text is, or that is saved in it; None where there is none, or where it is no workload.

    Raises InvalidInput for a plan that another release wrote in another form.
    """
    from advisor.workload_yaml import read_workload_bytes

    try:
        document = msgspec.json.decode(text.data) if _is_plan(text) else read_workload_bytes(text.data, text.label).plan
    except (InvalidWorkload, msgspec.DecodeError):
        return None
    if document is None:
        return None
    try:
        return msgspec.convert(document, Plan)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"its plan cannot be read: {error}", where=text.label, hint="plan it anew: `kvadvise plan ... --save`"
        ) from error


def plan_workload(workload: WorkloadFile, text: WorkloadText) -> Plan:
    """The plan of a workload that was read from `text`; raises like `plan`."""
    from advisor.plan import make_plan
    from kvadvise.constants import load_constants
    from kvadvise.gpus import resolve_gpu
    from kvadvise.sources import resolve_model

    _check_trace(workload, text)
    facts = resolve_model(workload.model, base_dir=text.base_dir, where=_place(workload, "model"))
    if workload.engine.get("lora_modules"):
        from kvadvise.adapters import with_adapters

        place = _place(workload, "engine")
        facts = with_adapters(facts, workload.engine["lora_modules"], base_dir=text.base_dir, where=place)
    gpu = resolve_gpu(workload.gpu, where=_place(workload, "gpu"))
    make = partial(make_plan, workload, facts, gpu, load_constants(), kvadvise_version=__version__)
    identify = partial(inputs_sha256, text.question, facts, gpu)
    plan, seen = _with_measured(make, identify)
    if plan.outcome == "does_not_fit":
        from kvadvise.neighbours import common_gpus, siblings

        make = partial(make, known_gpus=common_gpus(), siblings=siblings(facts))
        plan = make(inputs_sha256=plan.inputs_sha256, measured=_measurements(seen))
    unusable = [_unusable(one) for one in seen if one.measurement is None]
    if not unusable:
        return plan
    from advisor.rules.table import in_order

    return msgspec.structs.replace(plan, findings=in_order([*plan.findings, *unusable]))


def _with_measured(make: Callable[..., Plan], identify: Callable[..., str]) -> tuple[Plan, list[LookedUp]]:
    """The plan, and what was looked up for it: planned again with what starts of its key cost, and again where that
    moved it to another key, until its key is one that was looked up.
    """
    from kvadvise.measured_files import look_up, measured_dir

    directory, asked = measured_dir(os.environ), set[str]()
    seen: list[LookedUp] = []
    plan = make(inputs_sha256=identify())
    while directory is not None and plan.measured is not None and plan.measured.file not in asked:
        asked.add(plan.measured.file)
        found = look_up(directory, plan.measured.key)
        if found is None:
            break
        seen.append(found)
        identity = identify(measured=used_bytes((one.path.name, one.data) for one in seen))
        plan = make(inputs_sha256=identity, measured=_measurements(seen))
    return plan, seen


def _measurements(seen: Sequence[LookedUp]) -> list[Measurement]:
    return [one.measurement for one in seen if one.measurement is not None]


def _unusable(seen: LookedUp) -> Finding:
    return Finding(
        code="measurement-unusable",
        severity="warning",
        message=f"{seen.path} {seen.problem}: the plan makes no use of it",
        remedy="delete it; the next `kvadvise launch` or `calibrate` makes it anew",
        source="kvadvise's store of measured starts",
    )


def _check_trace(workload: WorkloadFile, text: WorkloadText) -> None:
    """verify replays the trace and a plan takes the percentiles, but a file that is not there is a slip here too.

    Raises InvalidInput for a trace that is no file.
    """
    trace = workload.workload.trace
    if trace is None or (text.base_dir / trace).is_file() or list((text.base_dir / trace).glob("*.csv")):
        return
    raise InvalidInput(
        f"there is no trace {trace!r} beside the workload", where=_place(workload, "workload.trace"),
        hint="paths start at the workload file's own directory",
    )  # fmt: skip


def _is_plan(text: WorkloadText) -> bool:
    return PLAN_SCHEMA.encode() in text.data[:200]


def _place(workload: WorkloadFile, key: str) -> str:
    """File, line and key of a top-level key, as messages name them."""
    line = workload.lines.get(key)
    return f"{workload.file}:{line}: {key}" if line else f"{workload.file}: {key}"


def plan_or_refusal(text: WorkloadText) -> Plan:
    """The plan of a workload's text, or a plan without numbers whose findings say why there are none.

    Raises only for what is no fault of the workload: an engine or a hub that is out of reach.
    """
    try:
        return plan_text(text)
    except KvadviseError as error:
        return refusal(error, text.question)


def refusal(error: KvadviseError, question: bytes = b"") -> Plan:
    """A plan of an input that cannot be planned; raises `error` again where it is not about the input."""
    outcomes: dict[int, Outcome] = {2: "invalid", 3: "not_understood"}
    if error.exit_code not in outcomes:
        raise error
    return Plan(
        kvadvise_version=__version__,
        inputs_sha256=inputs_sha256(question, None, None),
        outcome=outcomes[error.exit_code],
        starts=False if error.exit_code == 2 else None,
        findings=tuple(_findings(error)),
    )


def exit_code(plans: list[Plan]) -> int:
    """2 if any is invalid, else 3 if any does not fit or is not understood, else 0."""
    codes = {"fits": 0, "fits_with_loss": 0, "does_not_fit": 3, "not_understood": 3, "invalid": 2}
    met = {codes[plan.outcome] for plan in plans}
    return next((code for code in (2, 3) if code in met), 0)


def _text_of(source: str | os.PathLike[str] | Mapping[str, Any]) -> WorkloadText:
    if isinstance(source, Mapping):
        import yaml

        data = yaml.safe_dump(dict(source), sort_keys=False, allow_unicode=True).encode()
        return WorkloadText(data=data, label="workload", base_dir=Path.cwd())
    return read_text(os.fspath(source))


def _findings(error: KvadviseError) -> list[Finding]:
    if isinstance(error, InvalidWorkload):
        return [
            _finding("workload-invalid", f"{problem.where(error.file)}: {problem.message}", problem.expected)
            for problem in error.problems
        ]
    if isinstance(error, EngineRefuses):
        return [_finding(error.code, error.what, error.hint, error.source)]
    code = "model-not-understood" if isinstance(error, NotUnderstood) else "input-invalid"
    return [_finding(code, f"{error.where}: {error.what}" if error.where else error.what, error.hint)]


def _finding(code: str, message: str, remedy: str, source: str = "") -> Finding:
    return Finding(code=code, severity="error", message=message, remedy=remedy, source=source)
