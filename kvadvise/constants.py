"""Reading the measured constants that come with kvadvise (profiles/vllm)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from advisor.overhead_constants import EncoderShape, Factor, OverheadTable, Since
from advisor.versions import parse_version

SCHEMA = "kvadvise.vllm-overheads/1"
_UNITS = {"GiB": 1024**3, "bytes": 1, "copies": 1, "flag": 1}


def overheads_file() -> Path:
    """The bundled file of constants."""
    import profiles

    return Path(profiles.__file__).parent / "vllm" / "overheads.yaml"


@lru_cache(maxsize=4)
def load_constants(path: Path | None = None) -> OverheadTable:
    """The constants of every version; `.at(version)` picks those of one.

    Raises ValueError where the file is not what this release expects: it is part of the package, so that is a bug.
    """
    import yaml

    file = path or overheads_file()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506  a safe one
    if document.get("schema") != SCHEMA:
        raise ValueError(f"{file}: schema {document.get('schema')!r}, {SCHEMA!r} expected")
    return OverheadTable(
        entries={name: _entries(name, constant) for name, constant in document["constants"].items()},
        encoders={name: _shape(entry) for name, entry in document["encoders"].items()},
    )


def _entries(name: str, constant: dict[str, Any]) -> tuple[Since, ...]:
    unit = _UNITS[constant["unit"]]
    entries = tuple(
        Since(
            parse_version(entry["from"]),
            Factor(entry["value"] * unit, entry["low"] * unit, entry["high"] * unit),
            entry["source"],
        )
        for entry in constant["versions"]
    )
    if [entry.version for entry in entries] != sorted({entry.version for entry in entries}):
        raise ValueError(f"the entries of {name} must follow one another by version")
    return entries


def _shape(entry: dict[str, Any]) -> EncoderShape:
    return EncoderShape(**{key: value for key, value in entry.items() if key != "source"})
