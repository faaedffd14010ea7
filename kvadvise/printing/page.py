"""The plan as a page for a terminal: the verdict and the flags first, then what they rest on."""

from __future__ import annotations

import shlex

from advisor.plan_types import Alternative, Concurrency, Finding, Plan, Step
from kvadvise.printing.figures import OUTCOMES, SEVERITIES, count, setting
from kvadvise.printing.ledger import concurrency, memory
from kvadvise.printing.look import Look

_OUTCOME_STYLES = {"fits": "green", "fits_with_loss": "yellow"}
_SEVERITY_STYLES = {"error": "red", "warning": "yellow", "note": "cyan"}


def page(plan: Plan, look: Look) -> str:
    """The whole page, without a line end at the end."""
    sections = (
        [*verdict(plan, look), *command(plan, look)],
        [*worst_findings(plan, look)],
        memory(plan, look),
        concurrency(plan, look),
        steps(plan, look),
        other_findings(plan, look),
        alternatives(plan, look),
        assumptions(plan, look),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def verdict(plan: Plan, look: Look) -> list[str]:
    """The first line: whether it fits, and for what."""
    word = OUTCOMES[plan.outcome]
    lines = look.wrap(f"{word}  {subject_line(plan)}", indent=2, first="")
    lines[0] = lines[0].replace(word, look.paint(word, "bold", _OUTCOME_STYLES.get(plan.outcome, "red")), 1)
    if plan.concurrency is not None:
        lines += look.wrap(promise_line(plan.concurrency) + _start_line(plan), indent=2)
    return lines


def subject_line(plan: Plan) -> str:
    """Model, device and version in one line."""
    subject = plan.subject
    if subject is None:
        return ""
    version = f", vLLM {subject.vllm_version}" if subject.vllm_version else ""
    return f"{subject.model} on {subject.gpu_count} x {subject.gpu}{version}"


def promise_line(held: Concurrency) -> str:
    """What may be promised against what is wanted."""
    per_engine = f" by each of {held.replicas} replicas" if held.replicas > 1 else ""
    promised = f"{count(held.promised)} requests at once may be promised{per_engine}"
    return f"{promised}, {count(held.target)} are wanted"


def command(plan: Plan, look: Look) -> list[str]:
    """The command, broken for a shell to take as it stands."""
    if not plan.argv:
        return []
    head, arguments = plan.argv[:3], plan.argv[3:]
    lines = ["  " + shlex.join(head)]
    for words in _grouped(arguments):
        piece = shlex.join(words)
        if len(lines) == 1 or len(lines[-1]) + 1 + len(piece) > look.width - 2:
            lines.append("      " + piece)
        else:
            lines[-1] += " " + piece
    broken = [f"{line} \\" for line in lines[:-1]] + lines[-1:]
    return ["", *(look.paint(line, "bold") for line in broken)]


def steps(plan: Plan, look: Look) -> list[str]:
    """The priority table as walked: what each step moved, what it bought, why."""
    if not plan.steps:
        return []
    lines = [look.heading("Steps", "in the order they are tried, the cheapest first")]
    for step in plan.steps:
        title = look.wrap(_move(step), indent=7, first=f"  {step.priority}  ")
        if _moves(step):
            title[0] = title[0].replace(step.parameter, look.paint(step.parameter, "bold"), 1)
        lines += [*title, *look.wrap(step.reason, indent=5)]
    return lines


def worst_findings(plan: Plan, look: Look) -> list[str]:
    """Errors, which belong above everything they spoil."""
    return _findings([finding for finding in plan.findings if finding.severity == "error"], look)


def other_findings(plan: Plan, look: Look) -> list[str]:
    """Warnings, then notes."""
    ordered = [f for severity in SEVERITIES[1:] for f in plan.findings if f.severity == severity]
    return [look.heading("Findings"), *_findings(ordered, look)] if ordered else []


def alternatives(plan: Plan, look: Look) -> list[str]:
    """Other ways, each with what it holds and the flags that differ."""
    if not plan.alternatives:
        return []
    lines = [look.heading("Alternatives")]
    for other in plan.alternatives:
        lines += look.wrap(other.description, indent=4, first="  - ")
        lines += look.wrap(_held(other) + _differing(other, plan), indent=4)
    return lines


def assumptions(plan: Plan, look: Look) -> list[str]:
    """What was taken for granted."""
    if not plan.assumptions:
        return []
    lines = [line for text in plan.assumptions for line in look.wrap(text, indent=4, first="  - ")]
    return [look.heading("Taken for granted"), *lines]


def _grouped(arguments: tuple[str, ...]) -> list[list[str]]:
    """Each flag with its values."""
    groups: list[list[str]] = []
    for word in arguments:
        if word.startswith("--") or not groups:
            groups.append([word])
        else:
            groups[-1].append(word)
    return groups


def _start_line(plan: Plan) -> str:
    if plan.starts is True:
        return ""
    return "; vLLM does not start with these flags" if plan.starts is False else "; vLLM may not start with these flags"


def _moves(step: Step) -> bool:
    return step.before != step.after or bool(step.also)


def _move(step: Step) -> str:
    text = f"{setting(step.before)} -> {setting(step.after)}"
    if step.before == step.after:
        text = f"{setting(step.after)}, kept"
    for name, change in step.also.items():
        text += f", {name} {setting(change.before)} -> {setting(change.after)}"
    gain = ""
    if step.concurrency_at_p95_before != step.concurrency_at_p95_after:
        gain = f"  [{count(step.concurrency_at_p95_before)} -> {count(step.concurrency_at_p95_after)} at once]"
    return f"{step.parameter}  {text}{gain}"


def _findings(found: list[Finding], look: Look) -> list[str]:
    lines = []
    for finding in found:
        label = look.paint(finding.severity, "bold", _SEVERITY_STYLES[finding.severity])
        lines.append(f"  {label}  {look.paint(finding.code, 'dim')}")
        lines += [part for text in finding.message.splitlines() for part in look.wrap(text, indent=4)]
        if finding.remedy:
            lines += look.wrap(finding.remedy, indent=7, first="    -> ")
    return lines


def _held(other: Alternative) -> str:
    held = other.concurrency
    word = OUTCOMES[other.outcome].lower()
    each = f" by each of {held.replicas}" if held.replicas > 1 else ""
    return f"{word}: {count(held.promised)} promised{each}, {count(held.target)} wanted"


def _differing(other: Alternative, plan: Plan) -> str:
    changed = [
        f"{name} {setting(value)}" for name, value in other.flags.items() if plan.flags.get(name, value) != value
    ]
    return f"; {', '.join(changed)}" if changed else ""
