"""The catalogue: models that can be planned without a network, the bundled ones and those the user added.

An entry lies at ORG/NAME.yaml, so that finding one by its id reads one file. The user's own directory is searched
first. Lookups do not care about case, and the org may be left out where only one entry has the name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from advisor.errors import InvalidInput
from advisor.facts import ModelFacts
from kvadvise.surroundings import Surroundings, here

_SUFFIX = ".yaml"


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `kvadvise models`; None where the entry does not say."""

    id: str
    architecture: str | None
    num_parameters: int | None
    total_bytes: int | None
    completeness: str
    origin: Literal["bundled", "user"]
    source: str


def bundled_models() -> Path:
    """The entries that come with kvadvise."""
    import profiles

    return Path(profiles.__file__).parent / "models"


def find_facts(name: str, around: Surroundings) -> ModelFacts | None:
    """The facts of the entry meant by `name`, None where there is none; raises InvalidInput for a broken one."""
    from kvadvise.catalogue_entry import entry_facts, read_entry

    for root, trusted in _roots(around):
        path = _find_file(root, name)
        if path is not None:
            return entry_facts(read_entry(path, trusted=trusted))
    other = _renamed(name)
    path = _find_file(bundled_models(), other) if other else None
    if path is None:
        return None
    return entry_facts(read_entry(path, trusted=True), asked_for=name if "/" in name else None)


def list_models(around: Surroundings | None = None) -> list[ModelRow]:
    """Every entry by id, the user's in place of a bundled one of the same id; raises InvalidInput for a broken one."""
    rows: dict[str, ModelRow] = {}
    for root, trusted in reversed(_roots(around or here())):
        for path in _entry_files(root):
            row = _row(path, trusted=trusted)
            rows[row.id] = row
    return sorted(rows.values(), key=lambda row: row.id.casefold())


def _row(path: Path, *, trusted: bool) -> ModelRow:
    from kvadvise.catalogue_entry import read_entry

    entry = read_entry(path, trusted=trusted)
    architectures = entry.config.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else None
    return ModelRow(
        id=entry.id,
        architecture=named if isinstance(named, str) else None,
        num_parameters=entry.weights.num_parameters,
        total_bytes=entry.weights.total_bytes,
        completeness=entry.completeness,
        origin="bundled" if trusted else "user",
        source=entry.source,
    )


def model_ids(around: Surroundings) -> list[str]:
    """Every id by file name alone, without reading an entry."""
    found = {f"{p.parent.name}/{p.stem}" for root, _ in _roots(around) for p in _entry_files(root)}
    return sorted(found, key=str.casefold)


def nearest_ids(name: str, around: Surroundings, n: int = 3) -> list[str]:
    """The ids most like a name that was not found: by the whole id, and by what follows the org."""
    from difflib import SequenceMatcher

    wanted = name.casefold()
    wanted_name = wanted.rpartition("/")[2]

    def likeness(model_id: str) -> float:
        whole = model_id.casefold()
        pairs = ((wanted, whole), (wanted_name, whole.rpartition("/")[2]))
        return max(_ratio(SequenceMatcher(None, *pair)) for pair in pairs)

    scored = [(likeness(model_id), model_id) for model_id in model_ids(around)]
    scored.sort(key=lambda pair: (-pair[0], pair[1]))
    return [model_id for score, model_id in scored[:n] if score >= 0.6]


def _ratio(matcher: object) -> float:
    from difflib import SequenceMatcher

    if not isinstance(matcher, SequenceMatcher) or matcher.real_quick_ratio() < 0.6 or matcher.quick_ratio() < 0.6:
        return 0.0
    return matcher.ratio()


def add_model(id_or_dir: str, out: Path | None = None, *, around: Surroundings | None = None) -> Path:
    """Read a model's facts from a directory, the hub cache or the hub, and write them as an entry.

    Without `out` it goes into the user's own catalogue, where it is found before the bundled ones. Raises
    InvalidInput when the model cannot be read or the file not written.
    """
    from advisor.workload import ModelRef
    from kvadvise.catalogue_entry import make_entry
    from kvadvise.sources import read_model

    around = around or here()
    facts = read_model(ModelRef(id=id_or_dir), base_dir=around.cwd, around=around)
    model_id = facts.id if _is_id(facts.id) else f"local/{Path(facts.id).name or 'model'}"
    facts = msgspec.structs.replace(facts, id=model_id)
    path = out or around.own_models / f"{model_id}{_SUFFIX}"
    _write(path, make_entry(facts))
    return path


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    import tempfile

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", encoding="utf-8", delete=False) as file:
            file.write(text)
        Path(file.name).replace(path)
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", where=str(path)) from None


def _roots(around: Surroundings) -> list[tuple[Path, bool]]:
    """Where entries lie, first come first, and whether they came with kvadvise."""
    return [(around.own_models, False), (bundled_models(), True)]


def _is_id(name: str) -> bool:
    """Whether a name can be looked up at all: at most one slash, and no way out of the directory."""
    parts = name.split("/")
    return len(parts) <= 2 and all(
        p and not p.startswith((".", "_")) and "\\" not in p and "\0" not in p for p in parts
    )


def _find_file(root: Path, name: str) -> Path | None:
    if not _is_id(name) or not root.is_dir():
        return None
    org, slash, model = name.rpartition("/")
    if slash and (root / org / f"{model}{_SUFFIX}").is_file():
        return root / org / f"{model}{_SUFFIX}"
    wanted = f"{model}{_SUFFIX}".casefold()
    found = [
        Path(entry.path)
        for directory in _org_directories(root)
        if not slash or directory.name.casefold() == org.casefold()
        for entry in _scan(directory)
        if entry.name.casefold() == wanted and entry.is_file()
    ]
    return found[0] if len(found) == 1 else None


def _entry_files(root: Path) -> Iterator[Path]:
    for directory in _org_directories(root):
        for entry in _scan(directory):
            if entry.name.endswith(_SUFFIX) and not entry.name.startswith((".", "_")) and entry.is_file():
                yield Path(entry.path)


def _org_directories(root: Path) -> list[Path]:
    return sorted(Path(e.path) for e in _scan(root) if e.is_dir() and not e.name.startswith((".", "_")))


def _scan(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:  # a directory that is not there, or not ours to read, holds no entries
        return []


def _renamed(name: str) -> str | None:
    """The name an entry has for a repository that the hub knows under two."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (bundled_models() / "_aliases.yaml").read_bytes()
    aliases: dict[str, str] = yaml.load(text, loader)  # noqa: S506 (a safe loader)
    wanted = name.casefold()
    return next((entry for other, entry in aliases.items() if other.casefold() == wanted), None)
