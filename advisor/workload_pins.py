"""The `engine:` section: pins by vLLM's own argument names.

`max_model_len` or, as on the command line, `max-model-len`. Only the form is checked here; which arguments a
vLLM version has, and what each takes, is decided where the version's table is.
"""

from __future__ import annotations

import re
from typing import Any

from advisor.errors import InvalidInput
from advisor.problems import shown
from advisor.versions import parse_version
from advisor.workload_fields import Reading, WrongValueError, said
from advisor.yaml_nodes import Broken, Entry, Mapping, Node, Scalar, join, to_plain

_ARGUMENT = re.compile(r"[a-z][a-z0-9_]*")


def pins(reading: Reading, node: Node, key: str) -> dict[str, Any]:
    """The pinned arguments, their names in snake_case, in the order written."""
    if isinstance(node, Scalar) and node.value is None and not node.text:
        return {}
    if not isinstance(node, Mapping):
        raise WrongValueError(
            f"is {said(node)}, not a mapping", "expected vLLM's arguments, such as max_model_len: 8192"
        )
    values: dict[str, Any] = {}
    for entry in node.entries:
        if reading.hopeless:
            break
        name = entry.key.removeprefix("--").replace("-", "_")
        dotted = join(key, name)
        if name in values:
            first = f"is given twice, first on line {reading.lines[dotted]}"
            reading.wrong(dotted, entry.line, first, "keep one of the two")
            continue
        reading.lines[dotted] = entry.line
        try:
            values[name] = _pin(reading, entry, name, dotted)
        except WrongValueError as wrong:
            reading.wrong(dotted, entry.line, wrong.message, wrong.expected)
    return values


def _pin(reading: Reading, entry: Entry, name: str, dotted: str) -> Any:
    if _ARGUMENT.fullmatch(name) is None:
        raise WrongValueError(f"{shown(entry.key)} is not an argument's name", _spelled(entry.key, name))
    node = entry.node
    if isinstance(node, Broken):
        return None
    if name == "vllm_version":
        return version(node)
    if isinstance(node, Scalar) and node.value is None:
        raise WrongValueError("has no value", "give it one, or leave the key out for vLLM's default")
    _note_lines(reading, node, dotted)
    return to_plain(node)


def _spelled(key: str, name: str) -> str:
    if "." in name:
        head, _, tail = name.partition(".")
        return f"expected a mapping: write {shown(head)}: {{{shown(tail)}: ...}}"
    if _ARGUMENT.fullmatch(name.lower()):
        return f"did you mean {name.lower()}?"
    if key.startswith("-"):
        return "expected the long name, such as tensor_parallel_size"
    return "expected a name such as max_model_len"


def _note_lines(reading: Reading, node: Node, key: str) -> None:
    if isinstance(node, Mapping):
        for entry in node.entries:
            dotted = join(key, entry.key)
            reading.lines[dotted] = entry.line
            _note_lines(reading, entry.node, dotted)


def version(node: Node) -> str:
    """A vLLM version as text. A bare 0.10 is a number and would have become 0.1, so it is refused."""
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        bare = isinstance(node, Scalar) and isinstance(node.value, int | float) and not isinstance(node.value, bool)
        example = shown(node.text) if isinstance(node, Scalar) and bare else "0.32.0"
        why = ", and 0.10 as a number is 0.1" if bare else ""
        raise WrongValueError(f"is {said(node)}, not text{why}", f'expected a version in quotes: write "{example}"')
    try:
        parse_version(node.value)
    except InvalidInput:
        raise WrongValueError(f"is {said(node)}, not a vLLM version", 'expected one such as "0.32.0"') from None
    return node.value.strip()
