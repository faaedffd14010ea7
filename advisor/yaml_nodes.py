"""YAML in which every key knows its line, for files that people write by hand.

A subset, on purpose: one document of mappings, lists and scalars. Anchors, aliases, tags, merge keys and
repeated keys are problems, so nothing can expand; what may be read in two ways is a problem too. Events come
from libyaml (from PyYAML's own parser where libyaml is absent), and depth and size are bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from advisor.problems import PROBLEMS_AT_MOST, InvalidWorkload, Problem, shown
from advisor.yaml_scalars import Doubt, Value, plain_value

BYTES_AT_MOST = 1024 * 1024
DEPTH_AT_MOST = 24
_NODES_AT_MOST = 50_000


class Scalar(msgspec.Struct, frozen=True):
    """One value. `text` is as written, without quotes; `plain` that it had none."""

    line: int
    value: Value
    text: str
    plain: bool


class Entry(msgspec.Struct, frozen=True):
    """One `key: value`; `line` is the key's."""

    line: int
    key: str
    node: Node


class Mapping(msgspec.Struct, frozen=True):
    """Keys and values in the order written; no key twice."""

    line: int
    entries: list[Entry]


class Sequence(msgspec.Struct, frozen=True):
    """A list."""

    line: int
    items: list[Node]


class Broken(msgspec.Struct, frozen=True):
    """A value with a problem that has been told already."""

    line: int


Node = Scalar | Mapping | Sequence | Broken


class _StopError(Exception):
    """The rest of the file cannot be read; the problem has been told."""


def join(parent: str, key: str) -> str:
    """The dotted key of `key` below `parent`."""
    key = shown(key)
    return f"{parent}.{key}" if parent else key


def to_plain(node: Node) -> Any:
    """The node as dicts, lists and scalars."""
    if isinstance(node, Mapping):
        return {entry.key: to_plain(entry.node) for entry in node.entries}
    if isinstance(node, Sequence):
        return [to_plain(item) for item in node.items]
    return node.value if isinstance(node, Scalar) else None


def compose(text: str, file: str) -> tuple[Node, list[Problem]]:
    """The one document of `text`, with the problems found on the way (the nodes they concern are Broken).

    Raises InvalidWorkload where the file cannot be read to its end: too large, not YAML, empty, more than one
    document, too deep.
    """
    if len(text) > BYTES_AT_MOST or len(text.encode("utf-8", "surrogatepass")) > BYTES_AT_MOST:
        raise InvalidWorkload(file, [too_large()])
    composer = _Composer(text.removeprefix("\ufeff"))
    try:
        root = composer.document()
    except _StopError:
        raise InvalidWorkload(file, composer.problems) from None
    return root, composer.problems


def too_large() -> Problem:
    """The problem of a file over the limit."""
    return Problem("", 1, "the file is larger than 1 MiB", "a workload file is a page of YAML; a trace goes beside it")


def unreadable(text: str, at: int, what: str) -> Problem:
    """The problem of a character at position `at` that no text file holds."""
    return Problem("", 1 + text.count("\n", 0, at), what, "expected a text file in UTF-8")


