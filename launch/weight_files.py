"""Are a checkpoint's files whole: all that the index lists, none cut short, none only a pointer. Reads headers only.

A safetensors file is 8 bytes with the length of a JSON object, the object, the data it describes; its size follows.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

INDEXES = ("model.safetensors.index.json", "consolidated.safetensors.index.json", "pytorch_model.bin.index.json")
_POINTER = b"version https://git-lfs"
_LONGEST_HEADER_BYTES = 100_000_000  # safetensors' own limit
_PART = re.compile(r"(.+)-(\d{4,6})-of-(\d{4,6})(\.\w+)")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_NOT_WEIGHTS = re.compile(r"(?:training_args|optimizer|scheduler|rng_state|scaler).*|adapter_model\.safetensors")


class FileProblem(msgspec.Struct, frozen=True):
    """What is wrong with one file; `missing` also where there is no weight file at all."""

    kind: Literal["missing", "corrupt"]
    file: str
    text: str


def weight_problems(folder: Path) -> list[FileProblem]:
    """Everything that keeps the weights in a directory from being loaded, file by file."""
    names = _names(folder)
    index = next((name for name in INDEXES if name in names), None)
    if index is not None:
        return list(_by_index(folder, index, names))
    files = sorted(name for name in names if name.endswith(_WEIGHTS) and not _NOT_WEIGHTS.fullmatch(name))
    if any(name.endswith(".safetensors") for name in files):
        files = [name for name in files if name.endswith(".safetensors")]  # which vLLM takes before all others
    if not files:
        return [FileProblem("missing", "", "there is no weight file")]
    missing = [FileProblem("missing", name, "is not there") for name in _missing_parts(files)]
    return missing + [problem for name in files for problem in _file(folder / name)]


def tensors_of(path: Path) -> dict[str, Any]:
    """The header of a safetensors file; raises ValueError with what is wrong with the file, OSError."""
    n_bytes = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        if len(first) < 8:
            raise ValueError(f"is {n_bytes} bytes long, which is no safetensors file")
        (length,) = struct.unpack("<Q", first)
        if first.startswith(_POINTER[:8]):
            raise ValueError("is a Git LFS pointer, not the weights")
        if not 2 <= length <= _LONGEST_HEADER_BYTES:
            raise ValueError(f"is no safetensors file: its header would be {length} bytes long")
        if length > n_bytes - 8:
            raise ValueError(f"is cut short: {n_bytes} bytes, and its header alone has {length}")
        header = file.read(length)
    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
        end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise ValueError("has a header that is not safetensors'") from None
    expected = 8 + length + end
    if n_bytes < expected:
        raise ValueError(f"is cut short: {n_bytes} of {expected} bytes")
    if n_bytes > expected:
        raise ValueError(f"is too long: {n_bytes} bytes, and its header describes {expected}")
    return dict(entries)


def _names(folder: Path) -> set[str]:
    """What the directory lists, links to files that are gone included: they are told apart later."""
    try:
        return {path.name for path in folder.iterdir()}
    except OSError:
        return set()


def _by_index(folder: Path, index: str, names: set[str]) -> Iterator[FileProblem]:
    try:
        mapping = json.loads((folder / index).read_bytes())["weight_map"]
        listed = {str(file): [t for t, f in mapping.items() if f == file] for file in set(mapping.values())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        yield FileProblem("corrupt", index, "has no weight_map from tensor to file")
        return
    for file in sorted(listed):
        if file not in names:
            yield FileProblem("missing", file, f"is not there, and {index} lists it")
            continue
        problems = list(_file(folder / file))
        yield from problems
        if not problems and file.endswith(".safetensors"):
            absent = [tensor for tensor in listed[file] if tensor not in tensors_of(folder / file)]
            if absent:
                text = f"lacks {len(absent)} of the tensors that {index} says it has, {absent[0]} first"
                yield FileProblem("corrupt", file, text)


def _file(path: Path) -> Iterator[FileProblem]:
    try:
        if not path.exists():
            yield FileProblem("missing", path.name, "is a link to a file that is gone")
        elif path.stat().st_size == 0:
            yield FileProblem("corrupt", path.name, "is empty")
        elif path.suffix == ".safetensors":
            tensors_of(path)
        elif path.suffix == ".gguf":
            if _first(path, 4) != b"GGUF":
                yield FileProblem("corrupt", path.name, "is no GGUF file")
        elif _first(path, 4) == b"PK\x03\x04" and not zipfile.is_zipfile(path):
            yield FileProblem("corrupt", path.name, "is cut short: the end of the archive is not there")
        elif _first(path, len(_POINTER)) == _POINTER:
            yield FileProblem("corrupt", path.name, "is a Git LFS pointer, not the weights")
    except OSError as error:
        yield FileProblem("corrupt", path.name, f"cannot be read: {error.strerror or error}")
    except ValueError as error:
        yield FileProblem("corrupt", path.name, str(error))


def _first(path: Path, n_bytes: int) -> bytes:
    with path.open("rb") as file:
        return file.read(n_bytes)


def _missing_parts(files: list[str]) -> list[str]:
    """By the numbers in the names (model-00002-of-00004.safetensors), the parts that are not there."""
    sets = {(m[1], m[3], m[4]) for name in files if (m := _PART.fullmatch(name))}
    there = set(files)
    return [
        name
        for stem, parts, ending in sorted(sets)
        for i in range(1, int(parts) + 1)
        if (name := f"{stem}-{i:0{len(parts)}d}-of-{parts}{ending}") not in there
    ]
