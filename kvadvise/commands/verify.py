"""`kvadvise verify`: replay a profile's load against a running server and judge it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kvadvise.cli import debug_option
from kvadvise.commands.plan import complete_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvadvise.verification import Inconclusive, Subject
    from verify.judge.types import Verdict
    from verify.record.types import Run
    from verify.session import Order, Session
    from verify.watch.probes import Probes


class RunOptions(NamedTuple):
    """What the options that `verify` and `gate` share were given."""

    out: str
    phases: tuple[str, ...]
    minutes: float | None
    seed: int
    processes: int
    settings: tuple[str, ...]
    inconclusive: Inconclusive
    hang_after: float
    dry_run: bool
    as_json: bool

    def order(self, subject: Subject, url: str, model: str | None, **more: Any) -> Order:
        """The order for a session. Raises InvalidInput for an address or a phase that is none."""
        from kvadvise.verification import order_of

        return order_of(
            subject, url=url, model=model, phases=self.phases, minutes=self.minutes, seed=self.seed,
            processes=self.processes, hang_after_s=self.hang_after, **more,
        )  # fmt: skip


def run_options(function: Callable[..., int]) -> Any:
    """Adds the options `verify` and `gate` share; the command gets them together, as `run`."""

    @functools.wraps(function)
    def collected(**given: Any) -> int:
        run = RunOptions(**{name: given.pop(name) for name in RunOptions._fields})
        return function(run=run, **given)

    command: Any = collected
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    click.option("--out", default="kvadvise-report", show_default=True, metavar="DIR", help="Where reports go."),
    click.option("--phases", multiple=True, metavar="NAME,...", help="Play these phases only."),
    click.option("--minutes", type=click.FloatRange(min=0.1), metavar="N", help="Longest time for the load."),
    click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Another load of the same kind."),
    click.option(
        "--processes",
        type=click.IntRange(1, 64),
        default=1,
        metavar="N",
        help="Client processes; one is enough for 1,000 streams.",
    ),
    click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a key of the workload first."),
    click.option(
        "--inconclusive",
        type=click.Choice(["75", "pass", "fail"]),
        default="75",
        show_default=True,
        help="How to exit where it could not be told, for pipelines without a third state.",
    ),
    click.option(
        "--hang-after",
        type=click.FloatRange(min=1),
        default=120.0,
        show_default=True,
        metavar="SECONDS",
        help="A busy server without a new token for so long is hung.",
    ),
    click.option("--dry-run", is_flag=True, help="Print what would be sent, send nothing."),
    click.option("--json", "as_json", is_flag=True, help="Print kvadvise.verdict/1, and nothing else on stdout."),
)


@click.command("verify", short_help="Replay a profile's load against a running server and judge it.")
@click.option(
    "--profile",
    "reference",
    required=True,
    metavar="NAME|FILE",
    shell_complete=complete_profile,
    help="A profile, a workload file, or a plan as `plan --json` printed it.",
)
@click.option("--url", required=True, metavar="URL", help="The server: http://host:8000.")
@click.option("--served-model", metavar="NAME", help="The name the server lists the model under, if not the plan's.")
@click.option("--log", metavar="FILE", help="The engine's log, where it can be read from here.")
@click.option("--ca-file", metavar="FILE", help="Certificates to trust for https, as PEM.")
@run_options
@debug_option
def command(
    reference: str,
    url: str,
    served_model: str | None,
    log: str | None,
    ca_file: str | None,
    run: RunOptions,
) -> int:
    """Replay the load of a profile against the server at URL, and judge whether it holds what the plan promised.

    The key of a server that wants one is KVADVISE_API_KEY in the environment. Exit code 0: pass. 1: a check failed.
    2: the input is wrong. 69: the server cannot be reached. 75: it could not be told. 130: interrupted; reports are
    written all the same.
    """
    from kvadvise.verification import log_probe, subject_of
    from verify.watch.probes import Probes

    subject = subject_of(reference, run.settings)
    order = run.order(subject, url, served_model or served_name(subject), ca_file=ca_file)
    if run.dry_run:
        return show_schedule(order)
    return run_verification(
        order, subject, Path(run.out), Probes(log=log_probe(log) if log is not None else None),
        inconclusive=run.inconclusive, as_json=run.as_json,
    )  # fmt: skip


def served_name(subject: Subject) -> str | None:
    """The name the plan's command serves the model under."""
    from launch.engine_command import option_value

    argv = subject.plan.argv
    return (option_value(argv, "--served-model-name") or argv[2]) if len(argv) > 2 else subject.workload.model.id


