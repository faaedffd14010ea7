"""From the lines of a log to StartupFacts: every wording tried, the last start only, unknown left unknown."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Any

from launch.log_lines import LogLine, last_start, read_lines
from launch.startup_facts import Ranged, StartupFacts
from launch.startup_wordings import CONFIG, WORDINGS

_HINTS = re.compile("|".join(sorted({re.escape(w.hint) for w in WORDINGS} | {"non-default args", "args: "}, key=len)))
_ARGS = re.compile(r"(?:non-default args|^args): (.+)$")
_CONFIG_LINE = re.compile(r"Initializing an? V[01] LLM engine .{1,60}? with config: ")
_SIMPLE = re.compile(
    r"'(\w{1,60})': (?:'([^'\\]{0,400})'|(-?\d{1,18}(?:\.\d{1,18})?)(?=[,}])|(True|False|None)(?=[,}]))"
)
_NOT_YET = frozenset({"disabled", "will be enabled"})
_FROM_ARGS = {
    "model": str,
    "dtype": str,
    "quantization": str,
    "kv_cache_dtype": str,
    "enforce_eager": bool,
    "max_model_len": int,
    "max_num_seqs": int,
    "max_num_batched_tokens": int,
    "block_size": int,
    "gpu_memory_utilization": float,
    "tensor_parallel_size": int,
    "pipeline_parallel_size": int,
    "data_parallel_size": int,
}


def _kinds() -> dict[str, str]:
    """Field name -> "ranged", "int", "float", "str" or "bool", from the type written in StartupFacts."""
    kinds = {}
    for name, annotation in StartupFacts.__annotations__.items():
        written = str(annotation).split("|")[0].strip()
        kinds[name] = "ranged" if written == "Ranged" else written
    return kinds


_KINDS = _kinds()


def read_startup(lines: Iterable[str]) -> StartupFacts:
    """The facts of the last start in a log, from its lines as text (with or without their line ends)."""
    return facts_of(last_start(read_lines(lines)))


def facts_of(lines: Sequence[LogLine]) -> StartupFacts:
    """The facts of one start, from its lines taken apart."""
    single: dict[str, Any] = {}
    ranged: dict[str, dict[str, float]] = {}
    for line in lines:
        if _HINTS.search(line.text) is None:
            continue
        _read_wordings(line, single, ranged)
        _read_arguments(line.text, single)
        _read_config(line.text, single)
    _from_arguments(single)
    if single.get("auto_fit_to") is not None:
        single["max_model_len"] = single["auto_fit_to"]
    values = {**single, **{name: Ranged.of(ranks) for name, ranks in ranged.items()}}
    return StartupFacts(**values)


def _read_wordings(line: LogLine, single: dict[str, Any], ranged: dict[str, dict[str, float]]) -> None:
    for wording in WORDINGS:
        if wording.hint not in line.text:
            continue
        match = wording.pattern.search(line.text)
        if match is None:
            continue
        for group, text in match.groupdict().items():
            if text is not None:
                _keep(
                    group.split("__")[0], text.replace(",", "") if group.endswith("__t") else text, line, single, ranged
                )


def _keep(name: str, text: str, line: LogLine, single: dict[str, Any], ranged: dict[str, dict[str, float]]) -> None:
    """One value into its field. A rank that prints a figure twice means the later; a version is said first, once."""
    kind = _KINDS[name]
    if kind == "ranged":
        ranged.setdefault(name, {})[line.speaker] = _number(text)
    elif kind == "bool":
        single[name] = text not in _NOT_YET
    elif name == "version":
        single.setdefault(name, text.removeprefix("v").rstrip("."))
    else:
        single[name] = text if kind == "str" else int(float(text)) if kind == "int" else float(text)


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _read_arguments(text: str, single: dict[str, Any]) -> None:
    match = _ARGS.search(text) if "args: " in text else None
    if match is None or single.get("args") is not None:
        return
    if match[1].startswith("{"):
        whole = _whole_literal(match[1])
        single["args"] = _entries(whole if whole is not None else {m[1]: _plain(m) for m in _SIMPLE.finditer(match[1])})
        single["args_partial"] = True if whole is None else None
    elif match[1].startswith("Namespace("):
        single["args"], single["args_partial"] = _namespace(match[1]), True


def _whole_literal(text: str) -> dict[Any, Any] | None:
    """A printed dict; None where it holds what is no literal."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return value if isinstance(value, dict) else None


def _entries(value: dict[Any, Any]) -> dict[str, Any] | None:
    return {k: v for k, v in value.items() if isinstance(k, str)} or None


def _namespace(text: str) -> dict[str, Any] | None:
    """0.8 printed every argument, defaults too, as a Namespace: only what sizes a start is kept."""
    found: dict[str, Any] = {}
    for name in _FROM_ARGS:
        match = re.search(rf"\b{name}=(?:'([^']{{0,400}})'|(-?\d{{1,18}}(?:\.\d+)?)|(True|False))", text)
        if match is not None:
            found[name] = _plain_groups(match[1], match[2], match[3])
    return found or None


def _plain(match: re.Match[str]) -> Any:
    return _plain_groups(match[2], match[3], match[4])


def _plain_groups(word: str | None, number: str | None, constant: str | None) -> Any:
    if word is not None:
        return word
    if number is not None:
        return _number(number)
    return {"True": True, "False": False}.get(constant or "")


def _read_config(text: str, single: dict[str, Any]) -> None:
    if _CONFIG_LINE.search(text) is None:
        return
    for name, pattern in CONFIG.items():
        match = re.search(pattern, text)
        if match is None:
            continue
        kind = _KINDS[name]
        single[name] = match[1] == "True" if kind == "bool" else int(match[1]) if kind == "int" else match[1]


def _from_arguments(single: dict[str, Any]) -> None:
    """What the engine itself did not say but its arguments do."""
    for name, kind in _FROM_ARGS.items():
        value = (single.get("args") or {}).get(name)
        if single.get(name) is not None or value is None:
            continue
        if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
            single[name] = float(value)
        elif isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            single[name] = value


def figures(facts: StartupFacts) -> list[float]:
    """Every number that the facts hold, in no particular order (for tests and for a digest)."""
    found: list[float] = []
    for name in StartupFacts.__struct_fields__:
        value = getattr(facts, name)
        if isinstance(value, Ranged):
            found += value.ranks.values()
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append(value)
    return found


def is_empty(facts: StartupFacts) -> bool:
    """Whether a text holds no figure of a start at all: it is no vLLM log, or one cut before it began."""
    return facts == StartupFacts()
