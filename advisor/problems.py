"""What is wrong in a file the user wrote: every problem at once, each with its key and its line."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from advisor.errors import InvalidInput

PROBLEMS_AT_MOST = 200  # found in one file; what is beyond them helps nobody
_SHOWN_PROBLEMS = 40
_SHOWN_CHARACTERS = 60


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong: where, what it is, and what would be right."""

    key: str  # dotted; empty for the file as a whole
    line: int  # 1-based
    message: str
    expected: str = ""

    def where(self, file: str) -> str:
        """File, line and key as messages name them."""
        place = f"{file}:{self.line}"
        return f"{place}: {self.key}" if self.key else place

    def text(self, file: str) -> str:
        """The problem on one line."""
        line = f"{self.where(file)}: {self.message}"
        return f"{line}; {self.expected}" if self.expected else line


class InvalidWorkload(InvalidInput):
    """A workload file is wrong. `problems` holds all of them in the order of their lines, never none.

    `what`, `where` and `hint` are those of the first; as text it is one line for each.
    """

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = tuple(sorted(problems, key=lambda problem: problem.line))
        first = self.problems[0]
        super().__init__(first.message, where=first.where(file), hint=first.expected)

    def __str__(self) -> str:
        lines = [problem.text(self.file) for problem in self.problems[:_SHOWN_PROBLEMS]]
        rest = len(self.problems) - len(lines)
        return "\n".join([*lines, f"... and {rest} more"] if rest else lines)


def shown(text: str) -> str:
    """Text from a file as a message may show it: on one line, nothing a terminal acts on, not too long."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:200])
    return safe if len(safe) <= _SHOWN_CHARACTERS else safe[: _SHOWN_CHARACTERS - 3] + "..."


def written(value: float) -> str:
    """A number as a person would write it, to six significant digits."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.6g}"
