"""A safetensors file's header: the name, dtype, shape and bytes of every tensor.

Layout: 8 bytes (little-endian) with the length of a JSON object, the object, the data. Limits and dtype names
as in safetensors 0.8.0. What contradicts itself is an error: a figure from a broken header would be a guess.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput
from advisor.facts import TensorFact
from kvadvise.json_files import parse_object

# Bits of one element by safetensors' names (enum Dtype).
DTYPE_BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
_LONGEST_HEADER_BYTES = 100_000_000  # safetensors' own limit
_AGAIN = "download the file again"


def header_length(first: bytes, name: str, n_bytes: int | None = None) -> int:
    """The length of the JSON header behind the first 8 bytes of a file of `n_bytes` (None: unknown)."""
    if len(first) < 8:
        raise InvalidInput(f"is no safetensors file: {len(first)} bytes long", where=name, hint=_AGAIN)
    length = int(struct.unpack("<Q", first[:8])[0])
    if length > _LONGEST_HEADER_BYTES or length < 2:
        raise InvalidInput(f"is no safetensors file: its header would be {length} bytes long", where=name, hint=_AGAIN)
    if n_bytes is not None and length > n_bytes - 8:
        raise InvalidInput(
            f"has a truncated safetensors header: {length} bytes announced, {n_bytes - 8} there",
            where=name,
            hint=_AGAIN,
        )
    return length


def parse_header(header: bytes, name: str) -> dict[str, TensorFact]:
    """The tensors a safetensors header lists; raises InvalidInput where they contradict each other."""
    entries = parse_object(header, name)
    entries.pop("__metadata__", None)
    tensors: dict[str, TensorFact] = {}
    spans: list[tuple[int, int, str]] = []
    for tensor, entry in entries.items():
        dtype, shape, begin, end = _entry(entry, tensor, name)
        bits = DTYPE_BITS.get(dtype)
        n_elements = 1
        for size in shape:
            n_elements *= size
        if bits is not None and n_elements * bits != (end - begin) * 8:
            raise InvalidInput(
                f"tensor {tensor!r}: {dtype} {list(shape)} cannot take {end - begin} bytes",
                where=name,
                hint=_AGAIN,
            )
        tensors[tensor] = TensorFact(dtype=dtype, shape=shape, n_bytes=end - begin)
        spans.append((begin, end, tensor))
    _check_spans(spans, name)
    return tensors


def _entry(entry: Any, tensor: str, name: str) -> tuple[str, tuple[int, ...], int, int]:
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        dtype = shape = begin = end = None
    numbers = [begin, end, *shape] if isinstance(shape, list) else [None]
    if not isinstance(dtype, str) or not all(type(n) is int and n >= 0 for n in numbers) or begin > end:
        raise InvalidInput(f"tensor {tensor!r} lacks a dtype, a shape or offsets", where=name, hint=_AGAIN)
    return dtype, tuple(shape), begin, end


def _check_spans(spans: list[tuple[int, int, str]], name: str) -> None:
    """The data of a file has no hole and no overlap."""
    spans.sort()
    expected = 0
    for begin, end, tensor in spans:
        if begin != expected:
            raise InvalidInput(f"tensor {tensor!r} does not begin where the one before ends", where=name, hint=_AGAIN)
        expected = end


def read_safetensors(path: Path) -> dict[str, TensorFact]:
    """The tensors of one safetensors file on disk; reads its header only."""
    try:
        if not path.is_file():
            raise InvalidInput("is not a regular file", where=str(path))
        with path.open("rb") as file:
            n_bytes = path.stat().st_size
            header = file.read(header_length(file.read(8), str(path), n_bytes))
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    return parse_header(header, str(path))
