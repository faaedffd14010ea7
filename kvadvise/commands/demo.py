"""`kvadvise demo`: the whole way once, with a made-up model on this machine's CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvadvise.cli import debug_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from advisor.plan_types import Plan
    from kvadvise.demo_model import DemoModel
    from kvadvise.printing.look import Look
    from launch.engine_command import EngineCommand
    from launch.engine_entry import EngineEntry
    from launch.running_server import RunningServer, Stopped

_OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
_QUESTION = "How many requests fit?"
_ANSWER_TOKENS = 24
_SHOWN = 44
_SHOWN_PHASES = ("peak", "tail")
_OWN = Path(__file__).resolve().parents[2] / ".engine" / "bin" / "python"  # what `make engine` makes
_NO_ENGINE = "`make engine` installs one into .engine; --engine or KVADVISE_ENGINE name another"


@click.command("demo", short_help="Plan, start and gate a small made-up model on this machine's CPU.")
@click.option("--engine", metavar="PATH", help="A python that has vLLM for the CPU; else KVADVISE_ENGINE.")
@click.option("--keep", is_flag=True, help="Leave the server running; `kvadvise stop` ends it.")
@debug_option
def command(engine: str | None, keep: bool) -> int:
    """Make a small model with random weights, plan it for this machine's CPU, start vLLM from that plan, hold what the
    engine says against what was planned, ask it once, replay its load and judge that, and stop it. Nothing is
    downloaded.

    Exit code 0: every figure is as planned, and the load passed. 1: not so. 69: there is no vLLM for it, or it did not
    start. 130: interrupted, and nothing is left.
    """
    from kvadvise.printing.look import look_of_terminal
    from launch.signals import signals_interrupt

    with signals_interrupt():
        try:
            return _Demo(look_of_terminal()).run(engine, keep=keep)
        except KeyboardInterrupt:
            raise click.Abort from None


class _Demo:
    """One run; says each step as it is done."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self._step = 0

    def run(self, choice: str | None, *, keep: bool) -> int:
        """Every step in order; what was started is stopped on every way out."""
        import os

        from kvadvise.demo_model import demo_model
        from kvadvise.pipeline import plan
        from launch.engine_command import engine_command
        from launch.user_dirs import cache_dir

        entry, python = usable_engine(choice, os.environ)
        model = demo_model(python, cache_dir(os.environ), os.environ | _OFFLINE)
        self._model(model)
        made = plan(model.workload)
        self._plan(made, model)
        wanted = engine_command(entry, made.argv, host="127.0.0.1", port=_free_port(), drain_s=10, env=_OFFLINE)
        with self._start(wanted, made) as server:
            self._ready(server)
            is_as_planned = self._compare(made, server)
            self._ask(server)
            is_good = self._gate(made, model, server) and is_as_planned
            if keep:
                return self._leave(server, is_good)
            return self._stop(server.stop(), is_good)

    def _start(self, wanted: EngineCommand, made: Plan) -> RunningServer:
        from advisor.errors import EngineUnavailable
        from kvadvise.commands.launch import causes_of
        from kvadvise.printing.starting import starting_on_stderr
        from launch.bring_up import bring_up
        from launch.preflight import needs_of
        from launch.server import StartFailed

        self._head(f"vLLM {wanted.entry.version_text}", wanted.entry.python or wanted.entry.words[0])
        shown = starting_on_stderr()
        try:
            return bring_up(wanted, needs_of(wanted, made), on_progress=shown.show, on_wait=_tell)
        except StartFailed as failed:
            shown.end()
            first = causes_of(failed, made, wanted)[0]
            _tell(f"  seen: {first.evidence}\n  the engine's log is {failed.failure.log_path}")
            raise EngineUnavailable(f"{first.code}: {first.message}", hint=first.remedy) from None
        finally:
            shown.end()

    def _head(self, title: str, aside: str = "") -> None:
        from kvadvise.output import emit

        self._step += 1
        emit(f"{self._step}  {self.look.heading(title, aside)}")

    def _lines(self, *texts: str) -> None:
        from kvadvise.output import emit

        emit("\n".join(f"   {text}" for text in texts))

    def _model(self, model: DemoModel) -> None:
        how = "made just now" if model.was_made else "made by an earlier demo"
        self._head("A model", f"4 layers of random weights, {model.n_bytes / 1e6:.1f} MB, {how}")
        self._lines(str(model.directory))

    def _plan(self, made: Plan, model: DemoModel) -> None:
        from kvadvise.output import emit
        from kvadvise.printing.page import command as command_lines
        from kvadvise.printing.page import promise_line

        self._head("Its plan for this machine's CPU", promise_line(made.concurrency) if made.concurrency else "")
        emit("\n".join(f" {line}" for line in command_lines(made, self.look)[1:]))
        self._lines(f"why: kvadvise plan {model.workload}")

    def _ready(self, server: RunningServer) -> None:
        self._lines(f"answers after {server.seconds:.0f} s at {server.url}, process {server.pid}")

    def _compare(self, made: Plan, server: RunningServer) -> bool:
        """Whether every figure that the engine says is the planned one."""
        from kvadvise.commands.launch import actual_of
        from kvadvise.figures import planned_figures, side_by_side
        from kvadvise.output import emit

        self._head("Planned and actual")
        lines = side_by_side(planned_figures(made), actual_of(server))
        emit("\n".join(f" {line}" for line in lines))
        return all("equal" in line or "not said" in line for line in lines[1:])

    def _ask(self, server: RunningServer) -> None:
        import time

        import httpx

        self._head("One answer")
        body = {
            "model": server.command.served_model_name,
            "messages": [{"role": "user", "content": _QUESTION}],
            "max_tokens": _ANSWER_TOKENS,
            "temperature": 0,
        }
        began = time.monotonic()
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120, trust_env=False)
        answer.raise_for_status()
        seconds, got = time.monotonic() - began, answer.json()
        text = str(got["choices"][0]["message"]["content"]).encode("ascii", "replace").decode()
        self._lines(
            f"{_QUESTION!r} -> {' '.join(text.split())[:_SHOWN]!r}",
            f"{got['usage']['completion_tokens']} tokens in {seconds:.1f} s",
        )

    def _gate(self, made: Plan, model: DemoModel, server: RunningServer) -> bool:
        """The workload's load replayed against the server, and what `kvadvise gate` would say of it."""
        from kvadvise.commands.gate import probes_of
        from kvadvise.commands.verify import hooks_of, play
        from kvadvise.verification import judged, order_of, planned_subject
        from verify.reports.figures import kv_rows
        from verify.reports.text import verdict_line
        from verify.session import Session

        out = model.workload.parent / "report"
        subject = planned_subject(str(model.workload), made)
        order = order_of(subject, url=server.url, model=server.command.served_model_name)
        session = Session(order, probes_of(server, subject), hooks_of(_tell))
        bug = play(session)
        run = session.recorded()
        verdict = judged(run, subject, out)
        if bug is not None:
            raise bug
        if run.ended == "interrupted":
            raise KeyboardInterrupt
        self._head("Its load, replayed", f"{len(run.rows)} requests in {verdict.run['seconds']:.0f} s")
        blocks = verdict.kv["usable_blocks"]
        for phase, peak, share, *_ in kv_rows(verdict):
            if phase in _SHOWN_PHASES:
                self._lines(f"{phase:<8} {peak:>4} of {blocks} KV blocks at the most, {share}")
        self._lines(verdict_line(verdict), f"the report: {out / 'report.html'}")
        return verdict.verdict == "pass"

    def _leave(self, server: RunningServer, is_as_planned: bool) -> int:
        import os

        from launch.registry import leave_running

        leave_running(server, os.environ)
        self._head("It runs on", f"`kvadvise stop --port {server.command.port}` ends it")
        return 0 if is_as_planned else 1

    def _stop(self, stopped: Stopped, is_as_planned: bool) -> int:
        self._head("Stopped", f"after {stopped.seconds:.0f} s, {stopped.exit}")
        if stopped.findings:
            self._lines(*(f"{finding.severity} {finding.message}" for finding in stopped.findings))
            return 69
        self._lines("every process has ended, and the port is free")
        return 0 if is_as_planned else 1


def usable_engine(choice: str | None, env: Mapping[str, str], own: Path = _OWN) -> tuple[EngineEntry, str]:
    """The vLLM to use and its python. Raises EngineUnavailable where there is none for the CPU."""
    from advisor.errors import EngineUnavailable
    from launch.engine_entry import find_engine

    if choice is None and not env.get("KVADVISE_ENGINE") and own.exists():
        choice = str(own)
    try:
        entry = find_engine(choice, env)
    except EngineUnavailable as error:
        raise EngineUnavailable(error.what, where=error.where, hint=_NO_ENGINE) from None
    if entry.kind == "docker":
        raise EngineUnavailable("there is no vLLM here outside a container", hint=_NO_ENGINE)
    if entry.python is None:
        raise EngineUnavailable(f"the python of {' '.join(entry.words)} is not known", hint=_NO_ENGINE)
    if "cpu" not in entry.package and "cpu" not in entry.version_text:
        raise EngineUnavailable(f"the vLLM of {entry.python} is not one for the CPU", hint=_NO_ENGINE)
    return entry, entry.python


def _free_port() -> int:
    """A port of the loopback that nobody has just now."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _tell(text: str) -> None:
    from kvadvise.output import tell

    tell(text)
