"""Readers of one value of a workload file: a whole number, a share, a size, a choice, a section of keys.

A field takes a node and gives a value, or raises WrongValueError with what is wrong and what was expected.
Nothing is converted that may have been meant differently: `7k`, `"32"` and `1200.0` are problems, and the
message says what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Mapping as MappingOf
from typing import TYPE_CHECKING, Any

import msgspec

from advisor.problems import PROBLEMS_AT_MOST, Problem, shown, written
from advisor.yaml_nodes import Broken, Mapping, Node, Scalar, Sequence, join

if TYPE_CHECKING:
    from advisor.unit_hints import Quantity

_COUNT_AT_MOST = 10**9
_LINE_AT_MOST = 1000  # characters of a name or path


class WrongValueError(Exception):
    """A value is not what its key takes."""

    def __init__(self, message: str, expected: str) -> None:
        super().__init__(message)
        self.message = message
        self.expected = expected


class Reading:
    """One pass over a file: the problems found and the line of every key."""

    def __init__(self, problems: list[Problem], elsewhere: MappingOf[str, tuple[str, ...]]) -> None:
        self.problems = problems
        self.elsewhere = elsewhere  # section -> the keys it takes, for "it belongs under"
        self.lines: dict[str, int] = {}

    @property
    def hopeless(self) -> bool:
        """Whether so much is wrong that the rest need not be read."""
        return len(self.problems) >= PROBLEMS_AT_MOST

    def wrong(self, key: str, line: int, message: str, expected: str = "") -> None:
        """Note a problem."""
        self.problems.append(Problem(key, line, message, expected))


Field = Callable[[Reading, Node, str], Any]
Check = Callable[[Reading, str, dict[str, Any]], None]


def _expecting(expected: str, instead: str | None) -> str:
    return f"expected {expected}: write {instead}" if instead is not None else f"expected {expected}"


def _meant(scalar: Scalar, quantity: Quantity) -> str | None:
    from advisor.unit_hints import meant  # here, for a good file needs no hints

    return meant(scalar.text, quantity)


def said(node: Node) -> str:
    """A value in words, for messages."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    if not isinstance(node, Scalar) or node.value is None:
        return "empty"
    if isinstance(node.value, str):
        return f'the text "{shown(node.text)}"'
    return shown(node.text)


def _scalar(node: Node, expected: str) -> Scalar:
    if not isinstance(node, Scalar) or node.value is None:
        raise WrongValueError(f"is {said(node)}", f"expected {expected}")
    return node


def whole(quantity: Quantity, minimum: int = 1, maximum: int = _COUNT_AT_MOST) -> Field:
    """A whole number, written as one."""
    expected = f"a whole number of {quantity}, {minimum} or more"

    def read(_reading: Reading, node: Node, _key: str) -> int:
        scalar = _scalar(node, expected)
        value = scalar.value
        if isinstance(value, bool) or not isinstance(value, int):
            raise WrongValueError(
                f"is {said(node)}, not a whole number", _expecting(expected, _meant(scalar, quantity))
            )
        if value < minimum:
            raise WrongValueError(f"is {value}", f"expected {expected}")
        if value > maximum:
            raise WrongValueError(f"is {shown(scalar.text)}", f"expected at most {maximum}")
        return value

    return read


def number(quantity: Quantity, *, zero: bool = False, maximum: float = math.inf) -> Field:
    """A finite number above 0 (or from 0, with `zero`), in the unit its key names."""
    unit = {"seconds": "seconds", "gib": "GiB"}.get(quantity, "")
    expected = f"a number{' of ' + unit if unit else ''}, {'0 or more' if zero else 'more than 0'}"

    def read(_reading: Reading, node: Node, _key: str) -> float:
        scalar = _scalar(node, expected)
        value = scalar.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WrongValueError(f"is {said(node)}, not a number", _expecting(expected, _meant(scalar, quantity)))
        if value < 0 or (value == 0 and not zero):
            raise WrongValueError(f"is {shown(scalar.text)}", f"expected {expected}")
        if value > maximum:
            instead = f": write {written(value / 1000)} if milliseconds are meant" if unit == "seconds" else ""
            raise WrongValueError(f"is {shown(scalar.text)}", f"expected at most {written(maximum)}{instead}")
        return float(value)

    return read


def share(*, zero: bool = False) -> Field:
    """A share of a whole, above 0 (or from 0, with `zero`) and up to 1."""
    expected = f"a share {'from 0' if zero else 'above 0'} and up to 1"

    def read(_reading: Reading, node: Node, _key: str) -> float:
        scalar = _scalar(node, expected)
        value = scalar.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WrongValueError(f"is {said(node)}, not a number", _expecting(expected, _meant(scalar, "fraction")))
        if value < 0 or (value == 0 and not zero):
            raise WrongValueError(f"is {shown(scalar.text)}", f"expected {expected}")
        if value > 1:
            raise WrongValueError(
                f"is {shown(scalar.text)}",
                _expecting(expected, written(value / 100) if 2 <= value <= 100 else None),
            )
        return float(value)

    return read


