"""The LoRA adapters that engine.lora_modules names, as far as they lie on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from advisor.errors import InvalidInput
from advisor.facts import AdapterFact, ModelFacts

CONFIG = "adapter_config.json"
_LARGEST_BYTES = 1 << 20


def with_adapters(facts: ModelFacts, stated: Any, *, base_dir: Path, where: str = "") -> ModelFacts:
    """The facts with the ranks of the adapters in `stated` (engine.lora_modules: `name=path`, or mappings).

    A path is taken from `base_dir`; one that is no directory here (a hub id, a path in a container) is left out.
    Raises InvalidInput for a directory whose adapter_config.json is missing or cannot be read.
    """
    found = []
    for name, path in _named(stated):
        directory = (base_dir / path).expanduser()
        if directory.is_dir():
            found.append(AdapterFact(name=name, rank=_rank(directory / CONFIG, where)))
    return msgspec.structs.replace(facts, adapters=tuple(found)) if found else facts


def _named(stated: Any) -> Iterator[tuple[str, str]]:
    for entry in stated if isinstance(stated, list) else [stated]:
        if isinstance(entry, str) and entry.lstrip().startswith("{"):
            try:
                entry = json.loads(entry)  # noqa: PLW2901 - vLLM takes JSON in a string too
            except ValueError:
                continue
        if isinstance(entry, dict):
            name, path = entry.get("name"), entry.get("path")
        else:
            name, _, path = str(entry).partition("=") if isinstance(entry, str) else ("", "", "")
        if isinstance(name, str) and isinstance(path, str) and name and path:
            yield name, path


def _rank(file: Path, where: str) -> int:
    try:
        with file.open("rb") as stream:
            config = json.loads(stream.read(_LARGEST_BYTES))
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"the adapter's {file} cannot be read: {error}",
            where=where,
            hint="give the directory that PEFT saved the adapter in",
        ) from error
    config = config if isinstance(config, dict) else {}
    pattern = config.get("rank_pattern")
    ranks = [config.get("r"), *(pattern.values() if isinstance(pattern, dict) else ())]
    whole = [rank for rank in ranks if isinstance(rank, int) and not isinstance(rank, bool) and rank > 0]
    if len(whole) != len(ranks):
        raise InvalidInput(f"{file} states no rank (r)", where=where, hint="LoRA adapters have one; others do not load")
    return max(whole)
