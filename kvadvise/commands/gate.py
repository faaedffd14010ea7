"""`kvadvise gate`: plan, launch, verify, stop; one command, one exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvadvise.cli import debug_option
from kvadvise.commands.plan import complete_profile
from kvadvise.commands.verify import RunOptions, run_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from advisor.errors import EngineUnavailable
    from kvadvise.verification import Inconclusive, Subject
    from launch.engine_command import EngineCommand
    from launch.running_server import RunningServer
    from verify.record.types import GpuMemory
    from verify.session import Session
    from verify.watch.probes import Probes


@click.command("gate", short_help="Plan, launch, replay the load, judge, stop: one exit code.")
@click.option(
    "--profile", "reference", required=True, metavar="NAME|FILE", shell_complete=complete_profile,
    help="A profile, a workload file, or a plan as `plan --json` printed it.",
)  # fmt: skip
@click.option("--engine", metavar="PATH", help="A python that has vLLM, or a vllm command; else KVADVISE_ENGINE.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address the engine listens on.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port it listens on; 8000 unless the plan says.")
@run_options
@debug_option
def command(
    reference: str,
    engine: str | None,
    host: str,
    port: int | None,
    run: RunOptions,
) -> int:
    """Start the engine as planned, replay the load against it, judge, stop it.

    Exit code 0: pass. 1: a check failed. 2: the input is wrong. 3: the plan does not fit. 69: the engine did not start.
    75: it could not be told. 130: interrupted. Reports are written in every case but 2.
    """
    import os

    from kvadvise.commands.verify import served_name, show_schedule
    from kvadvise.printing.shell import launchable
    from kvadvise.verification import forget_old_reports, subject_of
    from launch.engine_command import engine_command
    from launch.engine_entry import find_engine

    subject, out = subject_of(reference, run.settings), Path(run.out)
    if not launchable(subject.plan):
        return _does_not_fit(subject, out, as_json=run.as_json)
    wanted = engine_command(find_engine(engine, os.environ), subject.plan.argv, host=host, port=port, drain_s=30)
    order = run.order(subject, wanted.url + wanted.root_path, served_name(subject))
    if run.dry_run:
        import shlex

        from kvadvise.output import emit

        emit(shlex.join(wanted.argv))
        return show_schedule(order)
    forget_old_reports(out)
    from kvadvise.commands.verify import hooks_of
    from kvadvise.output import tell
    from verify.session import Session

    session = Session(order, hooks=hooks_of(tell))
    return _gate(session, wanted, subject, out, inconclusive=run.inconclusive, as_json=run.as_json)


def _does_not_fit(subject: Subject, out: Path, *, as_json: bool) -> int:
    from advisor.errors import NotUnderstood
    from kvadvise.commands.verify import show_verdict
    from kvadvise.verification import forget_old_reports, not_started

    reasons = "; ".join(finding.message for finding in subject.plan.findings if finding.severity == "error")
    error = NotUnderstood(
        f"the plan's outcome is {subject.plan.outcome.replace('_', ' ')}" + (f": {reasons}" if reasons else ""),
        hint="`kvadvise plan` shows what would make it fit",
    )
    forget_old_reports(out)
    show_verdict(not_started(error, "plan-does-not-fit", subject, out), out, as_json=as_json)
    return 2 if subject.plan.outcome == "invalid" else 3


def _gate(
    session: Session,
    wanted: EngineCommand,
    subject: Subject,
    out: Path,
    *,
    inconclusive: Inconclusive,
    as_json: bool,
) -> int:
    """Launch, replay, stop, judge. The engine is gone before the verdict is shown, whatever happened."""
    from advisor.errors import EngineUnavailable
    from kvadvise.commands.launch import causes_of
    from kvadvise.commands.verify import finish, play, show_verdict
    from kvadvise.output import tell
    from kvadvise.verification import not_started
    from launch.server import StartFailed
    from launch.signals import signals_interrupt

    bug: Exception | None = None
    notes: list[str] = []
    with signals_interrupt():
        try:
            server = _started(wanted, subject)
            try:
                session.probes = probes_of(server, subject)
                bug = play(session)
                run = session.recorded()
            finally:
                notes = _stopped(server)
        except StartFailed as failed:
            found = causes_of(failed, subject.plan, wanted)[0]
            error = EngineUnavailable(found.message, hint=found.remedy)
            show_verdict(not_started(error, found.code, subject, out, found.evidence), out, as_json=as_json)
            tell(f"the engine's log is {failed.failure.log_path}")
            return failed.exit_code
        except EngineUnavailable as error:
            show_verdict(not_started(error, _code_of(error), subject, out), out, as_json=as_json)
            return error.exit_code
        except KeyboardInterrupt:
            tell("interrupted; the engine is stopped")
            run = session.recorded()
    return finish(run, subject, out, inconclusive=inconclusive, as_json=as_json, notes=notes, bug=bug)


def _code_of(error: EngineUnavailable) -> str:
    from launch.bring_up import PreflightFailed

    if isinstance(error, PreflightFailed):
        return next(finding.code for finding in error.preflight.findings if finding.severity == "error")
    return "unreachable"


def _started(wanted: EngineCommand, subject: Subject) -> RunningServer:
    """The engine, ready, with what it says of itself beside the plan."""
    from kvadvise.commands.launch import bring_up_told, tell_ready
    from kvadvise.launch_report import LaunchReport

    report = LaunchReport(subject.plan, as_json=False)
    server = bring_up_told(report, wanted, subject.plan)
    try:
        tell_ready(report, server, subject.plan)
    except BaseException:
        server.stop()
        raise
    return server


def _stopped(server: RunningServer) -> list[str]:
    """What the stop left behind, in words; nothing where it is all gone."""
    from kvadvise.output import tell

    stopped = server.stop()
    tell(f"the engine is stopped after {stopped.seconds:.0f} s: {stopped.exit}")
    return [f"{finding.code}: {finding.message}; {finding.remedy}" for finding in stopped.findings]


def probes_of(server: RunningServer, subject: Subject) -> Probes:
    """What can be seen of an engine of one's own."""
    from kvadvise.verification import log_probe
    from launch.diagnosis_context import context_of
    from launch.diagnosis_types import ExitState
    from verify.watch.probes import Probes

    def engine_exit() -> str | None:
        ended = server.poll()
        return None if ended is None else str(ended)

    def exit_state() -> ExitState:
        ended = server.poll()
        if ended is None:
            return ExitState()
        return ExitState(code=-ended.signal if ended.signal is not None else ended.code)

    return Probes(
        resident_bytes=server.resident_bytes,
        gpus=_gpu_probe(server),
        engine_exit=engine_exit,
        log=log_probe(
            str(server.log_path),
            begin=server.process.log_begin,
            context=context_of(subject.plan),
            exit_state=exit_state,
        ),
    )


def _gpu_probe(server: RunningServer) -> Callable[[], tuple[GpuMemory, ...] | None] | None:
    """The memory of the GPUs the engine was given; None on a machine where none was."""
    from launch.gpu_state import read_gpus
    from verify.record.types import GpuMemory

    chosen = set(server.gpu_used_before)
    if not chosen:
        return None

    def look() -> tuple[GpuMemory, ...] | None:
        states = [state for state in read_gpus() if state.uuid in chosen]
        return tuple(GpuMemory(s.uuid, s.total_bytes - s.free_bytes, s.total_bytes) for s in states) or None

    return look
