"""Bars, columns, wrapping, and when a terminal gets colour."""

from __future__ import annotations

import io
import sys

import pytest

from kvadvise.printing.look import Look, columns, look_of_terminal


@pytest.mark.parametrize(
    ("fraction", "ascii_bar", "unicode_bar"),
    [
        (0.0, "", ""),
        (0.001, "#", "▏"),
        (0.5, "#####", "█████"),
        (0.56, "######", "█████▋"),
        (1.0, "##########", "██████████"),
        (7.0, "##########", "██████████"),
    ],
)
def test_bar(fraction: float, ascii_bar: str, unicode_bar: str) -> None:
    assert Look().bar(fraction, 10) == ascii_bar
    assert Look(unicode=True).bar(fraction, 10) == unicode_bar


def test_columns_align_coloured_cells_too() -> None:
    look = Look(colour=True)
    lines = columns([("a", "1"), (look.paint("bb", "red"), "22")], right=(1,))
    assert lines == ["a    1", "\x1b[31mbb\x1b[0m  22"]


def test_wrapping_never_breaks_a_word() -> None:
    assert Look(width=12).wrap("one twothreefourfive six", indent=2) == ["  one", "  twothreefourfive", "  six"]
    assert Look(width=12).wrap("", indent=2, first="- ") == ["-"]


class Terminal(io.StringIO):
    encoding = "UTF-8"

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError("not a real one")


@pytest.mark.parametrize(
    ("env", "colour"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=str,
)
def test_colour_on_a_terminal(env: dict[str, str], colour: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert look_of_terminal() == Look(width=80, colour=colour, unicode=True)


def test_no_colour_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert look_of_terminal() == Look(width=80, colour=False, unicode=False)
