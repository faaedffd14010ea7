"""What a bare word in YAML stands for, and which bare words cannot be trusted.

YAML 1.1 (PyYAML, and with it vLLM's own config files) and YAML 1.2 (most editors) read some words
differently: `on`, `010`, `1_000`, `1:30`. A value that two readers disagree on is doubted, not guessed.
Sources: YAML 1.1 type repository (bool, int, float), YAML 1.2.2 section 10.3.2 (core schema).
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

Value = bool | int | float | str | None

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(("true", "True", "TRUE"))
_FALSE = frozenset(("false", "False", "FALSE"))
_YES = frozenset(("yes", "Yes", "YES", "on", "On", "ON"))
_NO = frozenset(("no", "No", "NO", "off", "Off", "OFF"))
_STARTS = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_NOT_FINITE = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"  # these are seldom needed and compiled when they are
_UNDERSCORES = (
    r"[-+]?(?:0[xb])?[0-9][0-9a-fA-F_]*_[0-9a-fA-F_]*(?:\.[0-9_]*)?"
    r"|[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
)
_OTHER_BASE = r"[-+]?0b[01]+|0o[0-7]+|[-+]0x[0-9a-fA-F]+"
_SEXAGESIMAL = r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
_LONGEST = 24  # more than any 64-bit integer, or a float's shortest form, takes


class Doubt(NamedTuple):
    """Why a bare word is not taken, and what to write instead."""

    message: str
    expected: str


def plain_value(text: str) -> Value | Doubt:
    """The value of an unquoted scalar: null, a boolean, a number or text; a Doubt where readers disagree."""
    if text in _NULLS:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if text in _YES or text in _NO:
        word = "true" if text in _YES else "false"
        message = f"`{text}` is {word} to some YAML readers and text to others"
        return Doubt(message, f'write {word}, or "{text}" for text')
    if text[0] in _STARTS:
        return _number(text)
    return text


def _number(text: str) -> Value | Doubt:
    if _INTEGER.fullmatch(text):
        if len(text) > _LONGEST:
            return _too_long(text)
        return int(text, 16) if text[:2] == "0x" else int(text)
    if _LEADING_ZERO.fullmatch(text):
        return _ambiguous(text, text.lstrip("+-0") or "0")
    if _FLOAT.fullmatch(text):
        value = float(text)
        return value if math.isfinite(value) else Doubt("is not a finite number", "expected a finite number")
    return _odd(text)


def _odd(text: str) -> Value | Doubt:
    """What looks like a number at its start and is none that all readers know."""
    if re.fullmatch(_NOT_FINITE, text):
        return Doubt(f"is {text}, not a finite number", "expected a finite number")
    if re.fullmatch(_UNDERSCORES, text):
        return _ambiguous(text, text.replace("_", ""))
    if re.fullmatch(_SEXAGESIMAL, text) or re.fullmatch(_OTHER_BASE, text):
        return _ambiguous(text, "the number in decimal")
    return text


def _ambiguous(text: str, decimal: str) -> Doubt:
    if len(text) > _LONGEST:
        return _too_long(text)
    message = f"`{text}` is a number to some YAML readers and another, or text, to others"
    return Doubt(message, f"write {decimal}, or quote it if text is meant")


def _too_long(text: str) -> Doubt:
    return Doubt(f"is a number of {len(text)} characters", "expected one that fits in 64 bits")
