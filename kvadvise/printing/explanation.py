"""One flag of a plan explained: its sum, the step that set it, what would change it, and what was found about it."""

from __future__ import annotations

from advisor.explain import Explanation
from advisor.plan_types import Plan
from kvadvise.printing.figures import count, setting
from kvadvise.printing.look import Look


def explanation(explained: Explanation, plan: Plan, look: Look) -> str:
    """Everything the plan says about one flag, without a line end at the end."""
    name = explained.flag
    lines = [look.heading(f"{name} = {setting(explained.value)}")]
    for text in explained.sum:
        lines += look.wrap(text, indent=4, first="  ")
    for step in plan.steps:
        if name != step.parameter and name not in step.also:
            continue
        change = step.also.get(name, step)
        moved = change.before != change.after
        lines += [
            "",
            f"  step {step.priority}: " + (f"{setting(change.before)} -> {setting(change.after)}" if moved else "kept"),
        ]
        lines += look.wrap(step.reason, indent=4)
        lines += look.wrap(
            f"requests of p95 length at once: {count(step.concurrency_at_p95_before)} before, "
            f"{count(step.concurrency_at_p95_after)} after; bound by {step.binding}",
            indent=4,
        )
    if explained.changes:
        lines += ["", "  what would change it"]
        for text in explained.changes:
            lines += look.wrap(text, indent=6, first="    - ")
    return "\n".join([*lines, *_findings(name, plan, look)])


def _findings(name: str, plan: Plan, look: Look) -> list[str]:
    """Findings in which the flag is named."""
    lines: list[str] = []
    for finding in plan.findings:
        if any(name in text.replace("-", "_") for text in (finding.message, finding.remedy)):
            lines += ["", *look.wrap(f"{finding.severity} {finding.code}: {finding.message}", indent=4, first="  ")]
            lines += look.wrap(finding.remedy, indent=7, first="    -> ") if finding.remedy else []
            lines += look.wrap(f"source: {finding.source}", indent=4) if finding.source else []
    return lines
