"""What two plans do differently, as text for a terminal. JSON has every difference; the page leaves out the bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from advisor.compare import Difference
from advisor.plan_types import Plan
from kvadvise.printing.figures import OUTCOMES, count, gib, setting
from kvadvise.printing.look import Look, columns
from kvadvise.printing.page import subject_line


def difference(before: Plan, after: Plan, found: Sequence[Difference], names: tuple[str, str], look: Look) -> str:
    """The whole text, without a line end at the end; `names` are what the user called the two sides."""
    sections = [[_side("before", names[0], before), _side("after", names[1], after)]]
    if not found:
        sections.append(["The plans are the same."])
    flags = [_row(d.path.removeprefix("flags."), d, setting) for d in found if d.path.startswith("flags.")]
    figures = [_row(d.path.removesuffix(".value"), d, _shower(d.path)) for d in found if _is_figure(d)]
    for title, rows in (("Flags", flags), ("Figures", figures)):
        if rows:
            sections.append([look.heading(title), *columns(rows, right=(1, 3) if title == "Figures" else ())])
    findings = [_finding(d) for d in found if d.path.startswith("findings.")]
    if findings:
        sections.append([look.heading("Findings"), *findings])
    return "\n\n".join("\n".join(lines) for lines in sections)


def _side(label: str, name: str, plan: Plan) -> str:
    subject = subject_line(plan)
    return f"{label:7}{name}: {OUTCOMES[plan.outcome].lower()}" + (f", {subject}" if subject else "")


def _is_figure(found: Difference) -> bool:
    if found.path.startswith("memory."):
        return found.path.endswith("_bytes.value")
    values = (found.before, found.after)
    return found.path.startswith(("kv.", "concurrency.")) and all(isinstance(v, int | float | None) for v in values)


def _shower(path: str) -> Any:
    return (lambda value: f"{gib(value)} GiB") if path.startswith("memory.") else count


def _row(name: str, found: Difference, show: Any) -> list[str]:
    shown = ["none" if value is None else show(value) for value in (found.before, found.after)]
    return [f"  {name}", shown[0], "->", shown[1]]


def _finding(found: Difference) -> str:
    code = found.path.removeprefix("findings.")
    if found.before is None:
        return f"  new   {found.after} {code}"
    if found.after is None:
        return f"  gone  {found.before} {code}"
    return f"  now   {found.after} {code}, before {found.before}"
