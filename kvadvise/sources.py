"""Where the facts of a model come from: a directory, the hub cache, the catalogue, the hub, in that order.

`resolved_from` says which it was. Everything up to the catalogue needs no network and no heavy import.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from advisor.errors import InvalidInput
from advisor.facts import ModelFacts
from advisor.workload import ModelRef
from kvadvise.model_files import CONFIG, cached_facts, directory_facts, is_repository_id
from kvadvise.surroundings import Surroundings, here

_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "intermediate_size",
    "n_routed_experts",
)
_PATH_BEGINNINGS = ("/", "./", "../", "~")


def resolve_model(
    ref: ModelRef,
    *,
    base_dir: Path,
    offline: bool | None = None,
    where: str = "",
    around: Surroundings | None = None,
) -> ModelFacts:
    """The facts of the model a workload names.

    `base_dir` is the directory of the workload file, `offline` overrides HF_HUB_OFFLINE, `where` names the place in
    the workload for messages. Raises InvalidInput with one sentence on what is missing or broken and what to do.
    """
    around = around or here()
    facts = _from_disk(ref, base_dir, around, where)
    if facts is not None:
        return facts if facts.weights is not None else _with_known_weights(facts, around)
    facts = _from_catalogue(ref, around)
    if facts is not None:
        return facts
    return _from_hub(ref, base_dir, around, around.is_offline if offline is None else offline, where)


def read_model(ref: ModelRef, *, base_dir: Path, around: Surroundings | None = None, where: str = "") -> ModelFacts:
    """Like `resolve_model`, but the model itself: never the catalogue's word for it.

    A cached config without weights is read anew from the hub, which knows their sizes; where the hub is out of
    reach, the cached facts stand.
    """
    around = around or here()
    facts = _from_disk(ref, base_dir, around, where)
    if facts is None:
        return _from_hub(ref, base_dir, around, around.is_offline, where)
    if facts.resolved_from != "hub cache" or facts.weights is not None or around.is_offline:
        return facts
    try:
        return _from_hub(ref, base_dir, around, False, where)
    except InvalidInput as error:
        note = f"its weights are not in the hub cache, and the hub could not tell their sizes ({error.what})"
        return msgspec.structs.replace(facts, notes=(*facts.notes, note))


def _from_disk(ref: ModelRef, base_dir: Path, around: Surroundings, where: str) -> ModelFacts | None:
    """A directory or GGUF file that is named, else the hub cache."""
    named = ref.path if ref.path is not None else ref.id
    if not named.strip():
        raise InvalidInput("is empty", where=where or "model", hint="a hub id, a catalogue name or a directory")
    is_named = ref.path is not None or named.startswith(_PATH_BEGINNINGS) or named in (".", "..")
    for candidate in _candidates(named, base_dir, around):
        if _is_file(candidate) and candidate.suffix == ".gguf":
            return directory_facts(candidate.parent, ref.id, gguf=candidate.name)
        if _is_dir(candidate) and (is_named or _is_file(candidate / CONFIG)):
            return directory_facts(candidate, ref.id)
    if is_named:
        looked = " or ".join(dict.fromkeys(str(c) for c in _candidates(named, base_dir, around)))
        raise InvalidInput(
            f"there is no directory {looked}",
            where=where or "model",
            hint="a relative path starts at the workload file or at the current directory",
        )
    return cached_facts(around.hub_cache, ref.id, ref.revision)


def _candidates(named: str, base_dir: Path, around: Surroundings) -> list[Path]:
    """Where a path may be meant: as it stands, from the workload file, from the current directory."""
    if named.startswith(("/", "~")):
        return [around.path(named)]
    return [base_dir / named, around.cwd / named]


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # too long for a file name, or with a NUL in it
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _from_catalogue(ref: ModelRef, around: Surroundings) -> ModelFacts | None:
    from kvadvise.catalogue import find_facts

    facts = find_facts(ref.id, around)
    if facts is None or ref.revision is None:
        return facts
    note = (
        f"revision {ref.revision} is not in the hub cache: the catalogue's facts are of the revision it was made from"
    )
    return msgspec.structs.replace(facts, notes=(*facts.notes, note))


def _with_known_weights(facts: ModelFacts, around: Surroundings) -> ModelFacts:
    """The catalogue's size for a config that came without weights, where the entry is of the same sizes."""
    from kvadvise.catalogue import find_facts

    known = find_facts(facts.id, around) if is_repository_id(facts.id) else None
    if known is not None and known.weights is not None and _sizes(known.config) == _sizes(facts.config):
        return msgspec.structs.replace(facts, weights=known.weights)
    if facts.resolved_from == "hub cache":
        note = f"its weights are not in the hub cache; `kvadvise models add {facts.id}` reads their sizes from the hub"
        return msgspec.structs.replace(facts, notes=(*facts.notes, note))
    return facts


def _sizes(config: dict[str, Any]) -> tuple[Any, ...]:
    """What two configs of one checkpoint have in common: the sizes, and how it is quantised."""
    nested = config.get("text_config")
    sizes = {**config, **nested} if isinstance(nested, dict) else config
    quantised = config.get("quantization_config")
    method = quantised.get("quant_method") if isinstance(quantised, dict) else None
    return (*(sizes.get(key) for key in _SIZES), method)


def _from_hub(ref: ModelRef, base_dir: Path, around: Surroundings, is_offline: bool, where: str) -> ModelFacts:
    from kvadvise.hub_errors import MissingModel, Unreachable, offline

    try:
        if not is_repository_id(ref.id):
            raise MissingModel("is no directory, no catalogue name and no repository id", where=ref.id)
        if is_offline:
            raise offline(ref.id)
        from kvadvise.hub import fetch_facts

        return fetch_facts(ref.id, ref.revision, around)
    except InvalidInput as error:
        hint = error.hint
        if isinstance(error, MissingModel | Unreachable):
            for candidate in _candidates(ref.id, base_dir, around):
                if _is_dir(candidate):  # it was meant: nothing else has this name
                    directory_facts(candidate, ref.id)
            hint = _with_nearest(ref.id, hint, around)
        at = f"{where}: {error.where}" if where else error.where
        raise type(error)(error.what, where=at, hint=hint) from None


def _with_nearest(name: str, hint: str, around: Surroundings) -> str:
    """The hint, led by the catalogue's nearest names where there are any."""
    from kvadvise.catalogue import nearest_ids

    near = ", ".join(nearest_ids(name, around))
    return "; ".join(part for part in (f"nearest in the catalogue: {near}" if near else "", hint) if part)
