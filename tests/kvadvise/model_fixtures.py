"""Checkpoint files for tests: whole headers in front of no data at all."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kvadvise.surroundings import Surroundings

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]  # name -> dtype, shape
BITS = {"F32": 32, "BF16": 16, "F16": 16, "F8_E4M3": 8, "U8": 8, "I32": 32, "F4": 4}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 128,
}


def surroundings(tmp_path: Path, **env: str) -> Surroundings:
    """An empty machine under tmp_path, with the hub switched off unless the test says otherwise."""
    for name in ("home", "cwd"):
        (tmp_path / name).mkdir(exist_ok=True)
    return Surroundings(env={"HF_HUB_OFFLINE": "1", **env}, cwd=tmp_path / "cwd", home=tmp_path / "home")


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def elements(shape: Iterable[int]) -> int:
    n = 1
    for size in shape:
        n *= size
    return n


def safetensors_bytes(shapes: Shapes, metadata: Mapping[str, str] | None = None) -> bytes:
    """The length and the header of a safetensors file; what would follow is data."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, (dtype, shape) in shapes.items():
        end = at + elements(shape) * BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header


def write_safetensors(path: Path, shapes: Shapes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(safetensors_bytes(shapes))
    return path


def write_sharded(folder: Path, shapes: Shapes, n_files: int, *, with_total: bool = True) -> list[Path]:
    """The tensors dealt out to files, and the index that lists them."""
    names = list(shapes)
    weight_map: dict[str, str] = {}
    files: list[Path] = []
    for i in range(n_files):
        file = folder / f"model-{i + 1:05d}-of-{n_files:05d}.safetensors"
        dealt = {name: shapes[name] for name in names[i::n_files]}
        files.append(write_safetensors(file, dealt))
        weight_map |= dict.fromkeys(dealt, file.name)
    total = sum(elements(shape) * BITS[dtype] // 8 for dtype, shape in shapes.values())
    metadata = {"total_size": total} if with_total else {}
    write_json(folder / "model.safetensors.index.json", {"metadata": metadata, "weight_map": weight_map})
    return files


def gguf_bytes(
    tensors: Mapping[str, tuple[int, tuple[int, ...]]], values: Mapping[str, Any] | None = None, version: int = 3
) -> bytes:
    """A GGUF header: tensors as name -> ggml type number, shape in ggml order."""
    values = {"general.architecture": "llama", **(values or {})}
    data = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    for key, value in values.items():
        data += _text(key) + _value(value)
    for name, (kind, shape) in tensors.items():
        data += _text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        data += struct.pack("<IQ", kind, 0)
    return data


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, list):
        typed = [_value(item) for item in value]
        return struct.pack("<I", 9) + typed[0][:4] + struct.pack("<Q", len(value)) + b"".join(t[4:] for t in typed)
    return struct.pack("<II", 4, value)
