"""One catalogue entry: its YAML text, and the model facts it stands for.

An entry keeps every key of config.json but those known to change nothing (`dropped` in profiles/models/_keys.yaml),
with long lists in the short spellings of `compact`. `base_config` holds keys that the entry's own source does not
show, taken from `base_model`, which has the same sizes and the same number of parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from advisor.errors import InvalidInput
from advisor.facts import ModelFacts, WeightFacts
from kvadvise.compact import pack, unpack

Completeness = Literal["complete", "near-complete", "partial"]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LARGEST_BYTES = 1024**2
_NESTED = ("text_config", "llm_config", "language_config")


class EntryWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The size of the published checkpoint, each figure None where no source gives it."""

    total_bytes: int | None = None
    num_parameters: int | None = None
    dtype: str | None = None
    source: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An entry as its file says it, short spellings undone. Field order is the order in the file."""

    id: str
    source: str
    completeness: Completeness
    note: str = ""
    weights: EntryWeights = EntryWeights()
    base_model: str = ""
    base_config: dict[str, Any] = {}
    model_max_length: int | None = None
    config: dict[str, Any]
    quant_config: dict[str, Any] | None = None


def read_entry(path: Path, *, trusted: bool = False) -> Entry:
    """The entry of a file; raises InvalidInput that names file and line. `trusted`: it came with kvadvise."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    return parse_entry(data, str(path), trusted=trusted)


def parse_entry(data: bytes, name: str, *, trusted: bool = False) -> Entry:
    """The entry of a text; raises InvalidInput."""
    if len(data) > _LARGEST_BYTES:
        raise InvalidInput(f"is {len(data)} bytes long, an entry at most {_LARGEST_BYTES}", where=name)
    try:
        if not trusted:
            _refuse_aliases(data, name)
        raw = yaml.load(data, _LOADER)  # noqa: S506 (a safe loader, the C one where there is one)
        return msgspec.convert(unpack(raw), Entry)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}, line {mark.line + 1}, column {mark.column + 1}" if mark else name
        raise InvalidInput(f"is not valid YAML: {getattr(error, 'problem', None) or error}", where=where) from None
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        raise InvalidInput(
            f"is not a catalogue entry: {error or 'nested too deeply'}",
            where=name,
            hint="`kvadvise models add` writes one: id, source, config, and weights where they are known",
        ) from None


def _refuse_aliases(data: bytes, name: str) -> None:
    for event in yaml.parse(data, _LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise InvalidInput(
                "uses a YAML alias, which an entry may not",
                where=f"{name}, line {event.start_mark.line + 1}" if event.start_mark else name,
                hint="write the value out",
            )


def entry_text(entry: Entry) -> str:
    """The entry as YAML; what `read_entry` gives back for it is equal but for the order of module names."""
    plain = msgspec.to_builtins(entry)
    for key in ("base_config", "config", "quant_config"):
        if key in plain:
            plain[key] = pack(plain[key])
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(plain, Dumper=dumper, default_flow_style=None, sort_keys=False, width=110, allow_unicode=True)
    return str(text)


def entry_facts(entry: Entry, *, asked_for: str | None = None, where_from: str = "") -> ModelFacts:
    """The model facts an entry stands for, under the name that was asked for."""
    return ModelFacts(
        id=asked_for or entry.id,
        config=overlay(entry.base_config, entry.config),
        quant_config=entry.quant_config,
        weights=_weight_facts(entry.weights),
        resolved_from="catalogue",
        model_max_length=entry.model_max_length,
        source=f"{where_from or 'catalogue'}: {entry.source}",
        notes=entry_notes(entry),
    )


def _weight_facts(weights: EntryWeights) -> WeightFacts | None:
    if weights.total_bytes is None:
        return None
    return WeightFacts(
        total_bytes=weights.total_bytes,
        basis="catalogue",
        source=weights.source,
        num_parameters=weights.num_parameters,
    )


def entry_notes(entry: Entry) -> tuple[str, ...]:
    """What a plan made from this entry must say: what its config lacks, and where the rest was taken from."""
    notes: list[str] = []
    if entry.completeness == "partial":
        notes.append(f"partial config: {entry.source} shows only some of the keys")
    elif entry.completeness == "near-complete":
        notes.append(f"near-complete config: {entry.source} leaves out or edits a few keys")
    if entry.base_config:
        keys = ", ".join(sorted(_flat_keys(entry.base_config)))
        notes.append(f"{keys}: taken from {entry.base_model}, of the same sizes and number of parameters")
    if entry.note:
        notes.append(entry.note)
    return tuple(notes)


def _flat_keys(config: dict[str, Any]) -> set[str]:
    keys = {key for key in config if key not in _NESTED}
    for name in _NESTED:
        keys |= set(config.get(name, ()))
    return keys


def overlay(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """`own` with what only `base` says; the nested text config is joined key by key, every other value is whole."""
    merged = {**base, **own}
    for name in _NESTED:
        if isinstance(base.get(name), dict) and isinstance(own.get(name), dict):
            merged[name] = {**base[name], **own[name]}
    return merged


def key_patterns(kind: Literal["dropped", "not_from_base"]) -> tuple[str, ...]:
    """The patterns of profiles/models/_keys.yaml, which says what they are for."""
    import profiles

    path = Path(profiles.__file__).parent / "models" / "_keys.yaml"
    return tuple(yaml.load(path.read_bytes(), _LOADER)[kind])  # noqa: S506 (a safe loader)


def reduce_config(config: dict[str, Any], dropped: tuple[str, ...] | None = None) -> dict[str, Any]:
    """A config.json with the keys an entry keeps, at every depth."""
    patterns = key_patterns("dropped") if dropped is None else dropped
    return _reduced(config, matcher(patterns))


def matcher(patterns: Iterable[str]) -> Callable[[str], object]:
    """One function that says whether a key matches any of the shell patterns."""
    return re.compile("|".join(translate(p) for p in patterns)).match


def _reduced(config: dict[str, Any], is_dropped: Callable[[str], object]) -> dict[str, Any]:
    return {k: _reduced_value(v, is_dropped) for k, v in config.items() if not is_dropped(k)}


def _reduced_value(value: Any, is_dropped: Callable[[str], object]) -> Any:
    if isinstance(value, dict):
        return _reduced(value, is_dropped)
    return [_reduced_value(item, is_dropped) for item in value] if isinstance(value, list) else value


def make_entry(facts: ModelFacts, *, completeness: Completeness = "complete") -> str:
    """The YAML text of an entry for a model whose facts were read; tensor names are summed up, not kept."""
    weights = EntryWeights()
    if facts.weights is not None:
        weights = EntryWeights(
            total_bytes=facts.weights.total_bytes,
            num_parameters=facts.weights.num_parameters,
            dtype=_stated_dtype(facts.config),
            source=facts.weights.source,
        )
    entry = Entry(
        id=facts.id,
        source=facts.source or facts.resolved_from,
        completeness=completeness,
        weights=weights,
        model_max_length=facts.model_max_length,
        config=reduce_config(facts.config),
        quant_config=None if facts.quant_config is None else reduce_config(facts.quant_config),
    )
    return entry_text(entry)


def _stated_dtype(config: dict[str, Any]) -> str | None:
    nested = config.get("text_config")
    for part in (config, nested if isinstance(nested, dict) else {}):
        for key in ("dtype", "torch_dtype"):
            if isinstance(part.get(key), str):
                return str(part[key])
    return None
