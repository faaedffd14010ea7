"""How large a checkpoint is: safetensors headers, index files, GGUF headers. Never a weight is read.

Which files count follows vLLM 0.32 model_executor/model_loader (default_loader.py, weight_utils.py): those
that `model.safetensors.index.json` lists, else every `*.safetensors` of the directory itself. A file
`consolidated*.safetensors` beside others holds the same weights once more and is not counted; sub-directories
are not looked into.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from advisor.errors import InvalidInput
from advisor.facts import TensorFact, WeightFacts
from kvadvise.json_files import read_object
from kvadvise.safetensors_header import read_safetensors

INDEX = "model.safetensors.index.json"
CONSOLIDATED_INDEX = "consolidated.safetensors.index.json"
TORCH_INDEX = "pytorch_model.bin.index.json"
LFS_POINTER = b"version https://git-lfs"

_COUNTED_AS_PARAMETERS = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"})
_PART = re.compile(r"(?P<stem>.+)-(?P<part>\d{4,6})-of-(?P<parts>\d{4,6})\.safetensors")
_AGAIN = "download the file again"


class Weights(msgspec.Struct, frozen=True):
    """What was found, None where nothing says how large the weights are, and what is worth saying."""

    facts: WeightFacts | None = None
    notes: tuple[str, ...] = ()


def from_headers(files: Iterable[dict[str, TensorFact]]) -> WeightFacts:
    """One figure from the headers of all files; a name in two files counts once, as loading overwrites it."""
    tensors: dict[str, TensorFact] = {}
    n_files = 0
    for file in files:
        tensors.update(file)
        n_files += 1
    return WeightFacts(
        total_bytes=sum(t.n_bytes for t in tensors.values()),
        basis="headers",
        source=f"safetensors headers of {n_files} file{'s' if n_files != 1 else ''}",
        num_parameters=_count_parameters(tensors),
        tensors=tensors,
    )


def _count_parameters(tensors: dict[str, TensorFact]) -> int | None:
    """Elements of all tensors; None where integers hold packed weights and elements are no parameters."""
    if any(t.dtype not in _COUNTED_AS_PARAMETERS for t in tensors.values()):
        return None
    n_parameters = 0
    for tensor in tensors.values():
        n_elements = 1
        for size in tensor.shape:
            n_elements *= size
        n_parameters += n_elements
    return n_parameters


def index_shards(index: dict[str, Any], name: str) -> tuple[str, ...]:
    """The file names an index lists, sorted; raises InvalidInput for a name that leaves the directory."""
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        raise InvalidInput("has no weight_map from tensor to file name", where=name)
    shards = tuple(sorted(set(weight_map.values())))
    for shard in shards:
        if "/" in shard or "\\" in shard or shard in ("", ".", "..") or "\0" in shard:
            raise InvalidInput(f"weight_map names {shard!r}, expected a file beside it", where=name)
    return shards


def from_index(index: dict[str, Any], name: str) -> WeightFacts | None:
    """The index file's own total, None where it gives none."""
    metadata = index.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    total = metadata.get("total_size")
    if isinstance(total, float) and total.is_integer():
        total = int(total)
    if type(total) is not int or total <= 0:
        return None
    n_parameters = metadata.get("total_parameters")
    return WeightFacts(
        total_bytes=total,
        basis="index",
        source=f"total_size of {name}",
        num_parameters=n_parameters if type(n_parameters) is int and n_parameters > 0 else None,
    )


def read_weights(folder: Path, *, may_lack_files: bool = False) -> Weights:
    """What the files of a model directory say; raises InvalidInput where a file is broken or missing.

    In the hub cache (`may_lack_files`) files that are not there yet are normal: vLLM fetches them at start.
    """
    names = _file_names(folder)
    notes: tuple[str, ...] = ()
    if INDEX in names:
        found = _by_index(folder, INDEX, names, may_lack_files)
        if found.facts is not None:
            return found
        notes = found.notes
    else:
        files = counted_safetensors(names)
        if files and CONSOLIDATED_INDEX in names and files[0].startswith("consolidated"):
            return _by_index(folder, CONSOLIDATED_INDEX, names, may_lack_files)
        if files and not (lacking := _missing_parts(files)):
            return _by_headers(folder, files)
        if files and not may_lack_files:
            raise InvalidInput(
                f"{lacking[0]} is missing, and {len(lacking) - 1} more of its weight files",
                where=str(folder),
                hint="finish the download, or keep only the JSON files: a plan needs no weights",
            )
    if TORCH_INDEX in names:
        return Weights(from_index(read_object(folder / TORCH_INDEX), TORCH_INDEX), notes)
    if ggufs := [n for n in names if n.endswith(".gguf") and not n.startswith("mmproj")]:
        return gguf_weights(folder, ggufs)
    return Weights(None, notes)


