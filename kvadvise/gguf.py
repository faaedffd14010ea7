"""GGUF headers: the name, shape, type and bytes of every tensor, without reading one weight.

Layout and value types: the GGUF specification (ggml, docs/gguf.md), versions 2 and 3; block sizes: gguf
0.19.0, gguf/constants.py, GGML_QUANT_SIZES. Types that ggml has removed are not known here and are an error.
"""

from __future__ import annotations

import mmap
import re
import struct
from pathlib import Path

import msgspec

from advisor.errors import InvalidInput
from advisor.facts import TensorFact

# ggml type number: name, weights in a block, bytes of a block
TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8),
    28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
}  # fmt: skip

_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_MOST_DIMENSIONS = 4  # GGML_MAX_DIMS
_DEEPEST_ARRAY = 4
_SPLIT_NAME = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf\Z")


class Truncated(InvalidInput):
    """The header goes on behind the bytes that were given."""


class GgufHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What the header says of the weights."""

    version: int
    tensors: dict[str, TensorFact]


class _Cursor:
    """A place in the bytes; every step is checked against their end."""

    def __init__(self, data: bytes | mmap.mmap, name: str) -> None:
        self.data, self.name, self.at, self.end = data, name, 0, len(data)

    def skip(self, n_bytes: int) -> int:
        start = self.at
        if n_bytes > self.end - start:
            raise Truncated("the GGUF header is truncated", where=self.name, hint="download the file again")
        self.at = start + n_bytes
        return start

    def u32(self) -> int:
        return int(struct.unpack_from("<I", self.data, self.skip(4))[0])

    def u64(self) -> int:
        return int(struct.unpack_from("<Q", self.data, self.skip(8))[0])

    def text(self) -> str:
        n_bytes = self.u64()
        start = self.skip(n_bytes)
        return self.data[start : start + n_bytes].decode("utf-8", "replace")


def parse_gguf(data: bytes | mmap.mmap, name: str) -> GgufHeader:
    """The header at the start of `data`; raises InvalidInput (Truncated when more bytes could help)."""
    cursor = _Cursor(data, name)
    if bytes(data[:4]) != b"GGUF":
        raise InvalidInput("is not a GGUF file (it does not begin with GGUF)", where=name)
    cursor.skip(4)
    version = cursor.u32()
    if version not in (2, 3):
        raise InvalidInput(f"has GGUF version {version}, expected 2 or 3 (little-endian)", where=name)
    n_tensors, n_values = cursor.u64(), cursor.u64()
    for _ in range(n_values):
        cursor.skip(cursor.u64())
        _skip_value(cursor, cursor.u32(), 0)
    tensors = dict(_read_tensor(cursor) for _ in range(n_tensors))
    if len(tensors) != n_tensors:
        raise InvalidInput("two tensors of one name in a GGUF header", where=name)
    return GgufHeader(version=version, tensors=tensors)


def _skip_value(cursor: _Cursor, kind: int, depth: int) -> None:
    if kind in _SCALAR_BYTES:
        cursor.skip(_SCALAR_BYTES[kind])
    elif kind == _STRING:
        cursor.skip(cursor.u64())
    elif kind == _ARRAY and depth < _DEEPEST_ARRAY:
        item, count = cursor.u32(), cursor.u64()
        if item in _SCALAR_BYTES:
            cursor.skip(_SCALAR_BYTES[item] * count)
            return
        for _ in range(count):
            _skip_value(cursor, item, depth + 1)
    else:
        raise InvalidInput(f"has a GGUF value of unknown type {kind}", where=cursor.name)


def _read_tensor(cursor: _Cursor) -> tuple[str, TensorFact]:
    name, n_dimensions = cursor.text(), cursor.u32()
    if n_dimensions > _MOST_DIMENSIONS:
        raise InvalidInput(f"tensor {name!r} has {n_dimensions} dimensions, at most 4", where=cursor.name)
    shape = tuple(cursor.u64() for _ in range(n_dimensions))
    kind = cursor.u32()
    cursor.skip(8)  # the offset of its data
    if kind not in TYPES:
        raise InvalidInput(f"tensor {name!r} has the unknown ggml type {kind}", where=cursor.name)
    dtype, block, block_bytes = TYPES[kind]
    row = shape[0] if shape else 1
    if row % block:
        raise InvalidInput(f"tensor {name!r}: rows of {row} do not divide into {dtype} blocks", where=cursor.name)
    n_weights = 1
    for size in shape:
        n_weights *= size
    return name, TensorFact(dtype=dtype, shape=shape[::-1], n_bytes=n_weights // block * block_bytes)


def read_gguf(path: Path) -> GgufHeader:
    """The header of a file on disk; raises InvalidInput."""
    try:
        if not path.is_file():
            raise InvalidInput("is not a regular file", where=str(path))
        if path.stat().st_size == 0:  # an empty file cannot be mapped
            raise Truncated("is empty", where=str(path), hint="download the file again")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return parse_gguf(data, str(path))
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror or error}", where=str(path)) from None


def parts_of(name: str) -> tuple[str, tuple[str, ...]]:
    """The model a GGUF file name belongs to, and the names of all its parts (itself, if not split)."""
    found = _SPLIT_NAME.match(name)
    if not found:
        return name.removesuffix(".gguf"), (name,)
    stem, parts = found["stem"], int(found["parts"])
    return stem, tuple(f"{stem}-{i:05d}-of-{parts:05d}.gguf" for i in range(1, parts + 1))
