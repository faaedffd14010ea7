"""The way out: everything a command says goes through here.

stdout carries what was asked for and may be piped; stderr carries what a person should know besides.
"""

from __future__ import annotations

import os
import sys

import click

from advisor.errors import InvalidInput


def emit(text: str) -> None:
    """Write to stdout. A reader that has gone away (`| head`) is no error: the rest is dropped, the exit
    code stays.

    Raises InvalidInput where stdout cannot take it, such as a full disk.
    """
    try:
        click.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
    except OSError as error:
        _drop_stdout()
        raise InvalidInput(f"cannot write: {error.strerror}", where="standard output") from error


def tell(text: str, *, ends_line: bool = True) -> None:
    """Write to stderr; a stderr that is gone is nobody's concern."""
    try:
        click.echo(text, err=True, nl=ends_line)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _drop_stdout() -> None:
    """Let whatever is still buffered go nowhere, so that the interpreter's own flush at exit is quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
