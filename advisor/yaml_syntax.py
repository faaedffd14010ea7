"""What a parser's complaint means for the person who wrote the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from advisor.problems import Problem

if TYPE_CHECKING:
    import yaml

_SYNTAX_HINTS = (  # part of what libyaml or PyYAML says -> what usually helps
    ("\\t", "indent with spaces, YAML takes no tabs"),
    (
        "mapping values are not allowed",
        "quote a value that holds `: `, or check the indentation of this line",
    ),
    ("cannot start any token", "quote a value that starts with a special character"),
    ("expected ',' or '}'", "close the `{` with `}` and put commas between its entries"),
    ("expected ',' or ']'", "close the `[` with `]` and put commas between its entries"),
    ("end of stream", "close the quote or bracket"),
    ("could not find expected ':'", "write `key: value`, with a blank after the colon"),
    ("expected key", "check the indentation of this line"),
    ("expected <block end>", "check the indentation of this line"),
    ("escape", "in double quotes a backslash starts an escape; use single quotes"),
)


def syntax_problem(error: yaml.MarkedYAMLError, text: str) -> Problem:
    """The problem of text that is no YAML, at the line where the parser gave up."""
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 1
    said = ", ".join(part for part in (error.problem, error.context) if part)
    lines = text.splitlines()
    source = lines[line - 1] if line <= len(lines) else ""
    indent = source[: len(source) - len(source.lstrip())]
    clue = "\\t" if "\t" in indent else said
    hint = next((hint for part, hint in _SYNTAX_HINTS if part in clue), "")
    return Problem("", line, f"is not YAML: {said}", hint)
