"""Values that can be written as UTF-8. A file's name, or a server's JSON, may hold halves of characters."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T", bound=msgspec.Struct)


def encodable(value: _T) -> _T:
    """The value itself, or where a text of it cannot be written, one with such characters replaced."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.convert(_replaced(msgspec.to_builtins(value)), type(value))
    return value


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_replaced(key): _replaced(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(inner) for inner in value]
    return value