class _Composer:
    """Turns events into nodes. One use."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.problems: list[Problem] = []
        self._nodes = 0

    def wrong(self, key: str, line: int, message: str, expected: str = "") -> None:
        self.problems.append(Problem(key, line, message, expected))
        if len(self.problems) >= PROBLEMS_AT_MOST:
            raise _StopError

    def stop(self, key: str, line: int, message: str, expected: str = "") -> _StopError:
        self.problems.append(Problem(key, line, message, expected))
        return _StopError()

    def document(self) -> Node:
        import yaml

        odd = yaml.reader.Reader.NON_PRINTABLE.search(self.text)
        if odd is not None:
            self.problems.append(unreadable(self.text, odd.start(), f"holds the character {odd.group()!a}"))
            raise _StopError
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        try:
            return self._document(yaml.parse(self.text, Loader=loader))
        except yaml.MarkedYAMLError as error:
            from advisor.yaml_syntax import syntax_problem

            self.problems.append(syntax_problem(error, self.text))
        except (yaml.YAMLError, ValueError, OverflowError) as error:  # the pure parser's, on bad escapes
            self.problems.append(Problem("", 1, f"is not YAML: {shown(str(error))}"))
        raise _StopError

    def _document(self, events: Iterator[Any]) -> Node:
        import yaml

        next(events)  # the start of the stream
        event = next(events)
        empty = isinstance(event, yaml.StreamEndEvent)
        root = Broken(1) if empty else self._node(events, next(events), "", 0)
        if empty or (isinstance(root, Scalar) and root.value is None):
            raise self.stop("", 1, "the file is empty", "expected the keys model, gpu and workload")
        next(events)  # the end of the document
        event = next(events)
        if isinstance(event, yaml.DocumentStartEvent):
            raise self.stop("", _line(event), "a second document starts here", "one file is one workload: split it")
        return root

    def _node(self, events: Iterator[Any], event: Any, key: str, depth: int) -> Node:
        import yaml

        line = _line(event)
        self._nodes += 1
        if self._nodes > _NODES_AT_MOST:
            raise self.stop(
                key, line, f"holds more than {_NODES_AT_MOST:,} values", "a trace goes into a file of its own"
            )
        if isinstance(event, yaml.AliasEvent):
            self.wrong(
                key,
                line,
                f"`*{shown(str(event.anchor))}` is an alias",
                "write the value out, aliases are not read",
            )
            return Broken(line)
        sound = self._bare(event, key, line)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, key, line) if sound else Broken(line)
        if depth >= DEPTH_AT_MOST:
            raise self.stop(key, line, "is nested too deep", f"expected at most {DEPTH_AT_MOST} levels")
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        node = (self._mapping if is_mapping else self._sequence)(events, key, line, depth)
        return node if sound else Broken(line)

    def _bare(self, event: Any, key: str, line: int) -> bool:
        """Whether a node has neither an anchor nor a tag; both are told."""
        if event.anchor is not None:
            self.wrong(
                key,
                line,
                f"`&{shown(event.anchor)}` is an anchor",
                "write the value out, anchors are not read",
            )
        if event.tag is not None:
            self.wrong(key, line, f"has the tag `{_tag(event.tag)}`", "write the value without a tag")
        return event.anchor is None and event.tag is None

    def _scalar(self, event: Any, key: str, line: int) -> Node:
        text: str = event.value
        if not event.implicit[0]:
            if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
                self.wrong(key, line, "holds half a surrogate pair", "expected text in UTF-8")
                return Broken(line)
            return Scalar(line, text, text, plain=False)
        value = plain_value(text)
        if isinstance(value, Doubt):
            self.wrong(key, line, value.message, value.expected)
            return Broken(line)
        return Scalar(line, value, text, plain=True)

    def _mapping(self, events: Iterator[Any], key: str, line: int, depth: int) -> Mapping:
        import yaml

        entries: list[Entry] = []
        first: dict[str, int] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            name = self._key(events, event, key, depth)
            dotted = join(key, name) if name is not None else key
            node = self._node(events, next(events), dotted, depth + 1)
            if name is None:
                continue
            if name in first:
                self.wrong(
                    dotted,
                    _line(event),
                    f"is given twice, first on line {first[name]}",
                    "keep one of the two",
                )
                continue
            first[name] = _line(event)
            entries.append(Entry(_line(event), name, node))
        return Mapping(line, entries)

    def _key(self, events: Iterator[Any], event: Any, parent: str, depth: int) -> str | None:
        """The key's text, or None where it cannot be one (told)."""
        import yaml

        line = _line(event)
        if isinstance(event, yaml.ScalarEvent):
            name: str = event.value
            if name == "<<":
                self.wrong(join(parent, name), line, "is a merge key", "write the keys out, merge keys are not read")
                return None
            if not name:
                self.wrong(parent, line, "a key is empty", "write `key: value`")
                return None
            return name if self._bare(event, join(parent, name), line) else None
        node = self._node(events, event, parent, depth + 1)
        if not isinstance(node, Broken):
            self.wrong(parent, line, "a key is a list or a mapping", "write `key: value` with a word as key")
        return None

    def _sequence(self, events: Iterator[Any], key: str, line: int, depth: int) -> Sequence:
        import yaml

        items: list[Node] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self._node(events, event, f"{key}[{len(items)}]", depth + 1))
        return Sequence(line, items)


def _tag(tag: str) -> str:
    return shown(tag.replace("tag:yaml.org,2002:", "!!"))


def _line(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1
