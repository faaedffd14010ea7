"""Where a process starts and ends: one error handler, one place that knows what an exit code means.

0 good; 1 a gate check failed; 2 invalid input or usage; 3 no configuration fits; 69 the engine did not
start or cannot be reached; 70 a bug in kvadvise; 75 inconclusive; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

EXIT_GOOD = 0
EXIT_INVALID = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130


def main() -> None:
    """Entry point of the `kvadvise` command; never returns, never shows a traceback unless --debug asks for
    it.
    """
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # so early that even click was not there
        code = EXIT_INTERRUPTED
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """One command from its arguments to its exit code; what went wrong is said on stderr."""
    import click

    from advisor.errors import KvadviseError
    from kvadvise.cli import Session, group

    session = Session()
    try:
        outcome = group.main(list(arguments), prog_name="kvadvise", standalone_mode=False, obj=session)
    except click.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return EXIT_INVALID  # click's own code for a file it cannot open is 1, which is a failed gate here
    except KvadviseError as error:
        _tell(session.debug, error, f"error: {error}")
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the one place where an unknown error becomes a message
        _tell(session.debug, error, _bug_report(error))
        return EXIT_BUG
    return outcome if isinstance(outcome, int) else EXIT_GOOD


def _tell(debug: bool, error: BaseException, message: str) -> None:
    import click

    if debug:
        import traceback

        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    click.echo(message, err=True)


def _bug_report(error: Exception) -> str:
    """One line: what happened, where in kvadvise, and how to see the rest."""
    place = ""
    step = error.__traceback__
    while step is not None:
        module = step.tb_frame.f_globals.get("__name__", "?")
        if module.split(".")[0] in ("kvadvise", "advisor", "launch", "verify"):
            place = f" in {module}, line {step.tb_lineno}"
        step = step.tb_next
    what = " ".join(f"{type(error).__name__}: {error}".split())
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"bug in kvadvise: {what}{place}{notes}; run `kvadvise --debug ...` for the traceback"
