"""A start as it goes on: on a terminal a line that moves, with a bar where the log counts; elsewhere a line a phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kvadvise.printing.look import Look, look_of_terminal

if TYPE_CHECKING:
    from launch.start_progress import StartProgress

_BAR_WIDTH = 20
_AGAIN_S = 30.0  # between two lines of one phase
_REWRITE = "\r\x1b[2K"


class Starting:
    """Writes what is seen of a start through `write`; `is_live` is whether that is a terminal, whose line may move."""

    def __init__(self, write: Callable[[str], object], look: Look, *, is_live: bool) -> None:
        self._write = write
        self._look = look
        self._is_live = is_live
        self._phase: object = None
        self._line = ""
        self._said_s = 0.0

    def show(self, seen: StartProgress) -> None:
        """What is known now; called as often as one likes."""
        if self._is_live:
            self._move(seen)
        elif self._is_news(seen):
            self._write(f"{_text(seen)}\n")

    def end(self) -> None:
        """Leave the moving line as it is: something else is written next."""
        if self._line and self._is_live:
            self._write("\n")
            self._line = ""

    def _move(self, seen: StartProgress) -> None:
        line = (_text(seen) + self._bar(seen.progress.fraction))[: self._look.width - 1]
        if seen.progress.phase != self._phase:
            self.end()
            self._phase = seen.progress.phase
        if line != self._line:
            self._write((_REWRITE if self._line else "") + line)
            self._line = line

    def _is_news(self, seen: StartProgress) -> bool:
        """A phase once; within one, what has changed or is still waited for every half minute."""
        is_next = seen.progress.phase != self._phase
        is_news = is_next or (seen.text != self._line and seen.elapsed_s - self._said_s >= _AGAIN_S)
        if is_news:
            self._phase, self._line, self._said_s = seen.progress.phase, seen.text, seen.elapsed_s
        return is_news

    def _bar(self, fraction: float | None) -> str:
        if fraction is None:
            return ""
        return f"  {self._look.bar(fraction, _BAR_WIDTH):<{_BAR_WIDTH}} {fraction:.0%}"


def _text(seen: StartProgress) -> str:
    return f"{seen.elapsed_s:7.0f} s  {seen.text}"


def starting_on_stderr() -> Starting:
    """For the stderr at hand."""
    import sys
    from functools import partial

    from kvadvise.output import tell

    return Starting(partial(tell, ends_line=False), look_of_terminal(sys.stderr), is_live=sys.stderr.isatty())
