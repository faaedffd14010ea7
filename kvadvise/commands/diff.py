"""`kvadvise diff`: what two plans do differently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvadvise.cli import debug_option
from kvadvise.commands.plan import complete_profile

if TYPE_CHECKING:
    from advisor.plan_types import Plan


@click.command("diff", short_help="What two plans do differently.")
@click.argument("before", shell_complete=complete_profile)
@click.argument("after", shell_complete=complete_profile)
@click.option("--json", "as_json", is_flag=True, help="Print kvadvise.diff/1, and nothing else on stdout.")
@debug_option
def command(before: str, after: str, as_json: bool) -> int:
    """Compare two plans: flags, memory, blocks, concurrency and findings.

    BEFORE and AFTER are each what `kvadvise plan --json` printed, a profile with a saved plan (taken as saved), or a
    workload file or profile without one (planned now).

    Exit code 1: AFTER misses its target, which BEFORE met or missed by less. 2: a file cannot be read. Else 0.
    """
    import msgspec

    from advisor.compare import diff_plans
    from kvadvise.output import emit

    one, other = _plan(before), _plan(after)
    found = diff_plans(one, other)
    code = int(falls_below_target(one, other))
    if as_json:
        sides = {"before": _side(one), "after": _side(other)}
        document = {"schema": "kvadvise.diff/1", **sides, "differences": found}
        emit(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return code
    from kvadvise.printing.difference import difference
    from kvadvise.printing.look import look_of_terminal

    emit(difference(one, other, found, (before, after), look_of_terminal()))
    return code


def falls_below_target(before: Plan, after: Plan) -> bool:
    """Whether a change costs the target: it is missed after, and was met before or missed by less."""
    if _meets(after):
        return False
    if _meets(before):
        return True
    held = [plan.concurrency.promised if plan.concurrency is not None else 0 for plan in (before, after)]
    return held[1] < held[0]


def _meets(plan: Plan) -> bool:
    return plan.outcome in ("fits", "fits_with_loss")


def _side(plan: Plan) -> dict[str, Any]:
    return {"inputs_sha256": plan.inputs_sha256, "outcome": plan.outcome, "subject": plan.subject}


def _plan(reference: str) -> Plan:
    from kvadvise.pipeline import plan_or_refusal, saved_plan
    from kvadvise.workload_text import read_text

    text = read_text(reference)
    plan = saved_plan(text)
    return plan if plan is not None else plan_or_refusal(text)
