"""How text looks on the terminal at hand: its width, whether it has colour, whether it can show more than
ASCII.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TextIO

import msgspec

_WIDEST = 100  # longer lines are hard to read, however wide the terminal is
_NARROWEST = 72  # what the widest table takes
_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a printer may use. Nothing is said by colour alone."""

    width: int = 80
    colour: bool = False
    unicode: bool = False

    def paint(self, text: str, *styles: str) -> str:
        """The text in these styles, or as it is without colour."""
        if not self.colour or not text:
            return text
        codes = ";".join(str(_STYLES[style]) for style in styles)
        return f"\x1b[{codes}m{text}\x1b[0m"

    def heading(self, title: str, aside: str = "") -> str:
        """A section's first line."""
        return self.paint(title, "bold") + (self.paint(f"  {aside}", "dim") if aside else "")

    def rule(self, title: str) -> str:
        """A line across the page that opens what belongs to `title`."""
        stroke = "─" if self.unicode else "-"
        return self.paint(f"{stroke * 2} {title} ", "dim") + self.paint(
            stroke * max(2, self.width - len(title) - 4), "dim"
        )

    def wrap(self, text: str, *, indent: int, first: str | None = None) -> list[str]:
        """Lines of the text inside the width, all but the first indented by `indent`; `first` opens the
        first line.
        """
        lead = " " * indent if first is None else first
        return textwrap.wrap(
            text,
            width=self.width,
            initial_indent=lead,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [lead.rstrip()]

    def bar(self, fraction: float, width: int) -> str:
        """A bar whose length is `fraction` (0 to 1) of `width`; what is there at all is seen."""
        if fraction <= 0:
            return ""
        if not self.unicode:
            return "#" * max(1, round(min(fraction, 1) * width))
        eighths = max(1, round(min(fraction, 1) * width * 8))
        return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]

    @property
    def to(self) -> str:
        """The word between the ends of a band."""
        return "–" if self.unicode else "-"


def look_of_terminal(stream: TextIO | None = None) -> Look:
    """The look of a stream, stdout unless another is given: colour only on a terminal, and never where NO_COLOR is set (https://no-
    color.org).
    """
    stream = sys.stdout if stream is None else stream
    is_terminal = stream.isatty()
    colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    encoding = (stream.encoding or "ascii").lower().replace("-", "")
    return Look(width=_width(stream) if is_terminal else 80, colour=colour, unicode=encoding.startswith("utf"))


def columns(rows: Iterable[Sequence[str]], *, right: Iterable[int] = (), gap: int = 2) -> list[str]:
    """Rows as aligned columns; those whose numbers are in `right` end flush, the others start flush."""
    table = [list(row) for row in rows]
    if not table:
        return []
    ends = set(right)
    widths = [max(_length(row[n]) for row in table) for n in range(len(table[0]))]
    lines = []
    for row in table:
        cells = [
            " " * (widths[n] - _length(cell)) + cell if n in ends else cell + " " * (widths[n] - _length(cell))
            for n, cell in enumerate(row)
        ]
        lines.append((" " * gap).join(cells).rstrip())
    return lines


def _length(text: str) -> int:
    return len(_ESCAPES.sub("", text))


def _width(stream: TextIO) -> int:
    try:
        columns_there = os.get_terminal_size(stream.fileno()).columns
    except OSError:
        columns_there = 80
    return max(_NARROWEST, min(columns_there, _WIDEST))
