"""Texts that may be written: as UTF-8, which halves of characters are not, and without a password."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

_T = TypeVar("_T", bound=msgspec.Struct)
_USER_INFO = re.compile(r"//[^/@\s]*@")


def without_user_info(url: str) -> str:
    """An address without the name and password it may hold."""
    return _USER_INFO.sub("//", url)


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
