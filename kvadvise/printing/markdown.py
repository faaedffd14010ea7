"""The plan as Markdown, for a pull request or a wiki page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from advisor.estimate import Estimate
from advisor.plan_types import Plan
from kvadvise.printing.figures import OUTCOMES, SEVERITIES, count, gib, setting
from kvadvise.printing.page import promise_line, subject_line


def markdown(plan: Plan) -> str:
    """The document, without a line end at the end."""
    sections = (
        _top(plan),
        _memory(plan),
        _steps(plan),
        _findings(plan),
        _alternatives(plan),
        _assumptions(plan),
        [f"<sub>kvadvise {plan.kvadvise_version}, inputs `{plan.inputs_sha256[:12]}`</sub>"],
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _top(plan: Plan) -> list[str]:
    lines = [f"## {OUTCOMES[plan.outcome].capitalize()}: {_text(subject_line(plan))}".rstrip(": ")]
    if plan.concurrency is not None:
        lines += ["", f"{promise_line(plan.concurrency)}."]
    if plan.argv:
        lines += ["", "```sh", shlex.join(plan.argv), "```"]
    return lines


def _memory(plan: Plan) -> list[str]:
    ledger = plan.memory
    if ledger is None:
        return []
    graphs = "CUDA graphs" if ledger.cuda_graphs_in_budget else "CUDA graphs (outside the budget)"
    rows: list[tuple[str, Estimate]] = [
        ("weights", ledger.weights_bytes),
        ("activations", ledger.activation_bytes),
        ("non-torch", ledger.non_torch_bytes),
        (graphs, ledger.cuda_graph_bytes),
        ("KV cache", ledger.kv_cache_bytes),
        ("outside the budget", ledger.outside_budget_bytes),
        ("**budget**", ledger.budget_bytes),
        ("**total**", ledger.total_bytes),
    ]
    table = [(name, gib(row.value), f"{gib(row.low)} to {gib(row.high)}", row.basis) for name, row in rows]
    return [
        "### Memory of one device (GiB)",
        "",
        *_table(("", "value", "band", "basis"), table, right=(1, 2)),
    ]


def _steps(plan: Plan) -> list[str]:
    if not plan.steps:
        return []
    rows = [
        (
            str(step.priority),
            f"`{step.parameter}`",
            setting(step.before) if step.before == step.after else f"{setting(step.before)} → {setting(step.after)}",
            f"{count(step.concurrency_at_p95_before)} → {count(step.concurrency_at_p95_after)}",
            _text(step.reason),
        )
        for step in plan.steps
    ]
    return ["### Steps", "", *_table(("", "parameter", "value", "requests at once", "why"), rows)]


def _findings(plan: Plan) -> list[str]:
    ordered = [f for severity in SEVERITIES for f in plan.findings if f.severity == severity]
    if not ordered:
        return []
    items = [
        f"- **{f.severity}** `{f.code}`: {_text(f.message)}" + (f" → {_text(f.remedy)}" if f.remedy else "")
        for f in ordered
    ]
    return ["### Findings", "", *items]


def _alternatives(plan: Plan) -> list[str]:
    if not plan.alternatives:
        return []
    rows = [
        (_text(other.description), OUTCOMES[other.outcome].lower(), count(other.concurrency.promised))
        for other in plan.alternatives
    ]
    return ["### Alternatives", "", *_table(("", "outcome", "requests promised"), rows, right=(2,))]


def _assumptions(plan: Plan) -> list[str]:
    if not plan.assumptions:
        return []
    return ["### Taken for granted", "", *(f"- {_text(text)}" for text in plan.assumptions)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    rule = ["---:" if n in right else "---" for n in range(len(head))]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]


def _text(text: str) -> str:
    """Text that came from a file, so that it cannot break a table or open a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
