"""The error handler: what becomes of every kind of error, and of a reader that goes away."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import click
import pytest

from advisor.errors import EngineUnavailable, InvalidInput, KvadviseError, NotUnderstood
from kvadvise import cli, output
from kvadvise.main import run


def fails_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command("boom")
    @cli.debug_option
    def boom() -> None:
        raise error

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: boom)
    monkeypatch.setattr(cli, "COMMANDS", ("boom",))


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InvalidInput("no", where="w.yaml:3", hint="yes"), 2, "error: w.yaml:3: no\nhint: yes\n"),
        (NotUnderstood("what is it"), 3, "error: what is it\n"),
        (EngineUnavailable("gone"), 69, "error: gone\n"),
        (KvadviseError("odd"), 70, "error: odd\n"),
        (click.ClickException("not like this"), 2, "Error: not like this\n"),
        (click.FileError("w.yaml", "locked"), 2, "Error: Could not open file 'w.yaml': locked\n"),
        (KeyboardInterrupt(), 130, "\n"),
        (click.Abort(), 130, ""),
    ],
)
def test_exit_codes(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails_with(error, monkeypatch)
    assert run(["boom"]) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", said)


def test_a_bug_is_one_line_that_says_how_to_see_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = ValueError("two\nlines")
    error.add_note("while planning w.yaml")
    fails_with(error, monkeypatch)
    assert run(["boom"]) == 70
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "ValueError: two lines" in said
    assert "while planning w.yaml" in said
    assert "--debug" in said


@pytest.mark.parametrize("arguments", [["--debug", "boom"], ["boom", "--debug"]])
def test_debug_shows_the_traceback_and_keeps_the_code(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fails_with(InvalidInput("no"), monkeypatch)
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said
    assert said.endswith("error: no\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plna"], "Did you mean `plan`?"),
        (["workload.yaml"], "Did you mean `kvadvise plan workload.yaml`?"),
        (["quux"], "No such command 'quux'"),
        (["plan"], "Missing FILE"),
        (["plan", "w.yaml", "--jsn"], "--json"),
        (["plan", "w.yaml", "--json", "--format", "argv"], "exclude one another"),
        (["plan", "a.yaml", "b.yaml", "--save", "x"], "--save takes one FILE"),
        (["plan", "-", "-"], "stdin can be read only once"),
        (["plan", "a.yaml", "--force"], "--force belongs to --save"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
    ],
)
def test_usage_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == "kvadvise 0.1.0\n"


def test_a_full_disk_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("click.echo", full)
    monkeypatch.setattr("os.dup2", lambda *_: None)
    with pytest.raises(InvalidInput, match="standard output: cannot write: No space left on device"):
        output.emit("x")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    script = (
        "from kvadvise.output import emit, tell\n"
        "for n in range(20000): emit('a line that nobody reads ' * 4)\n"
        "tell('done')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 0
    assert said == b"done\n"