def _file_names(folder: Path) -> frozenset[str]:
    """The regular files of a directory; a link to a blob that is gone is none."""
    try:
        return frozenset(path.name for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(folder)) from None


def counted_safetensors(names: Iterable[str]) -> tuple[str, ...]:
    """Of the file names of a directory without index, those whose tensors are loaded."""
    files = sorted(n for n in names if n.endswith(".safetensors") and n != "adapter_model.safetensors")
    others = tuple(n for n in files if not n.startswith("consolidated"))
    return others or tuple(files)


def _missing_parts(files: tuple[str, ...]) -> list[str]:
    """By the numbers in the file names (model-00002-of-00004.safetensors), the parts that are not there."""
    sets = {(found["stem"], found["parts"]) for file in files if (found := _PART.fullmatch(file))}
    expected = (
        f"{stem}-{i:0{len(parts)}d}-of-{parts}.safetensors"
        for stem, parts in sorted(sets)
        for i in range(1, int(parts) + 1)
    )
    there = frozenset(files)
    return [name for name in expected if name not in there]


def _by_index(folder: Path, index_name: str, names: frozenset[str], may_lack_files: bool) -> Weights:
    index = read_object(folder / index_name)
    shards = index_shards(index, str(folder / index_name))
    missing = [s for s in shards if s not in names]
    if not missing and shards:
        return _by_headers(folder, shards, index)
    total = from_index(index, index_name)
    if missing and len(missing) < len(shards) and not may_lack_files:
        raise InvalidInput(
            f"names {len(shards)} files and {len(missing)} of them are missing, {missing[0]} first",
            where=str(folder / index_name),
            hint="finish the download, or keep only the JSON files: their total is enough for a plan",
        )
    return Weights(total, () if total else (f"{index_name} gives no total_size and its files are not here",))


def _by_headers(folder: Path, files: tuple[str, ...], index: dict[str, Any] | None = None) -> Weights:
    if pointers := [f for f in files if _is_lfs_pointer(folder / f)]:
        total = from_index(index, INDEX) if index else None
        return Weights(total, (f"{len(pointers)} weight files are Git LFS pointers, not weights (run `git lfs pull`)",))
    return Weights(from_headers(read_safetensors(folder / f) for f in files))


def _is_lfs_pointer(path: Path) -> bool:
    try:
        if not path.is_file() or path.stat().st_size > 1024:
            return False
        return path.read_bytes().startswith(LFS_POINTER)
    except OSError:
        return False  # reading its header says what is wrong


def gguf_weights(folder: Path, names: list[str]) -> Weights:
    """The one GGUF model of a directory, all its parts; raises InvalidInput when there are several."""
    from kvadvise.gguf import parts_of, read_gguf

    models = dict(parts_of(name) for name in sorted(names))
    if len(models) > 1:
        raise InvalidInput(
            f"holds {len(models)} GGUF models: {', '.join(sorted(models)[:4])}",
            where=str(folder),
            hint="name one file: `model: {path: DIR/FILE.gguf}`",
        )
    parts = next(iter(models.values()))
    if missing := [p for p in parts if not (folder / p).exists()]:
        raise InvalidInput(f"{missing[0]} is missing, the model has {len(parts)} parts", where=str(folder), hint=_AGAIN)
    tensors: dict[str, TensorFact] = {}
    for part in parts:
        tensors.update(read_gguf(folder / part).tensors)
    return Weights(
        WeightFacts(
            total_bytes=sum(t.n_bytes for t in tensors.values()),
            basis="gguf",
            source=f"GGUF header of {parts[0]}" + (f" and {len(parts) - 1} more" if len(parts) > 1 else ""),
            tensors=tensors,
        )
    )
