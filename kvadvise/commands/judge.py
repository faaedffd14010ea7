"""`kvadvise judge`: judge a stored run again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvadvise.cli import debug_option
from kvadvise.commands.plan import complete_profile

if TYPE_CHECKING:
    from verify.judge.thresholds import Thresholds


@click.command("judge", short_help="Judge a stored run again, without a new load.")
@click.argument("directory", metavar="DIR")
@click.option(
    "--workload", metavar="NAME|FILE", shell_complete=complete_profile,
    help="Take `gate` and `slo` from this file; its load must be that of the run.",
)  # fmt: skip
@click.option("--out", metavar="DIR", help="Write all reports there; DIR itself replaces what is in it.")
@click.option("--json", "as_json", is_flag=True, help="Print kvadvise.verdict/1, and nothing else on stdout.")
@debug_option
def command(directory: str, workload: str | None, out: str | None, as_json: bool) -> int:
    """Judge the run that `verify` or `gate` stored in DIR, from its rows and its timeline.

    Without --workload it is held against what it was held against then. Nothing is written without --out.

    Exit code 0: pass. 1: a check failed. 2: DIR holds no whole run, or the file is for another load. 75: it could not
    be told.
    """
    from kvadvise.commands.verify import print_verdict
    from kvadvise.verification import exit_code
    from verify.judge.verdict import judge
    from verify.record.store import read_run

    place = Path(directory)
    run = read_run(place)
    limits = _given(workload, place) if workload is not None else _stored(place)
    verdict = judge(run, limits)
    if out is not None:
        from verify.reports.writer import write_reports

        write_reports(Path(out), run, verdict)
    print_verdict(verdict, as_json=as_json)
    return exit_code(verdict, inconclusive="75", interrupted=False)


def _stored(place: Path) -> Thresholds:
    """What the run was held against when it was made. Raises InvalidInput where that is not known."""
    import msgspec

    from advisor.errors import InvalidInput
    from verify.judge.thresholds import Thresholds

    path = place / "report.json"
    hint = "name the workload it was made for with --workload"
    try:
        document = msgspec.json.decode(path.read_bytes())
        return msgspec.convert(document["run"]["thresholds"], Thresholds)
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError) as error:
        raise InvalidInput(f"holds no thresholds: {error}", where=str(path), hint=hint) from error


def _given(reference: str, place: Path) -> Thresholds:
    """The thresholds of a file. Raises InvalidInput where it describes another load than the one that was run."""
    from advisor.errors import InvalidInput
    from advisor.workload_yaml import read_workload_bytes
    from kvadvise.workload_text import read_text
    from verify.judge.thresholds import thresholds_of

    text = read_text(reference)
    limits = thresholds_of(read_workload_bytes(text.question, text.label))
    before = _stored(place).load
    other = sorted(key for key in before.keys() | limits.load.keys() if before.get(key) != limits.load.get(key))
    if before and other:
        changed = ", ".join(f"{key} {before.get(key)} then, {limits.load.get(key)} here" for key in other)
        raise InvalidInput(
            f"is another load than the run in {place}: {changed}",
            where=text.label,
            hint="a run can be held against other thresholds; another load has to be verified",
        )
    return limits
