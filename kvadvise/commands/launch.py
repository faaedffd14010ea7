"""`kvadvise launch`: a plan becomes a running vLLM, or the reason why it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvadvise.cli import debug_option
from kvadvise.commands.plan import complete_profile

if TYPE_CHECKING:
    from advisor.plan_types import Finding, Plan
    from kvadvise.figures import Figure
    from launch.diagnosis_types import Diagnosis
    from launch.engine_command import EngineCommand
    from launch.running_server import RunningServer, Stopped
    from launch.server import StartFailed
    from launch.start_progress import StartProgress


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

    plan = _plan(reference, settings)
    if not launchable(plan):
        reasons = "; ".join(finding.message for finding in plan.findings if finding.severity == "error")
        tell(f"not started: the outcome is {plan.outcome.replace('_', ' ')}" + (f": {reasons}" if reasons else ""))
        return 2 if plan.outcome == "invalid" else 3
    entry = find_engine(engine, os.environ)
    wanted = engine_command(entry, plan.argv, host=host, port=port, drain_s=30)
    if dry_run:
        import shlex

        emit(shlex.join(wanted.argv))
        return 0
    return _run(wanted, plan, detach=detach, as_json=as_json)


def _plan(reference: str, settings: tuple[str, ...]) -> Plan:
    """A saved plan as it is, unless keys are changed; anything else is planned now."""
    from kvadvise.pipeline import plan_or_refusal, saved_plan
    from kvadvise.workload_edit import edited
    from kvadvise.workload_text import read_text

    text = read_text(reference)
    saved = None if settings else saved_plan(text)
    if saved is not None:
        return saved
    return plan_or_refusal(edited(text, settings, keep=False) if settings else text)


def _run(wanted: EngineCommand, plan: Plan, *, detach: bool, as_json: bool) -> int:
    import os
    import time

    from kvadvise.figures import planned_figures
    from launch.bring_up import PreflightFailed, bring_up
    from launch.preflight import needs_of
    from launch.registry import leave_running
    from launch.server import StartFailed
    from launch.signals import signals_interrupt

    began = time.monotonic()
    planned = planned_figures(plan)
    report = _Report(as_json=as_json, planned=planned)
    with signals_interrupt():
        try:
            server = bring_up(
                wanted, needs_of(wanted, plan), on_progress=report.progress, on_findings=report.findings,
                on_wait=report.wait,
            )  # fmt: skip
        except PreflightFailed as failed:
            first = next(f for f in failed.preflight.findings if f.severity == "error")
            report.failed(time.monotonic() - began, first.code, first.message, first.remedy, None)
            return failed.exit_code
        except StartFailed as failed:
            causes = _causes(failed, plan)
            report.diagnosed(failed.failure.elapsed_s, causes, str(failed.failure.log_path))
            return failed.exit_code
        ended = None
        try:
            report.ready(server)
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


def _causes(failed: StartFailed, plan: Plan) -> list[Diagnosis]:
    from launch.diagnosis_types import Context
    from launch.explain import explain

    memory, subject, held = plan.memory, plan.subject, plan.concurrency
    context = Context(
        flags=dict(plan.flags),
        version=subject.vllm_version if subject is not None else None,
        total_bytes=memory.total_bytes.value if memory is not None else None,
        weights_bytes=memory.weights_bytes.value if memory is not None else None,
        planned_kv_bytes=memory.kv_cache_bytes.value if memory is not None else None,
        gpu_count=subject.gpu_count if subject is not None else None,
        target_concurrency=held.target if held is not None else None,
    )
    return explain(failed.failure, context)


class _Report:
    """What is said while it starts and runs: JSON lines on stdout, or words on stderr."""

    def __init__(self, *, as_json: bool, planned: dict[str, Any]) -> None:
        self.as_json = as_json
        self.planned = planned
        self._shown = ""

    def say(self, text: str) -> None:
        """A line for a person; stdout stays for JSON."""
        from kvadvise.output import tell

        tell(text)

    def progress(self, seen: StartProgress) -> None:
        """A phase once, and every wait without news."""
        if seen.text != self._shown and not (seen.still_s and seen.still_s % 30 > 1):
            self._shown = seen.text
            self.say(f"{seen.elapsed_s:5.0f} s  {seen.text}")

    def findings(self, found: tuple[Finding, ...]) -> None:
        """What was seen before the start."""
        for finding in found:
            self.say(f"{finding.severity}  {finding.code}: {finding.message}\n  -> {finding.remedy}")

    def wait(self, text: str) -> None:
        """Another start that is waited for."""
        self.say(text)

    def failed(self, seconds: float, code: str, message: str, remedy: str, evidence: str | None) -> None:
        """Nothing runs, and why."""
        reason = {"code": code, "message": message, "remedy": remedy, "evidence": evidence}
        if self.as_json:
            self._line("failed", seconds=seconds, diagnosis=reason)
            return
        self.say(f"not started: {code}: {message}")
        self.say(f"  -> {remedy}")
        if evidence:
            self.say(f"  seen: {evidence}")

    def diagnosed(self, seconds: float, causes: list[Diagnosis], log_path: str) -> None:
        """The engine came up to some point and no further."""
        first = causes[0]
        self.failed(seconds, first.code, first.message, first.remedy, first.evidence)
        for other in causes[1:]:
            self.say(f"also {other.code}: {other.message}\n  -> {other.remedy}")
        self.say(f"the engine's log is {log_path}")

    def ready(self, server: RunningServer) -> None:
        """It answers: figures beside the plan's."""
        from kvadvise.figures import side_by_side

        actual = actual_of(server)
        if self.as_json:
            self._line("ready", seconds=server.seconds, url=server.url, pid=server.pid, actual=actual)
            return
        self.say(f"ready after {server.seconds:.0f} s at {server.url}, process {server.pid}, log {server.log_path}")
        for line in side_by_side(self.planned, actual):
            self.say(line)

    def stopped(self, server: RunningServer, stopped: Stopped, seconds: float) -> None:
        """It is gone, and what it left."""
        if self.as_json:
            self._line("stopped", seconds=seconds, url=server.url, pid=server.pid)
        else:
            self.say(f"stopped after {stopped.seconds:.0f} s: {stopped.exit}")
        self.findings(stopped.findings)

    def _line(self, state: Any, **fields: Any) -> None:
        import json

        from kvadvise.output import emit
        from launch.state_line import state_line

        emit(json.dumps(state_line(state, planned=self.planned, **fields)))


def actual_of(server: RunningServer) -> dict[str, Figure]:
    """What the engine says of itself: its log, its metrics, its list of models."""
    import httpx

    from advisor.server_metrics import read_metrics
    from kvadvise.figures import actual_figures
    from launch.log_file import read_whole

    try:
        metrics = read_metrics(httpx.get(f"{server.url}/metrics", timeout=10, trust_env=False).text)
    except (httpx.HTTPError, ValueError):
        metrics = None
    lines = read_whole(str(server.log_path), begin=server.process.log_begin)
    return actual_figures(lines, metrics, server.max_model_len)
