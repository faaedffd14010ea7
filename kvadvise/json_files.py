"""JSON written by others, read with one clear error: which file, which line, what was expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from advisor.errors import InvalidInput

_LARGEST_BYTES = 256 * 1024**2  # an index of 100,000 tensors takes about 10 MB


def parse_json(data: bytes, name: str) -> Any:
    """The value; raises InvalidInput that names file, line and column. NaN and Infinity are allowed."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # the slower parser takes Infinity and a byte order mark, and knows the line
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"is not valid JSON: {error.msg}",
            where=f"{name}, line {error.lineno}, column {error.colno}",
            hint="restore the file from where the model was downloaded",
        ) from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"is not UTF-8 text (byte {error.start})", where=name) from None
    except RecursionError:
        raise InvalidInput("is nested too deeply for a model file", where=name) from None
    except ValueError as error:  # a number of more digits than Python converts
        raise InvalidInput(f"is not valid JSON: {error}", where=name) from None


def parse_object(data: bytes, name: str) -> dict[str, Any]:
    """The value where it is a JSON object; raises InvalidInput otherwise."""
    value = parse_json(data, name)
    if not isinstance(value, dict):
        kind = {list: "a list", str: "a string", type(None): "null", bool: "true or false"}.get(type(value), "a number")
        raise InvalidInput(f"holds {kind}, expected a JSON object", where=name)
    return value


def read_bytes(path: Path) -> bytes:
    """A regular file's content; raises InvalidInput when it cannot be read or is far too large."""
    try:
        if not path.is_file():
            raise InvalidInput("is not a regular file", where=str(path))
        size = path.stat().st_size
        if size > _LARGEST_BYTES:
            raise InvalidInput(f"is {size} bytes long, more than any such file", where=str(path))
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(path)) from None


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; raises InvalidInput."""
    return parse_object(read_bytes(path), str(path))
