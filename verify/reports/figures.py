"""Figures of a verdict as people read them: one place for units, words and order."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.units import GIB, MIB
from verify.judge.types import Check, Status, Verdict

WORDS: dict[Status, str] = {"pass": "pass", "fail": "FAIL", "unknown": "unknown", "not_applicable": "n/a"}
PHASE_WORDS = {"warm_up": "warm-up", "over_limit": "over limit"}


def word(check: Check) -> str:
    """How a check went, in a word; a warning is one and no failure."""
    return "warning" if check.level == "warn" and check.status == "fail" else WORDS[check.status]


def shown(value: float | str | None, unit: str) -> str:
    """A figure with its unit; "?" where it is not known."""
    if value is None:
        return "?"
    if isinstance(value, str):
        return value
    match unit:
        case "s":
            return f"{value * 1000:.3g} ms" if abs(value) < 0.9995 else f"{value:,.3g} s"
        case "share":
            return f"{value:.1%}" if abs(value) >= 0.001 or value == 0 else f"{value:.2g}"
        case "bytes":
            return f"{value / GIB:,.2f} GiB" if abs(value) >= GIB else f"{value / MIB:,.0f} MiB"
        case "bytes/s":
            return f"{value / MIB:,.2f} MiB/s"
        case "count" | "blocks":
            return f"{value:,.0f}"
    return f"{value:,.4g}{' ' + unit if unit else ''}"


def observed(check: Check) -> str:
    """What was seen, with the range it lies in where there is one."""
    if check.observed is None:
        return "?" if check.status == "unknown" else ""
    text = shown(check.observed, check.unit)
    if check.interval is None or check.interval == (check.observed, check.observed):
        return text
    low, high = (shown(end, check.unit) if end is not None else "unbounded" for end in check.interval)
    return f"{text} ({low} to {high})"


def threshold(check: Check) -> str:
    """What it is held against."""
    return "" if check.threshold is None else shown(check.threshold, check.unit)


def ordered(checks: Sequence[Check]) -> list[Check]:
    """What decides first: failed, unknown, warnings, then the others as they come."""
    rank = {"fail": 0, "unknown": 1, "pass": 3, "not_applicable": 4}
    return sorted(checks, key=lambda c: 2 if c.level == "warn" and c.status in ("fail", "unknown") else rank[c.status])


def phase_name(name: str) -> str:
    """A phase for people."""
    return PHASE_WORDS.get(name, name)


def headline(verdict: Verdict) -> str:
    """The verdict in capitals and the sentence that explains it."""
    return f"{verdict.verdict.upper()}: {verdict.summary}"


def kv_rows(verdict: Verdict) -> list[tuple[str, ...]]:
    """The pool's use by phase and over all: phase, peak blocks, peak, p95, mean, seconds full."""
    phases = verdict.kv.get("phases") or {}
    rows = [(phase_name(name), figures) for name, figures in phases.items()]
    rows.append(("all", verdict.kv))
    return [
        (
            name,
            shown(figures.get("peak_blocks"), "blocks"),
            shown(figures.get("peak_usage"), "share"),
            shown(figures.get("p95_usage"), "share"),
            shown(figures.get("mean_usage"), "share"),
            shown(figures.get("seconds_full"), "count"),
        )
        for name, figures in rows
    ]


KV_HEAD = ("phase", "peak blocks", "peak", "p95", "mean", "seconds full")
LATENCY_HEAD = ("phase", "n", "failed", "from", "figure", "p50", "p90", "p95", "p99", "max")
_LATENCIES = {
    "ttft_s": "first token", "tpot_s": "per token", "e2e_s": "whole answer", "max_stall_s": "longest silence",
    "send_lag_s": "sent late",
}  # fmt: skip


def latency_rows(verdict: Verdict) -> list[tuple[str, ...]]:
    """Percentiles by phase and figure; what was not measured at all is left out."""
    rows = []
    for name, phase in verdict.latency.items():
        for key, noun in _LATENCIES.items():
            figures = phase.get(key) or {}
            if all(value is None for value in figures.values()) and not phase.get("failed"):
                continue
            values = [
                shown(figures.get(p), "s") if figures.get(p) is not None else _unbounded(phase)
                for p in ("p50", "p90", "p95", "p99", "max")
            ]
            rows.append((phase_name(name), f"{phase['n']:,}", f"{phase['failed']:,}", phase["from"], noun, *values))
    return rows


def _unbounded(phase: dict[str, object]) -> str:
    return "unbounded" if phase.get("failed") else "?"


def request_rows(verdict: Verdict) -> list[tuple[str, str]]:
    """Counts of requests; classes without one are left out."""
    counts = {key: value for key, value in verdict.requests.items() if isinstance(value, int)}
    return [(key, f"{value:,}") for key, value in counts.items() if value or key in ("sent", "succeeded")]


PLAN_ROWS = ("num_blocks", "block_size", "max_model_len", "vllm_version")


def plan_rows(verdict: Verdict) -> list[tuple[str, str, str]]:
    """Planned against actual."""
    plan = verdict.plan
    if plan is None:
        return []
    actual = plan.get("actual") or {}
    return [(name, _plain(plan.get(name)), _plain(actual.get(name))) for name in PLAN_ROWS]


def _plain(value: object) -> str:
    if value is None:
        return "?"
    return f"{value:,}" if isinstance(value, int) else str(value)


def facts(verdict: Verdict) -> list[tuple[str, str]]:
    """What ran against what, for the head of a report."""
    run, target = verdict.run, verdict.target
    listed = [
        ("workload", run.get("workload")),
        ("server", target.get("url")),
        ("model", target.get("model")),
        ("vLLM", target.get("vllm_version")),
        ("started", run.get("started_at")),
        ("seconds", f"{run['seconds']:,.0f}" if isinstance(run.get("seconds"), int | float) else None),
        ("ended", run.get("ended")),
        ("seed", run.get("seed")),
        ("schedule", str(run.get("schedule_sha256") or "")[:12]),
        ("kvadvise", verdict.kvadvise_version),
    ]
    return [(name, str(value)) for name, value in listed if value not in (None, "")]
