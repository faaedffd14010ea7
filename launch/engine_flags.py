"""A command line held against the options of the engine it is for: what that engine would not take, as findings."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from advisor.arguments import check_pins
from advisor.plan_types import Finding
from advisor.versions import NEWEST, Version
from launch.engine_entry import EngineEntry
from launch.engine_options import Option, Options, OptionsUnreadable, read_options

_NUMBER = re.compile(r"-\d|-\.\d")
_JSON_KINDS = frozenset({"loads", "parse_dataclass"})
_NUMBERS = {"int": int, "float": float}


def check_flags(entry: EngineEntry, words: Sequence[str], env: Mapping[str, str]) -> tuple[Finding, ...]:
    """What of `words` (the arguments behind `vllm serve MODEL`) this engine would not take, asked of its own parser."""
    if entry.kind == "docker":
        return (_unchecked("it is in a container image", entry),)
    try:
        options = read_options(entry, env)
    except OptionsUnreadable as error:
        return (_unreadable(str(error), entry),)
    return hold_against(options, words, entry)


def hold_against(options: Options, words: Sequence[str], entry: EngineEntry) -> tuple[Finding, ...]:
    """What of `words` is not among `options`, or has a value that its option does not take."""
    by_name = options.by_name()
    found: list[Finding] = []
    for flag, values in _split(words, by_name):
        option = _option_of(flag, by_name)
        if option is None:
            found.append(_unknown(flag, by_name, entry))
        elif "." not in flag:
            found += [_wrong(flag, text, hint, entry) for text, hint in _value_problems(flag, values, option)]
    return tuple(found)


def _split(words: Sequence[str], by_name: Mapping[str, Option]) -> Iterator[tuple[str, list[str]]]:
    """(flag with dashes, its values): `--a=b`, `--a b c`, underscores for dashes, negative numbers as values."""
    flag, values = "", list[str]()
    for word in words:
        if word.startswith("-") and len(word) > 1 and not _NUMBER.match(word) and word not in ("-", "--"):
            if flag:
                yield flag, values
            name, equals, value = word.partition("=")
            flag, values = _dashed(name), [value] if equals else []
            if word.startswith("-O") and word[2:3] != "." and "-O" not in by_name:  # -O3, -O=3, -O 3
                flag, values = "--optimization-level", [word[2:].removeprefix("=")] if len(word) > 2 else []
        elif flag:
            values.append(word)
    if flag:
        yield flag, values


def _dashed(name: str) -> str:
    head, dot, tail = name.partition(".")
    return head.replace("_", "-") + dot + tail if name.startswith("--") else name


def _option_of(flag: str, by_name: Mapping[str, Option]) -> Option | None:
    """The option of a flag: itself, the one a dotted key belongs to, or the only one it abbreviates."""
    head = flag.partition(".")[0]
    if head in by_name:
        return by_name[head]
    fitting = {id(option): option for name, option in by_name.items() if head[:2] == "--" and name.startswith(head)}
    return next(iter(fitting.values())) if len(fitting) == 1 and "." not in flag else None


def _value_problems(flag: str, values: list[str], option: Option) -> Iterator[tuple[str, str]]:
    if option.takes_no_value:
        if values:
            yield f"{flag} is a switch and takes no value, here {values[0]!r}", f"write {flag} alone"
        return
    if not values:
        if option.nargs not in ("?", "*"):
            yield f"{flag} lacks its value", f"write {flag} VALUE"
        return
    if option.nargs in (None, "?") and len(values) > 1:
        yield f"{flag} takes one value, here {len(values)}", f"write {flag} {values[0]}"
    for value in values:
        if option.choices is not None and value not in option.choices:
            close = difflib.get_close_matches(value, option.choices, n=1)
            hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(option.choices)}"
            yield f"{flag} cannot be {value!r} in this version", hint
        elif not _converts(value, option.kind):
            yield f"{flag} cannot be {value!r}", f"it takes {'JSON' if option.kind in _JSON_KINDS else 'a number'}"


def _converts(value: str, kind: str) -> bool:
    try:
        if kind in _JSON_KINDS:
            json.loads(value)
        elif kind in _NUMBERS:
            _NUMBERS[kind](value)
    except ValueError:
        return False
    return True


def _unknown(flag: str, by_name: Mapping[str, Option], entry: EngineEntry) -> Finding:
    """With the replacement that is known for an argument that went, else the nearest option there is."""
    name = flag.removeprefix("--").partition(".")[0].replace("-", "_")
    version = entry.version or Version(*NEWEST)
    problems = check_pins({name: None}, version) or check_pins({name.removeprefix("no_"): None}, version)
    close = difflib.get_close_matches(flag.partition(".")[0], [n for n in by_name if n.startswith("--")], n=1)
    if problems and problems[0].code != "unknown-argument":
        code, remedy = problems[0].code, problems[0].hint
    elif close and not (problems and problems[0].hint and not problems[0].hint.startswith(("did you", "see "))):
        code, remedy = "unknown-argument", f"did you mean {close[0]}?"
    else:
        code, remedy = "unknown-argument", problems[0].hint if problems else "leave it out"
    return Finding(
        code=code,
        severity="error",
        message=f"vLLM {entry.version_text or 'here'} does not take {flag}",
        remedy=remedy,
        source=_source(entry),
    )


def _wrong(flag: str, text: str, hint: str, entry: EngineEntry) -> Finding:
    code = "kv-dtype-unknown" if flag == "--kv-cache-dtype" else "argument-value"
    return Finding(code=code, severity="error", message=text, remedy=hint, source=_source(entry))


def _unchecked(why: str, entry: EngineEntry) -> Finding:
    return Finding(
        code="flags-unchecked",
        severity="note",
        message=f"the flags were not held against this engine's parser: {why}",
        remedy="none is needed; the engine itself refuses a flag it does not know",
        source=_source(entry),
    )


def _unreadable(why: str, entry: EngineEntry) -> Finding:
    """An engine that cannot be imported will not start; one whose parser only was not found may."""
    if "is in none of" in why or entry.python is None:
        return _unchecked(why, entry)
    return Finding(
        code="engine-broken",
        severity="error",
        message=f"this vLLM cannot be imported: {why}",
        remedy=f"mend the installation that {entry.python} has, or name another engine with --engine",
        source=_source(entry),
    )


def _source(entry: EngineEntry) -> str:
    return f"the parser of vLLM {entry.version_text} in {entry.location or entry.words[0]}"
