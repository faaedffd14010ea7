"""Short spellings for the long lists of a model config, and back again.

A catalogue entry keeps a config readable: 62 layer kinds or 6,000 module names are written once as a rule.
Four spellings exist, each a mapping with one key that no config uses:

* `{$runs: [[n, item, ...], ...]}`: the items of each row, n times, one row after the other (order kept)
* `{$pick: {of: [item, ...], order: LIST}}`: items by their position in `of`, order may itself be `$runs`
* `{$names: ["a.{0-3,7}.{q,k}_proj", ...]}`: every name the braces stand for; their order is not kept,
  on which no matching of modules depends
* `{$by_name: [[value, pattern, ...], ...]}`: every name of a row mapped to its value
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby, product
from math import prod
from typing import Any

# Lists and mappings of module names: what quantisation leaves out, or covers. Only membership has a meaning.
NAME_LISTS = frozenset({"ignore", "exclude_modules", "modules_to_not_convert", "targets"})
NAME_MAPS = frozenset({"quantized_layers"})

_LONGEST_PERIOD = 64
_SHORTEST_LIST = 6
_LONGEST_LIST = 1_000_000
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)-(\d+)\Z")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.*:]+\Z")


def pack(value: Any, key: str = "") -> Any:
    """The same value with its long lists in a short spelling; `key` is the name it stands under."""
    if isinstance(value, dict):
        if len(value) == 1 and next(iter(value)) in _READERS:
            raise ValueError(f"the key {next(iter(value))} has a meaning of its own here")
        if key in NAME_MAPS and len(value) >= _SHORTEST_LIST:
            return _pack_name_map(value)
        return {k: pack(v, str(k)) for k, v in value.items()}
    if not isinstance(value, list):
        return value
    if key in NAME_LISTS and _are_names(value):
        patterns = name_patterns(value)
        return {"$names": patterns} if len(patterns) < len(value) else list(value)
    items = [pack(item) for item in value]
    return _pack_list(items) if len(items) >= _SHORTEST_LIST else items


def unpack(value: Any) -> Any:
    """The inverse of `pack`, but for the order of names. Raises ValueError for a broken spelling."""
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        (key, body), *_ = value.items()
        reader = _READERS.get(key)
        if reader is not None:
            try:
                return reader(body)
            except (TypeError, KeyError, IndexError, AttributeError) as error:
                raise ValueError(f"broken {key}") from error
    return {k: unpack(v) for k, v in value.items()}


def _pack_list(items: list[Any]) -> Any:
    """The shortest of three spellings, by what JSON would take."""
    keys = [json.dumps(item, sort_keys=True) for item in items]
    candidates: list[Any] = [items, {"$runs": _runs(items, keys)}]
    distinct = list(dict.fromkeys(keys))
    if isinstance(items[0], dict | list) and len(distinct) * 2 < len(items):
        position = {key: i for i, key in enumerate(distinct)}
        order = [position[key] for key in keys]
        of = [items[keys.index(key)] for key in distinct]
        candidates.append({"$pick": {"of": of, "order": _pack_list(order)}})
    return min(candidates, key=lambda c: len(json.dumps(c)))


def _runs(items: list[Any], keys: list[str]) -> list[list[Any]]:
    """Greedy: at each place the repeating stretch that saves most, else one literal item."""
    rows: list[list[Any]] = []
    at = 0
    while at < len(items):
        times, period = _longest_repeat(keys, at)
        if times > 1:
            rows.append([times, *items[at : at + period]])
        elif rows and rows[-1][0] == 1:
            rows[-1].append(items[at])
        else:
            rows.append([1, items[at]])
        at += times * period
    return rows


def _longest_repeat(keys: list[str], at: int) -> tuple[int, int]:
    best, saved = (1, 1), 2
    for period in range(1, min(_LONGEST_PERIOD, (len(keys) - at) // 2) + 1):
        times = 1
        while keys[at + times * period : at + (times + 1) * period] == keys[at : at + period]:
            times += 1
        if (times - 1) * period > saved:
            best, saved = (times, period), (times - 1) * period
    return best


def _are_names(value: list[Any]) -> bool:
    """Whether every item is a module name or glob that braces cannot be mistaken for."""
    return len(value) >= _SHORTEST_LIST and all(isinstance(v, str) and _PLAIN_NAME.match(v) for v in value)


def _pack_name_map(value: dict[str, Any]) -> Any:
    """Names grouped by their value; None of the names may need escaping, else the mapping stays as it is."""
    if not all(_PLAIN_NAME.match(name) for name in value):
        return {k: pack(v, str(k)) for k, v in value.items()}
    rows: dict[str, list[Any]] = {}
    for name, spec in value.items():
        rows.setdefault(json.dumps(spec, sort_keys=True), [spec]).append(name)
    return {"$by_name": [[row[0], *name_patterns(row[1:])] for row in rows.values()]}


def name_patterns(names: Iterable[str]) -> list[str]:
    """The names as few brace patterns; a name that occurs twice is kept twice."""
    counts = Counter(names)
    patterns: list[str] = []
    while counts:
        patterns += _patterns_of_distinct(list(counts))
        counts = Counter({name: n - 1 for name, n in counts.items() if n > 1})
    return patterns


def _patterns_of_distinct(names: list[str]) -> list[str]:
    by_length: dict[int, list[tuple[str, ...]]] = {}
    for name in names:
        parts = tuple(name.split("."))
        by_length.setdefault(len(parts), []).append(parts)
    found: list[str] = []
    for length, rows in by_length.items():
        options = [_merge(rows, order) for order in (range(length), range(length - 1, -1, -1))]
        found += [".".join(_braces(part) for part in box) for box in min(options, key=len)]
    return found


def _merge(rows: list[tuple[str, ...]], order: Iterable[int]) -> list[tuple[tuple[str, ...], ...]]:
    """Boxes (one set of words per place) that cover the rows exactly; places are joined in this order."""
    boxes: list[tuple[tuple[str, ...], ...]] = [tuple((part,) for part in row) for row in rows]
    for place in order:
        joined: dict[tuple[Any, ...], list[str]] = {}
        for box in boxes:
            joined.setdefault((box[:place], box[place + 1 :]), []).extend(box[place])
        boxes = [(*before, tuple(words), *after) for (before, after), words in joined.items()]
    return boxes


def _braces(words: tuple[str, ...]) -> str:
    if len(words) == 1:
        return words[0]
    numbers = sorted(int(w) for w in words if w.isdigit() and str(int(w)) == w)
    others = sorted(w for w in words if not (w.isdigit() and str(int(w)) == w))
    return "{" + ",".join([*_ranges(numbers), *others]) + "}"


def _ranges(numbers: list[int]) -> Iterator[str]:
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        stretch = [number for _, number in group]
        yield f"{stretch[0]}-{stretch[-1]}" if len(stretch) > 1 else str(stretch[0])


def expand_names(pattern: str) -> list[str]:
    """Every name a brace pattern stands for."""
    pieces = _BRACES.split(pattern)
    if len(pieces) == 1:
        return [pattern]
    choices = [[piece] if i % 2 == 0 else _alternatives(piece) for i, piece in enumerate(pieces)]
    if prod(map(len, choices)) > _LONGEST_LIST:
        raise ValueError(f"the pattern {pattern} is longer than any list of a config")
    return ["".join(parts) for parts in product(*choices)]


def _alternatives(body: str) -> list[str]:
    words: list[str] = []
    for word in body.split(","):
        found = _RANGE.match(word)
        if found and int(found[2]) - int(found[1]) > _LONGEST_LIST:
            raise ValueError(f"the range {word} is longer than any list of a config")
        words += [str(n) for n in range(int(found[1]), int(found[2]) + 1)] if found else [word]
    return words


def _read_runs(body: Any) -> list[Any]:
    items: list[Any] = []
    for times, *stretch in body:
        if times * len(stretch) > _LONGEST_LIST:
            raise ValueError("$runs is longer than any list of a config")
        items += unpack(stretch) * times
    return items


def _read_pick(body: Any) -> list[Any]:
    of = unpack(body["of"])
    return [of[i] for i in unpack(body["order"])]


def _read_names(body: Any) -> list[str]:
    return [name for pattern in body for name in expand_names(pattern)]


def _read_by_name(body: Any) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for value, *patterns in body:
        names.update(dict.fromkeys(_read_names(patterns), unpack(value)))
    return names


_READERS = {"$runs": _read_runs, "$pick": _read_pick, "$names": _read_names, "$by_name": _read_by_name}
