"""The verdict for programs: report.json, junit.xml, gate.prom."""

from __future__ import annotations

import datetime
import re
from xml.etree import ElementTree as Xml

import msgspec

from verify.judge.types import Check, Verdict
from verify.reports.figures import observed, threshold

# What XML 1.0 cannot hold, written or escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def report_json(verdict: Verdict) -> bytes:
    """kvadvise.verdict/1. What is not a finite number is null."""
    return msgspec.json.format(msgspec.json.encode(verdict), indent=2) + b"\n"


def junit_xml(verdict: Verdict) -> bytes:
    """One test case a check: failed is a failure, unknown an error, not applicable skipped.

    What fails or is unknown at level warn is skipped with its message, so that a reader of JUnit and the exit code
    never disagree.
    """
    kinds = [_junit_kind(check) for check in verdict.checks]
    counts = {
        "tests": len(kinds), "failures": kinds.count("failure"), "errors": kinds.count("error"),
        "skipped": kinds.count("skipped"),
    }  # fmt: skip
    seconds = verdict.run.get("seconds")
    time = f"{seconds:.3f}" if isinstance(seconds, int | float) else "0"
    attributes = {**{name: str(count) for name, count in counts.items()}, "time": time}
    suites = Xml.Element("testsuites", {"name": "kvadvise", **attributes})
    suite = Xml.SubElement(suites, "testsuite", {
        "name": "kvadvise.verify", **attributes, "timestamp": str(verdict.run.get("started_at") or "")[:19],
    })  # fmt: skip
    _properties(suite, {
        "verdict": verdict.verdict, "summary": verdict.summary, "workload": verdict.run.get("workload"),
        "model": verdict.target.get("model"), "vllm_version": verdict.target.get("vllm_version"),
        "kvadvise_version": verdict.kvadvise_version, "seed": verdict.run.get("seed"),
        "schedule_sha256": verdict.run.get("schedule_sha256"),
    })  # fmt: skip
    for check, kind in zip(verdict.checks, kinds, strict=True):
        _case(suite, check, kind)
    Xml.indent(suites)
    text: bytes = Xml.tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _junit_kind(check: Check) -> str:
    if check.status == "pass":
        return "passed"
    if check.status == "not_applicable" or check.level == "warn":
        return "skipped"
    return "failure" if check.status == "fail" else "error"


def _case(suite: Xml.Element, check: Check, kind: str) -> None:
    case = Xml.SubElement(suite, "testcase", {"name": check.id, "classname": "kvadvise.verify", "time": "0"})
    _properties(case, {
        "level": check.level, "status": check.status, "phase": check.phase, "observed": check.observed,
        "threshold": check.threshold, "unit": check.unit or None, "n": check.n,
        "interval": _interval(check),
    })  # fmt: skip
    if kind == "passed":
        return
    warning = "warning: " if kind == "skipped" and check.status != "not_applicable" else ""
    element = Xml.SubElement(case, kind, {"message": _xml(warning + check.reason)})
    if kind != "skipped":
        element.set("type", check.status)
        seen = f"observed {observed(check) or 'nothing'}, threshold {threshold(check) or 'none'}"
        element.text = _xml("\n".join(text for text in (check.reason, seen, check.remedy) if text))


def _interval(check: Check) -> str | None:
    if check.interval is None:
        return None
    return " to ".join("unbounded" if end is None else str(end) for end in check.interval)


def _properties(parent: Xml.Element, values: dict[str, object]) -> None:
    holder = Xml.SubElement(parent, "properties")
    for name, value in values.items():
        if value is not None:
            Xml.SubElement(holder, "property", {"name": name, "value": _xml(str(value))})


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def gate_prom(verdict: Verdict) -> bytes:
    """Gauges for a textfile collector. An unknown check has not passed; one that does not apply is not there."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()

    def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"kvadvise_{name}", text, labels, registry=registry)

    results = gauge("verdict", "1 for the verdict of the last run", ("verdict",))
    for name in ("pass", "fail", "inconclusive"):
        results.labels(name).set(verdict.verdict == name)
    passed = gauge("check_passed", "1 where a check holds, 0 where it fails or is unknown", ("check", "level"))
    seen = gauge("check_observed", "What a check saw", ("check", "unit"))
    bound = gauge("check_threshold", "What it is held against", ("check", "unit"))
    for check in verdict.checks:
        if check.status == "not_applicable":
            continue
        passed.labels(check.id, check.level).set(check.status == "pass")
        for figure, value in ((seen, check.observed), (bound, check.threshold)):
            if isinstance(value, int | float) and not isinstance(value, bool):
                figure.labels(check.id, check.unit).set(value)
            elif value == "unbounded":
                figure.labels(check.id, check.unit).set(float("inf"))
    for name, text in _KV_GAUGES.items():
        value = verdict.kv.get(name)
        if value is not None:
            gauge(f"kv_{name}", text).set(value)
    info = gauge("run_info", "What was verified", ("workload", "model", "vllm_version", "kvadvise_version"))
    target = verdict.target
    info.labels(
        str(verdict.run.get("workload") or ""), str(target.get("model") or ""), str(target.get("vllm_version") or ""),
        verdict.kvadvise_version,
    ).set(1)  # fmt: skip
    ended = _ended(verdict)
    if ended is not None:
        gauge("last_run_timestamp_seconds", "When the last run ended").set(ended)
    return generate_latest(registry)


_KV_GAUGES = {
    "num_blocks": "Blocks of the engine's KV cache",
    "peak_blocks": "Most blocks in use at once",
    "peak_usage": "Highest use of the KV cache, as a share",
    "seconds_full": "Seconds the KV cache was full",
}


def _ended(verdict: Verdict) -> float | None:
    try:
        began = datetime.datetime.fromisoformat(str(verdict.run.get("started_at")))
    except ValueError:
        return None
    seconds = verdict.run.get("seconds")
    return began.timestamp() + (seconds if isinstance(seconds, int | float) else 0.0)
