"""`kvadvise launch`: a plan becomes a running vLLM, or the reason why it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kvadvise.cli import debug_option
from kvadvise.commands.plan import complete_profile

if TYPE_CHECKING:
    from advisor.plan_types import Plan
    from kvadvise.figures import Figure
    from kvadvise.launch_report import LaunchReport
    from launch.diagnosis_types import Diagnosis
    from launch.engine_command import EngineCommand
    from launch.running_server import RunningServer
    from launch.server import StartFailed

RENDERED = ("vllm-config", "argv", "env")


@click.command("launch", short_help="Start vLLM with a plan's flags, or say which is to blame.")
@click.option(
    "--profile", "reference", required=True, metavar="NAME|FILE", shell_complete=complete_profile,
    help="A profile, a workload file, or a plan as `plan --json` printed it.",
)  # fmt: skip
@click.option("--engine", metavar="PATH", help="A python that has vLLM, or a vllm command; else KVADVISE_ENGINE.")
@click.option("--host", help="Address to listen on; vLLM's own default is every address.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on; 8000 unless the plan says.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key of the workload first.")
@click.option("--dry-run", is_flag=True, help="Print the command, start nothing.")
@click.option(
    "--render", type=click.Choice(RENDERED),
    help="Write the plan in a form for something else that starts it, and start nothing.",
)  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False), metavar="FILE", help="Where --render writes; else stdout.")
@click.option("--detach", is_flag=True, help="Return once it is ready; `kvadvise stop` ends it.")
@click.option("--json", "as_json", is_flag=True, help="One kvadvise.launch/1 object a line on stdout, nothing else.")
@debug_option
def command(
    reference: str,
    engine: str | None,
    host: str | None,
    port: int | None,
    settings: tuple[str, ...],
    dry_run: bool,
    render: str | None,
    out: str | None,
    detach: bool,
    as_json: bool,
) -> int:
    """Start the engine a plan describes, wait until it answers, and run until told to stop.

    Exit code 0: it ran and was stopped, or runs on (--detach). 2: the input is wrong. 3: the plan does not fit. 69: the
    engine did not start, or ended by itself. 130: interrupted before it was ready.
    """
    import os

    from kvadvise.output import emit, tell
    from kvadvise.printing.shell import launchable
    from launch.engine_command import engine_command
    from launch.engine_entry import find_engine

    _check_options(render, out, engine=engine, dry_run=dry_run, detach=detach, as_json=as_json)
    plan = _plan(reference, settings)
    if not launchable(plan):
        reasons = "; ".join(finding.message for finding in plan.findings if finding.severity == "error")
        verb = "started" if render is None else "rendered"
        tell(f"not {verb}: the outcome is {plan.outcome.replace('_', ' ')}" + (f": {reasons}" if reasons else ""))
        return 2 if plan.outcome == "invalid" else 3
    if render is not None:
        return _render(with_address(plan, host, port), render, out)
    entry = find_engine(engine, os.environ)
    wanted = engine_command(entry, plan.argv, host=host, port=port, drain_s=30)
    if dry_run:
        import shlex

        emit(shlex.join(wanted.argv))
        return 0
    return _run(wanted, plan, detach=detach, as_json=as_json)


def _check_options(
    render: str | None, out: str | None, *, engine: str | None, dry_run: bool, detach: bool, as_json: bool
) -> None:
    """What only makes sense for a start, or without one."""
    if out is not None and render is None:
        raise click.UsageError("--out belongs to --render.")
    given = {"--engine": engine is not None, "--dry-run": dry_run, "--detach": detach, "--json": as_json}
    for option, is_given in given.items():
        if render is not None and is_given:
            raise click.UsageError(f"--render starts nothing, so {option} does not go with it.")


def with_address(plan: Plan, host: str | None, port: int | None) -> Plan:
    """The plan with an address for its server. Raises InvalidInput where its pins say another."""
    import msgspec

    from advisor.errors import InvalidInput

    given = {"host": host, "port": port}
    added = {name: value for name, value in given.items() if value is not None and value != plan.flags.get(name)}
    for name, value in added.items():
        if plan.flags.get(name) is not None:
            raise InvalidInput(
                f"the plan pins {name} {plan.flags[name]}, here it is {value}", where=f"--{name}", hint="leave one out"
            )
    words = [word for name, value in added.items() for word in (f"--{name}", str(value))]
    return msgspec.structs.replace(plan, flags=plan.flags | added, argv=(*plan.argv, *words))


def _render(plan: Plan, form: str, out: str | None) -> int:
    from pathlib import Path

    from advisor.errors import InvalidInput
    from kvadvise.output import emit, tell
    from kvadvise.printing.shell import argv_line, environment
    from kvadvise.printing.vllm_config import vllm_config

    text = {"argv": argv_line, "env": environment, "vllm-config": vllm_config}[form](plan)
    if out is None:
        emit(text)
        return 0
    try:
        Path(out).write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", where=out) from None
    tell(f"written {out}")
    return 0


def _plan(reference: str, settings: tuple[str, ...]) -> Plan:
    """A saved plan as it is, unless keys are changed; anything else is planned now."""
    from kvadvise.located import located
    from kvadvise.pipeline import plan_or_refusal, saved_plan
    from kvadvise.workload_edit import edited
    from kvadvise.workload_text import read_text

    text = read_text(reference)
    plan = None if settings else saved_plan(text)
    if plan is None:
        plan = plan_or_refusal(edited(text, settings, keep=False) if settings else text)
    return located(plan, text.base_dir)


def _run(wanted: EngineCommand, plan: Plan, *, detach: bool, as_json: bool) -> int:
    import os
    import time

    from kvadvise.launch_report import LaunchReport
    from launch.bring_up import PreflightFailed
    from launch.registry import leave_running
    from launch.server import StartFailed
    from launch.signals import signals_interrupt

    began = time.monotonic()
    report = LaunchReport(plan, as_json=as_json)
    with signals_interrupt():
        try:
            server = bring_up_told(report, wanted, plan)
        except PreflightFailed as failed:
            first = next(f for f in failed.preflight.findings if f.severity == "error")
            report.failed(time.monotonic() - began, first.code, first.message, first.remedy, None)
            return failed.exit_code
        except StartFailed as failed:
            report.diagnosed(failed.failure.elapsed_s, causes_of(failed, plan, wanted), str(failed.failure.log_path))
            return failed.exit_code
        ended = None
        try:
            tell_ready(report, server, plan)
            if detach:
                leave_running(server, os.environ)
                report.say(f"it runs on; `kvadvise stop --port {wanted.port}` ends it")
                return 0
            while ended is None:
                ended = server.wait(3600.0)
        except KeyboardInterrupt:  # told to stop, which is how it is meant to end
            report.say("stopping: running requests may finish")
        except BaseException:
            server.stop()
            raise
        stopped = server.stop()
    report.stopped(server, stopped, time.monotonic() - began)
    if ended is None:
        return 0
    report.say(f"the engine ended by itself: {ended}; `kvadvise diagnose --log {server.log_path}` says why")
    return 69


def bring_up_told(report: LaunchReport, wanted: EngineCommand, plan: Plan) -> RunningServer:
    """Start the engine, the report telling how it goes. Raises what `bring_up` raises."""
    from launch.bring_up import bring_up
    from launch.preflight import needs_of

    try:
        return bring_up(
            wanted, needs_of(wanted, plan), on_progress=report.progress, on_findings=report.findings,
            on_wait=report.say,
        )  # fmt: skip
    finally:
        report.end_progress()


def tell_ready(report: LaunchReport, server: RunningServer, plan: Plan) -> None:
    """Look at the server before it has a load, keep what its start cost, say both. A store that cannot be written
    does not stop a server.
    """
    from advisor.errors import InvalidInput
    from kvadvise.after_start import keep_cost, look_at

    started, kept, problem = look_at(server, plan), None, ""
    try:
        kept = keep_cost(started)
    except InvalidInput as error:
        problem = str(error)
    report.ready(server, started, kept)
    if problem:
        report.not_kept(problem)


def causes_of(failed: StartFailed, plan: Plan, wanted: EngineCommand) -> list[Diagnosis]:
    """Why it did not start, the cause first."""
    import os

    from launch.diagnosis_context import as_started, context_of
    from launch.explain import explain
    from launch.gpu_state import read_gpus

    is_cpu = plan.subject is not None and plan.subject.gpu == "CPU"
    return explain(failed.failure, as_started(context_of(plan), wanted, os.environ, [] if is_cpu else read_gpus()))


def actual_of(server: RunningServer) -> dict[str, Figure]:
    """What the engine says of itself: its log, its metrics, its list of models."""
    from kvadvise.after_start import metrics_of
    from kvadvise.figures import actual_figures
    from launch.log_file import read_whole

    lines = read_whole(str(server.log_path), begin=server.process.log_begin)
    return actual_figures(lines, metrics_of(server), server.max_model_len)
