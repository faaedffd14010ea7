"""Where a model's files are: a directory, the hub cache, or nowhere on this machine yet. No network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

_REPOSITORY = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*/)?[A-Za-z0-9_][A-Za-z0-9._-]*")
_REMOTE = ("s3://", "gs://", "az://", "hf://", "http://", "https://", "runai://")


class ModelPlace(msgspec.Struct, frozen=True, kw_only=True):
    """`folder` has the files (`cache`: the snapshot, which may lack some). `absent`: a hub id that is not cached.
    `missing`: no such directory, and no hub id either. `remote`: an address that only vLLM can read.
    """

    kind: Literal["directory", "cache", "absent", "missing", "remote"]
    folder: Path | None = None
    file: str = ""  # one GGUF file was named


def find_model(model: str, env: Mapping[str, str], revision: str | None = None, cwd: Path | None = None) -> ModelPlace:
    """Where vLLM will find what it is given as the model, in its own order: a path that exists, else the hub."""
    if model.startswith(_REMOTE):
        return ModelPlace(kind="remote")
    path = (cwd or Path.cwd()) / Path(model).expanduser()
    try:
        if path.is_dir():
            return ModelPlace(kind="directory", folder=path)
        if path.is_file():
            return ModelPlace(kind="directory", folder=path.parent, file=path.name)
    except OSError:
        return ModelPlace(kind="missing")
    name = model.partition(":")[0]  # org/name:QUANTISATION names a GGUF file of a repository
    if not is_repository(name):
        return ModelPlace(kind="missing")
    snapshot = _snapshot(hub_cache(env), name, revision)
    return ModelPlace(kind="absent") if snapshot is None else ModelPlace(kind="cache", folder=snapshot)


def is_repository(name: str) -> bool:
    """Whether a name can be a repository on the hub (huggingface_hub, utils/_validators.py)."""
    fits = _REPOSITORY.fullmatch(name) is not None
    return fits and len(name) <= 96 and "--" not in name and ".." not in name and name[-1] not in "-."


def hub_cache(env: Mapping[str, str]) -> Path:
    """The hub cache, in huggingface_hub's own order (constants.py, HF_HUB_CACHE)."""
    for name, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if value := env.get(name):
            return Path(value).expanduser() / below
    return Path(env.get("HOME", "/")) / ".cache" / "huggingface" / "hub"


def _snapshot(cache: Path, name: str, revision: str | None) -> Path | None:
    folder = cache / ("models--" + name.replace("/", "--"))
    wanted = revision or "main"
    if wanted.startswith("/") or ".." in wanted.split("/") or "\0" in wanted:
        return None
    try:
        ref = folder / "refs" / wanted
        commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else wanted
        snapshot = folder / "snapshots" / commit
        return snapshot if commit and "/" not in commit and snapshot.is_dir() else None
    except (OSError, ValueError):
        return None
