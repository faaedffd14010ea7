"""The columns of traces, known by name however they are spelled, and the values in them."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable
from typing import Any

from advisor.errors import InvalidInput
from advisor.problems import shown

PROMPT = (
    "prompt_tokens", "input_tokens",
    "contexttokens",  # Azure LLM inference traces
    "request_tokens",  # BurstGPT
    "input_length",  # Mooncake, Qwen-Bailian
    "num_prefill_tokens",  # ShareGPT's lengths by sarathi-serve
    "num_prompt_tokens", "prompt_len", "prompt_length", "input_len", "input_token_length", "context_tokens", "isl",
)  # fmt: skip
OUTPUT = (
    "output_tokens", "completion_tokens", "generatedtokens", "response_tokens", "output_length", "num_decode_tokens",
    "num_output_tokens", "generated_tokens", "output_len", "output_token_length", "response_length", "osl",
)  # fmt: skip
TIME = (
    "timestamp", "timestamp_s", "timestamp_ms", "timestamp_us", "timestamp_ns", "arrival_time", "arrival_time_s",
    "arrival_time_ms", "arrival_timestamp", "arrived_at", "arrival_s", "at_s", "time", "created_at", "created", "ts",
    "ts_ms", "start_time", "request_time",
)  # fmt: skip
_UNITS = {"_ns": 1e-9, "_us": 1e-6, "_ms": 1e-3, "_s": 1.0}
_MAGNITUDES = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))  # seconds since 1970 are about 2e9
_UNIT_NAMES = {1e-9: "nanoseconds", 1e-6: "microseconds", 1e-3: "milliseconds", 1.0: "seconds"}
_IN_BRACKETS = re.compile(r"\((n|u|m)?s(?:ec(?:onds)?)?\)")
_FRACTION = re.compile(r"(\.\d{6})\d+")


def spelled(name: str) -> str:
    """A column's name without what people spell differently: `Request tokens` is `request_tokens`."""
    unit = _IN_BRACKETS.search(name.lower())
    plain = _IN_BRACKETS.sub("", name.lower()).strip().replace(" ", "_").replace("-", "_")
    return f"{plain}_{unit[1] or ''}s" if unit is not None else plain


def column(names: Iterable[str], wanted: tuple[str, ...]) -> str | None:
    """The column that holds one of `wanted`, the first of them that is there."""
    by_spelling = {spelled(name): name for name in reversed(list(names))}
    return next((by_spelling[name] for name in wanted if name in by_spelling), None)


def needed(names: Iterable[str], wanted: tuple[str, ...], what: str, where: str) -> str:
    """Like `column`; raises InvalidInput where there is none."""
    names = list(names)
    found = column(names, wanted)
    if found is None:
        raise InvalidInput(
            f"no column for the {what}'s tokens among {shown(', '.join(map(str, names)))}",
            where=where, hint=f"name it {wanted[0]} (or one of {', '.join(wanted[1:6])})",
        )  # fmt: skip
    return found


def tokens(value: Any, name: str, where: str) -> int:
    """A token count. Raises InvalidInput for what is no whole number from 0 on."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number < 1e9 or number != int(number):
        raise InvalidInput(
            f"{name} is {shown(repr(value))}", where=where, hint="a whole number of tokens, below a billion"
        )
    return int(number)


class Clock:
    """Reads one file's times, as seconds on a scale of its own. Whether they are dates or numbers, and of which unit,
    is decided by the first of them for all.
    """

    def __init__(self, name: str, *, unit_s: float | None = None) -> None:
        self.name = name
        self.is_date: bool | None = None
        self._unit_s = unit_s if unit_s is not None else self._named_unit(spelled(name))
        self.was_guessed = self._unit_s is None

    @property
    def note(self) -> str:
        """How times were understood, where the column does not say it."""
        if self.is_date or not self.was_guessed or self._unit_s is None:
            return ""
        return f"{self.name} is read as {_UNIT_NAMES[self._unit_s]}"

    def seconds(self, value: Any, where: str) -> float:
        """One time. Raises InvalidInput for what is none, or of another kind than those before."""
        number = _number(value)
        if self.is_date is None:
            self.is_date = number is None
        if self.is_date != (number is None):
            raise self._wrong(value, where)
        if number is None:
            return self._date(value, where)
        if not math.isfinite(number) or abs(number) > 1e21:
            raise self._wrong(value, where)
        if self._unit_s is None:
            self._unit_s = next((unit for least, unit in _MAGNITUDES if abs(number) >= least), 1.0)
        return number * self._unit_s

    @staticmethod
    def _named_unit(name: str) -> float | None:
        return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), None)

    def _date(self, value: Any, where: str) -> float:
        """A date and time; Azure writes seven digits after the point. Without a zone it counts as UTC."""
        try:
            moment = datetime.datetime.fromisoformat(_FRACTION.sub(r"\1", str(value).strip()))
            return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()
        except (ValueError, OverflowError):
            raise self._wrong(value, where) from None

    def _wrong(self, value: Any, where: str) -> InvalidInput:
        kind = {True: "a date and time, as in the rows before", False: "a number, as in the rows before"}
        hint = kind.get(self.is_date, "a number or a date and time") if self.is_date is not None else ""
        return InvalidInput(
            f"{self.name} is {shown(repr(value))}", where=where, hint=hint or "seconds, or a date and time"
        )


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
