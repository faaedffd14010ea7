"""One flag of a plan explained: its value, the step that set it, and what was found about it."""

from __future__ import annotations

from advisor.errors import InvalidInput
from advisor.plan_types import Plan
from kvadvise.printing.figures import count, setting
from kvadvise.printing.look import Look


def explanation(plan: Plan, flag: str, look: Look) -> str:
    """Everything the plan says about one flag, spelled as on the command line or as in Python.

    Raises InvalidInput for a flag that the plan does not set, with the nearest ones.
    """
    name = flag.lstrip("-").replace("-", "_")
    related = [step for step in plan.steps if name == step.parameter or name in step.also]
    if name not in plan.flags and not related:
        from difflib import get_close_matches

        near = get_close_matches(name, plan.flags, n=1)
        known = f"did you mean {near[0]}?" if near else f"it sets {', '.join(plan.flags) or 'none'}"
        raise InvalidInput(f"the plan sets no {flag!r}", where="--explain", hint=known)
    lines = [look.heading(f"{name} = {setting(plan.flags.get(name))}")]
    for step in related:
        change = step.also.get(name, step)
        moved = change.before != change.after
        lines.append(f"  before {setting(change.before)}, after {setting(change.after)}" if moved else "  kept")
        lines += look.wrap(step.reason, indent=2)
        lines.append(
            f"  requests of p95 length at once: {count(step.concurrency_at_p95_before)} before, "
            f"{count(step.concurrency_at_p95_after)} after; bound by {step.binding}"
        )
    if not related:
        lines.append("  No step moves this flag: it is pinned, or vLLM's own default for this model and GPU.")
    for finding in plan.findings:
        if name in finding.message or name in finding.remedy or name in finding.code:
            lines += look.wrap(f"{finding.severity} {finding.code}: {finding.message}", indent=4, first="  ")
            lines += look.wrap(finding.remedy, indent=7, first="    -> ") if finding.remedy else []
            lines += look.wrap(f"source: {finding.source}", indent=4) if finding.source else []
    return "\n".join(lines)