def show_schedule(order: Order) -> int:
    """What would be sent to a server as planned."""
    from kvadvise.output import emit
    from verify.load.describe import describe
    from verify.record.types import Served
    from verify.session import limits_of, scheduled

    schedule = scheduled(order, limits_of(order.planned, Served(url=order.url)))
    for line in describe(schedule):
        emit(line)
    return 0


def run_verification(
    order: Order,
    subject: Subject,
    out: Path,
    probes: Probes,
    *,
    inconclusive: Inconclusive,
    as_json: bool,
) -> int:
    """A session from its first question to its reports; the exit code."""
    from advisor.errors import EngineUnavailable
    from kvadvise.output import tell
    from kvadvise.verification import forget_old_reports, not_started
    from launch.signals import signals_interrupt
    from verify.session import Session

    forget_old_reports(out)
    with signals_interrupt():
        session = Session(order, probes, hooks_of(tell))
        try:
            bug = play(session)
        except EngineUnavailable as error:
            show_verdict(not_started(error, "unreachable", subject, out), out, as_json=as_json)
            return error.exit_code
        run = session.recorded()
    return finish(run, subject, out, inconclusive=inconclusive, as_json=as_json, bug=bug)


def play(session: Session) -> Exception | None:
    """Run a session; what it has recorded stands, interrupted or not. A bug is given back, to be raised once the
    reports are written.

    Raises EngineUnavailable where nobody answers, InvalidInput for a load that cannot be made.
    """
    from advisor.errors import KvadviseError
    from kvadvise.output import tell

    try:
        session.run()
    except KeyboardInterrupt:
        tell("interrupted")
    except KvadviseError:
        raise
    except Exception as error:  # noqa: BLE001 - raised again by finish
        return error
    return None


def hooks_of(say: Callable[[str], None]) -> Any:
    """Commentary on stderr."""
    from kvadvise.printing.run_page import Commentary
    from verify.session import Hooks

    said = Commentary(say)
    return Hooks(on_schedule=said.schedule, on_phase=said.phase, on_snapshot=said.snapshot)


def finish(
    run: Run,
    subject: Subject,
    out: Path,
    *,
    inconclusive: Inconclusive,
    as_json: bool,
    notes: Sequence[str] = (),
    bug: Exception | None = None,
) -> int:
    """Judge, write, show; what signals come meanwhile wait until that is done."""
    from kvadvise.verification import exit_code, judged
    from launch.signals import signals_wait

    with signals_wait() as late:
        verdict = judged(run, subject, out, notes)
        show_verdict(verdict, out, as_json=as_json)
    if bug is not None:
        raise bug
    return exit_code(verdict, inconclusive=inconclusive, interrupted=run.ended == "interrupted" or bool(late))


def show_verdict(verdict: Verdict, out: Path, *, as_json: bool) -> None:
    """The verdict, and where its reports are; a log that keeps only stderr has its line too."""
    from kvadvise.output import tell
    from verify.reports.text import verdict_line

    print_verdict(verdict, as_json=as_json)
    if as_json:
        tell(verdict_line(verdict))
    tell(f"reports are in {out}")


def print_verdict(verdict: Verdict, *, as_json: bool) -> None:
    """The verdict on stdout, for a program or for a person."""
    from kvadvise.output import emit
    from kvadvise.printing.look import look_of_terminal
    from verify.reports.machine import report_json
    from verify.reports.text import lines

    if as_json:
        emit(report_json(verdict).decode().rstrip())
        return
    look = look_of_terminal()
    emit("\n".join(lines(verdict, width=look.width, paint=look.paint)))
