"""`kvadvise plan`: workload files in, plans out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kvadvise.cli import debug_option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from advisor.plan_types import Plan
    from kvadvise.workload_text import WorkloadText

FORMATS = ("argv", "env", "vllm-config", "markdown")


def complete_profile(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Profile names and, as the shell finds them, files."""
    from click.shell_completion import CompletionItem

    from kvadvise.profile_store import list_profiles

    names = [profile.name for profile in list_profiles() if profile.name.startswith(incomplete)]
    return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


@click.command("plan", short_help="Flags for a workload, what they cost, and why.")
@click.argument("files", metavar="FILE...", nargs=-1, shell_complete=complete_profile)
@click.option("--json", "as_json", is_flag=True, help="Print kvadvise.plan/1, and nothing else on stdout.")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="Print the plan in another form, for a shell, vLLM or a page."
)
@click.option("--profile", "profile_names", multiple=True, metavar="NAME", help="Plan a profile; repeatable.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key first: workload.concurrency=64."
)
@click.option("--explain", metavar="FLAG", help="Say why one flag has its value.")
@click.option("--save", "save_as", metavar="NAME", help="Keep the workload and its plan as a profile.")
@click.option("--force", is_flag=True, help="Let --save replace a profile.")
@debug_option
def command(
    files: tuple[str, ...],
    as_json: bool,
    form: str | None,
    profile_names: tuple[str, ...],
    settings: tuple[str, ...],
    explain: str | None,
    save_as: str | None,
    force: bool,
) -> int:
    """Plan each FILE: a workload file, `-` for stdin, or a profile's name.

    Exit code 0: every plan fits. 2: a file is wrong, or vLLM refuses a pin. 3: nothing fits, or the model
    is not understood.
    """
    _check_options(files, profile_names, as_json, form, explain, save_as, force)
    from kvadvise.pipeline import exit_code

    references = (*files, *profile_names)
    made = [_plan(reference, settings, keep=save_as is not None) for reference in references]
    plans = [plan for plan, _ in made]
    code = exit_code(plans)
    if save_as is not None:
        _save(save_as, *made[0], force=force)
    if as_json:
        _print_json(plans)
    elif explain is not None and plans[0].flags:
        _print_explanation(plans[0], explain)
    elif form is not None:
        _print_form(plans, form)
    else:
        _print_pages(plans, references)
    return code


def _check_options(
    files: Sequence[str],
    profile_names: Sequence[str],
    as_json: bool,
    form: str | None,
    explain: str | None,
    save_as: str | None,
    force: bool,
) -> None:
    inputs = len(files) + len(profile_names)
    if not inputs:
        raise click.UsageError("Missing FILE: give a workload file, `-` for stdin, or a profile's name.")
    if [as_json, form is not None, explain is not None].count(True) > 1:
        raise click.UsageError("--json, --format and --explain exclude one another.")
    if files.count("-") > 1:
        raise click.UsageError("stdin can be read only once.")
    if inputs > 1:
        single = {"--save": save_as, "--explain": explain, f"--format {form}": form in ("env", "vllm-config")}
        for option, is_given in single.items():
            if is_given:
                raise click.UsageError(f"{option} takes one FILE.")
    if force and save_as is None:
        raise click.UsageError("--force belongs to --save.")


def _plan(reference: str, settings: Sequence[str], *, keep: bool) -> tuple[Plan, WorkloadText | None]:
    """The plan, and the text it was made from; None where there is no text to keep."""
    from advisor.errors import KvadviseError
    from kvadvise.pipeline import plan_or_refusal, refusal
    from kvadvise.workload_text import read_text

    try:
        text = read_text(reference)
        if settings or keep:
            from kvadvise.workload_edit import edited

            text = edited(text, settings, keep=keep)
    except KvadviseError as error:
        return refusal(error), None
    try:
        return plan_or_refusal(text), text
    except Exception as error:
        error.add_note(f"while planning {reference}")
        raise


def _save(name: str, plan: Plan, text: WorkloadText | None, *, force: bool) -> None:
    from kvadvise.output import tell
    from kvadvise.printing.shell import launchable

    if text is None or not launchable(plan):
        tell(f"not saved: {name} would be a profile that does not fit")
        return
    import msgspec

    from kvadvise.profile_store import save_profile
    from kvadvise.workload_text import with_plan

    path = save_profile(name, with_plan(text, msgspec.to_builtins(plan)), force=force)
    tell(f"saved {path}")


def _print_json(plans: list[Plan]) -> None:
    import msgspec

    from kvadvise.output import emit, tell

    for plan in plans:
        if plan.outcome in ("invalid", "not_understood"):  # else a log that keeps only stderr shows a bare exit code
            for finding in plan.findings:
                if finding.severity == "error":
                    tell(f"error: {finding.message}")
    answer = plans[0] if len(plans) == 1 else plans
    emit(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())


def _print_explanation(plan: Plan, flag: str) -> None:
    from advisor.explain import explain
    from kvadvise.output import emit
    from kvadvise.printing.explanation import explanation
    from kvadvise.printing.look import look_of_terminal

    emit(explanation(explain(plan, flag), plan, look_of_terminal()))


def _print_pages(plans: list[Plan], references: Sequence[str]) -> None:
    from kvadvise.output import emit
    from kvadvise.printing.look import look_of_terminal
    from kvadvise.printing.page import page

    look = look_of_terminal()
    pages = [page(plan, look) for plan in plans]
    if len(pages) > 1:
        pages = [f"{look.rule(name)}\n\n{text}\n" for name, text in zip(references, pages, strict=True)]
    emit("\n".join(pages))


def _print_form(plans: list[Plan], form: str) -> None:
    """A form for machines is printed for plans that fit only: what is run unseen must not be what was
    warned of.
    """
    from kvadvise.output import emit, tell

    if form == "markdown":
        from kvadvise.printing.markdown import markdown

        emit("\n\n".join(markdown(plan) for plan in plans))
        return
    from kvadvise.printing.shell import argv_line, environment, launchable
    from kvadvise.printing.vllm_config import vllm_config

    printers = {"argv": argv_line, "env": environment, "vllm-config": vllm_config}
    for plan in plans:
        if launchable(plan):
            emit(printers[form](plan))
        else:
            reasons = "; ".join(f.message for f in plan.findings if f.severity == "error")
            tell(f"no {form}: {plan.outcome.replace('_', ' ')}" + (f": {reasons}" if reasons else ""))