def text(noun: str, *, long: bool = False) -> Field:
    """Text that is not empty; on one line unless `long`."""
    expected = noun

    def read(_reading: Reading, node: Node, _key: str) -> str:
        scalar = _scalar(node, expected)
        if not isinstance(scalar.value, str):
            raise WrongValueError(
                f"is {said(node)}, not text",
                f'expected {expected}: write "{shown(scalar.text)}" if it is one',
            )
        if not scalar.value.strip():
            raise WrongValueError("is empty text", f"expected {expected}")
        if not long and len(scalar.value) > _LINE_AT_MOST:
            raise WrongValueError(f"has {len(scalar.value)} characters", f"expected {expected}")
        if not long and not scalar.value.isprintable():
            raise WrongValueError(f"is {said(node)}", f"expected {expected} on one line")
        return scalar.value.strip()

    return read


def choice(*options: str) -> Field:
    """One of a few words."""
    expected = f"{'one of ' if len(options) > 1 else ''}{', '.join(options)}"

    def read(_reading: Reading, node: Node, _key: str) -> str:
        value = _scalar(node, expected).text
        if value not in options:
            from advisor.key_hints import nearest

            near = nearest(value, options)
            raise WrongValueError(
                f"is {said(node)}", f"expected {expected}" + (f"; did you mean {near}?" if near else "")
            )
        return value

    return read


def text_or(name: str, field: Field, noun: str, section: Section) -> Field:
    """Text read by `field`, which stands for a mapping with the one key `name`; or the mapping."""

    def read(reading: Reading, node: Node, key: str) -> dict[str, Any]:
        if isinstance(node, Mapping):
            values: dict[str, Any] = section(reading, node, key)
            return values
        if isinstance(node, Sequence):
            raise WrongValueError("is a list", f"expected {noun}, or a mapping of {', '.join(section.fields)}")
        return {name: field(reading, node, key)}

    return read


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping with known keys. An empty one is as good as none, unless a key is required.

    `required` pairs keys of which one must be there with what it would hold. `check` sees the values read
    and notes what does not go together.
    """

    fields: dict[str, Field]
    required: tuple[tuple[tuple[str, ...], str], ...] = ()
    example: str = ""
    check: Check | None = None

    def __call__(self, reading: Reading, node: Node, key: str) -> dict[str, Any]:
        """The values by key; what is wrong with one is noted, not raised."""
        values: dict[str, Any] = {}
        entries = self._entries(node)
        for entry in entries:
            if reading.hopeless:
                return values
            dotted = join(key, entry.key)
            reading.lines[dotted] = entry.line
            field = self.fields.get(entry.key)
            if field is None:
                instead = self._instead(reading, entry.key, entry.node)
                reading.wrong(dotted, entry.line, f"unknown key `{shown(entry.key)}`", instead)
                continue
            value = attempt(field, reading, entry.node, dotted)
            if value is not WRONG:
                values[entry.key] = value
        self._missing(reading, key, node.line, {entry.key for entry in entries})
        if self.check is not None:
            self.check(reading, key, values)
        return values

    def _entries(self, node: Node) -> Any:
        if isinstance(node, Mapping):
            return node.entries
        if isinstance(node, Scalar) and node.value is None and not node.text:
            return []
        raise WrongValueError(
            f"is {said(node)}, not a mapping", f"expected {self.example or 'keys: ' + ', '.join(self.fields)}"
        )

    def _missing(self, reading: Reading, key: str, line: int, given: set[str]) -> None:
        for names, holding in self.required:
            if given.isdisjoint(names):
                place = reading.lines.get(key, line)
                reading.wrong(join(key, names[0]), place, "is missing", f"expected {' or '.join(names)}: {holding}")

    def _instead(self, reading: Reading, key: str, node: Node) -> str:
        from advisor.key_hints import instead_of

        value = node.text if isinstance(node, Scalar) else ""
        return instead_of(key, value, self.fields, reading.elsewhere)


WRONG: Any = object()


def attempt(field: Field, reading: Reading, node: Node, key: str) -> Any:
    """The field's value, or WRONG where it has none; the problem is noted at the key's line."""
    if isinstance(node, Broken):
        return WRONG
    try:
        return field(reading, node, key)
    except WrongValueError as wrong:
        reading.wrong(key, reading.lines.get(key, node.line), wrong.message, wrong.expected)
        return WRONG
