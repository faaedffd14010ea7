"""The files of a model directory: which there are, and what is read from each."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from advisor.errors import InvalidInput
from advisor.facts import ModelFacts
from kvadvise.checkpoints import gguf_weights, read_weights
from kvadvise.json_files import parse_object, read_bytes, read_object

CONFIG = "config.json"
QUANT_CONFIG = "hf_quant_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
_LARGEST_TOKEN_LIMIT = 10**15  # transformers writes 10**30 for a tokenizer without a limit


class _Tokenizer(msgspec.Struct):
    model_max_length: msgspec.Raw | None = None


def no_config(where: str, names: Collection[str]) -> InvalidInput:
    """The error for a place without config.json, by what is there instead."""
    if "adapter_config.json" in names:
        return InvalidInput(
            f"is a LoRA adapter, it has no {CONFIG}",
            where=where,
            hint="plan its base model and pin `enable_lora: true`",
        )
    if "params.json" in names:
        return InvalidInput(
            f"is in Mistral's own format: params.json, no {CONFIG}",
            where=where,
            hint=f"take a copy of the model that has {CONFIG}",
        )
    if any(name.endswith(".gguf") for name in names):
        return InvalidInput(
            f"holds GGUF files but no {CONFIG}",
            where=where,
            hint=f"put the {CONFIG} of the model it was made from beside them",
        )
    return InvalidInput(f"holds no {CONFIG}", where=where, hint="name the directory that vLLM would be given")


def token_limit(tokenizer: dict[str, Any]) -> int | None:
    """The longest input a tokenizer_config.json states, None where it states none."""
    value = tokenizer.get("model_max_length")
    return value if type(value) is int and 0 < value < _LARGEST_TOKEN_LIMIT else None


def directory_facts(folder: Path, model_id: str, *, gguf: str | None = None) -> ModelFacts:
    """The facts of a model directory, or of one GGUF file in it; raises InvalidInput for what is broken."""
    config, quant, limit = _read_json_files(folder)
    weights = gguf_weights(folder, [gguf]) if gguf else read_weights(folder)
    return ModelFacts(
        id=model_id,
        config=config,
        quant_config=quant,
        weights=weights.facts,
        resolved_from="directory",
        model_max_length=limit,
        source=f"{CONFIG} in {folder}",
        notes=weights.notes,
    )


def cached_facts(cache: Path, model_id: str, revision: str | None) -> ModelFacts | None:
    """The facts of a model in the hub cache, None where its config is not there; raises InvalidInput when broken.

    Layout of huggingface_hub: models--ORG--NAME/refs/REVISION holds a commit, snapshots/COMMIT the files.
    """
    commit = _cached_commit(cache, model_id, revision)
    if commit is None:
        return None
    snapshot = cache / _cache_name(model_id) / "snapshots" / commit
    config, quant, limit = _read_json_files(snapshot)
    weights = read_weights(snapshot, may_lack_files=True)
    return ModelFacts(
        id=model_id,
        config=config,
        quant_config=quant,
        weights=weights.facts,
        resolved_from="hub cache",
        revision=commit,
        model_max_length=limit,
        source=f"{CONFIG} of {model_id} in the hub cache, commit {commit[:12]}",
        notes=weights.notes,
    )


def is_repository_id(name: str) -> bool:
    """Whether a name can be a repository on the hub (huggingface_hub, utils/_validators.py)."""
    plain = re.fullmatch(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*/)?[A-Za-z0-9_][A-Za-z0-9._-]*", name)
    return bool(plain) and len(name) <= 96 and "--" not in name and ".." not in name and name[-1] not in "-."


def _cache_name(model_id: str) -> str:
    return "models--" + model_id.replace("/", "--")


def _cached_commit(cache: Path, model_id: str, revision: str | None) -> str | None:
    """The cached commit of a revision (None: main) that has a config.json."""
    if not is_repository_id(model_id):
        return None
    folder = cache / _cache_name(model_id)
    wanted = revision or "main"
    if "\0" in wanted or wanted.startswith("/") or ".." in wanted.split("/"):
        return None
    try:
        ref = folder / "refs" / wanted
        commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else wanted
        is_there = bool(commit) and "/" not in commit and (folder / "snapshots" / commit / CONFIG).is_file()
    except (OSError, ValueError):  # not ours to read, or a ref that is no text: as good as not there
        return None
    return commit if is_there else None


def _read_json_files(folder: Path) -> tuple[dict[str, Any], dict[str, Any] | None, int | None]:
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(folder)) from None
    if CONFIG not in names:
        raise no_config(str(folder), names)
    config = read_object(folder / CONFIG)
    quant = read_object(folder / QUANT_CONFIG) if QUANT_CONFIG in names else None
    limit = _read_token_limit(folder / TOKENIZER_CONFIG) if TOKENIZER_CONFIG in names else None
    return config, quant, limit


def _read_token_limit(path: Path) -> int | None:
    """Reads past the rest of the file, which may be megabytes of added tokens."""
    data = read_bytes(path)
    try:
        value = msgspec.json.decode(data, type=_Tokenizer).model_max_length
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return token_limit(parse_object(data, str(path)))
    return token_limit({} if value is None else parse_object(b'{"model_max_length":' + bytes(value) + b"}", str(path)))
