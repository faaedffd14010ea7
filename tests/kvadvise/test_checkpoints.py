"""Checkpoint headers: exact totals, which files count, and one clear error for whatever is broken."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from kvadvise.catalogue import find_facts
from kvadvise.checkpoints import read_weights
from kvadvise.gguf import TYPES, parse_gguf, read_gguf
from kvadvise.json_files import parse_object
from kvadvise.safetensors_header import DTYPE_BITS, header_length, parse_header, read_safetensors
from tests.kvadvise.model_fixtures import (
    gguf_bytes,
    safetensors_bytes,
    surroundings,
    write_json,
    write_safetensors,
    write_sharded,
)
from tests.kvadvise.published_shapes import PUBLISHED, checkpoint

TWO = {"a": ("BF16", (4, 8)), "b": ("F32", (3,))}
INDEX = "model.safetensors.index.json"


def error_of(call: Any, *args: Any, **kwargs: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        call(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize("model_id", PUBLISHED)
def test_headers_add_up_to_what_was_published(model_id: str, tmp_path: Path) -> None:
    """From the catalogue's config to every tensor to the checkpoint's total, to the byte."""
    total, n_parameters = PUBLISHED[model_id]
    facts = find_facts(model_id, surroundings(tmp_path))
    assert facts is not None
    shapes = {name: ("BF16", shape) for name, shape in checkpoint(model_id, facts.config).items()}
    write_sharded(tmp_path / "model", shapes, 5)
    found = read_weights(tmp_path / "model").facts
    assert found is not None
    assert found.total_bytes == total
    assert found.num_parameters == total // 2
    assert n_parameters in (None, found.num_parameters)
    assert found.basis == "headers"
    assert found.tensors is not None
    assert {name: fact.shape for name, fact in found.tensors.items()} == {n: s for n, (_, s) in shapes.items()}


def test_one_file_without_index(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", TWO)
    found = read_weights(tmp_path)
    assert found.facts is not None
    assert (found.facts.total_bytes, found.facts.num_parameters) == (64 + 12, 35)
    assert found.facts.source == "safetensors headers of 1 file"
    assert found.notes == ()


def test_integers_are_no_parameters(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", {"qweight": ("I32", (16, 4)), "scales": ("F16", (4,))})
    found = read_weights(tmp_path).facts
    assert found is not None
    assert (found.total_bytes, found.num_parameters) == (264, None)


@pytest.mark.parametrize("dtype", ["F4", "U8", "F8_E4M3"])
def test_narrow_dtypes(dtype: str) -> None:
    data = safetensors_bytes({"w": (dtype, (6, 4))})
    assert parse_header(data[8:], "x")["w"].n_bytes == 24 * DTYPE_BITS[dtype] // 8


def test_consolidated_copy_is_not_counted_twice(tmp_path: Path) -> None:
    write_sharded(tmp_path, TWO, 2)
    write_safetensors(tmp_path / "consolidated.safetensors", {"other": ("BF16", (1000,))})
    write_safetensors(tmp_path / "adapter_model.safetensors", {"lora": ("BF16", (1000,))})
    write_safetensors(tmp_path / "original" / "model.safetensors", {"again": ("BF16", (1000,))})
    found = read_weights(tmp_path).facts
    assert found is not None
    assert found.total_bytes == 76
    (tmp_path / INDEX).unlink()
    again = read_weights(tmp_path).facts
    assert again is not None
    assert again.total_bytes == 76


def test_consolidated_alone_counts(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "consolidated.safetensors", TWO)
    found = read_weights(tmp_path).facts
    assert found is not None
    assert found.total_bytes == 76


def test_consolidated_shards_follow_their_own_index(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "consolidated-1.safetensors", TWO)
    write_safetensors(tmp_path / "consolidated-old.safetensors", {"old": ("BF16", (1000,))})
    index = {"metadata": {}, "weight_map": dict.fromkeys(TWO, "consolidated-1.safetensors")}
    write_json(tmp_path / "consolidated.safetensors.index.json", index)
    found = read_weights(tmp_path).facts
    assert found is not None
    assert found.total_bytes == 76


def test_a_tensor_in_two_files_counts_once(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", TWO)
    write_safetensors(tmp_path / "model.fp16.safetensors", TWO)
    found = read_weights(tmp_path).facts
    assert found is not None
    assert found.total_bytes == 76


def test_index_alone_gives_its_total(tmp_path: Path) -> None:
    files = write_sharded(tmp_path, TWO, 2)
    for file in files:
        file.unlink()
    found = read_weights(tmp_path).facts
    assert found is not None
    assert (found.total_bytes, found.basis, found.tensors) == (76, "index", None)


@pytest.mark.parametrize(
    ("metadata", "total"),
    [({"total_size": 1.5e9}, 1_500_000_000), ({"total_size": "12"}, None), ({"total_size": 0}, None), (None, None)],
)
def test_totals_of_an_index(tmp_path: Path, metadata: Any, total: int | None) -> None:
    write_json(tmp_path / "pytorch_model.bin.index.json", {"metadata": metadata, "weight_map": {"a": "x.bin"}})
    found = read_weights(tmp_path).facts
    assert (found.total_bytes if found else None) == total


def test_index_without_total_and_files_is_unknown(tmp_path: Path) -> None:
    for file in write_sharded(tmp_path, TWO, 2, with_total=False):
        file.unlink()
    found = read_weights(tmp_path)
    assert found.facts is None
    assert "no total_size" in found.notes[0]


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_sharded(tmp_path, TWO, 2)[1].unlink()
    error = error_of(read_weights, tmp_path)
    assert error.where.endswith(INDEX)
    assert "model-00002-of-00002.safetensors" in error.what


def test_a_missing_part_is_seen_without_an_index(tmp_path: Path) -> None:
    write_sharded(tmp_path, {**TWO, "c": ("F32", (1,))}, 3)[1].unlink()
    (tmp_path / INDEX).unlink()
    error = error_of(read_weights, tmp_path)
    assert "model-00002-of-00003.safetensors is missing" in error.what
    assert read_weights(tmp_path, may_lack_files=True).facts is None


def test_the_cache_may_lack_files(tmp_path: Path) -> None:
    write_sharded(tmp_path, TWO, 2)[0].unlink()
    found = read_weights(tmp_path, may_lack_files=True).facts
    assert found is not None
    assert (found.total_bytes, found.basis) == (76, "index")


def test_a_link_to_nothing_is_a_missing_file(tmp_path: Path) -> None:
    file = write_sharded(tmp_path, TWO, 2)[0]
    file.unlink()
    file.symlink_to(tmp_path / "blob")
    assert "are missing" in error_of(read_weights, tmp_path).what


@pytest.mark.parametrize(
    "shard", ["../other/model.safetensors", "/etc/passwd", "", "..", "a\\b", "sub/model.safetensors"]
)
def test_an_index_cannot_leave_its_directory(tmp_path: Path, shard: str) -> None:
    write_json(tmp_path / INDEX, {"weight_map": {"a": shard}})
    assert "expected a file beside it" in error_of(read_weights, tmp_path).what


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {"a": 3}}])
def test_an_index_without_weight_map(tmp_path: Path, index: Any) -> None:
    write_json(tmp_path / INDEX, index)
    assert "no weight_map" in error_of(read_weights, tmp_path).what


def test_git_lfs_pointers_are_not_weights(tmp_path: Path) -> None:
    files = write_sharded(tmp_path, TWO, 2)
    for file in files:
        file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4976698672\n")
    found = read_weights(tmp_path)
    assert found.facts is not None
    assert (found.facts.total_bytes, found.facts.basis) == (76, "index")
    assert "git lfs pull" in found.notes[0]
    (tmp_path / INDEX).unlink()
    assert read_weights(tmp_path).facts is None


def test_nothing_is_unknown(tmp_path: Path) -> None:
    assert read_weights(tmp_path).facts is None
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    assert read_weights(tmp_path).facts is None


BROKEN_HEADERS = {
    "empty": b"",
    "seven bytes": b"1234567",
    "announces more than there is": struct.pack("<Q", 500) + b"{}",
    "announces terabytes": struct.pack("<Q", 2**40) + b"{}",
    "announces nothing": struct.pack("<Q", 0),
    "not JSON": struct.pack("<Q", 4) + b"abcd",
    "a list": struct.pack("<Q", 2) + b"[]",
    "cut in the middle": safetensors_bytes(TWO)[:40],
    "an HTML page": b"<!DOCTYPE html><html><body>Not found</body></html>",
}


@pytest.mark.parametrize("name", BROKEN_HEADERS)
def test_broken_safetensors(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(BROKEN_HEADERS[name])
    assert str(path) in error_of(read_weights, tmp_path).where


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> bytes:
    return json.dumps({"t": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}).encode()


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (entry(offsets=(0, 12)), "cannot take 12 bytes"),
        (entry(offsets=(8, 0)), "lacks"),
        (entry(offsets=(4, 12)), "does not begin"),
        (entry(offsets=(0,)), "lacks"),
        (entry(offsets=None), "lacks"),
        (entry(shape=None), "lacks"),
        (entry(shape=(-2,)), "lacks"),
        (entry(shape=(2.0,)), "lacks"),
        (entry(shape=(True,)), "lacks"),
        (entry(dtype=None), "lacks"),
        (b'{"t": 3}', "lacks"),
        (b'{"t": {}}', "lacks"),
        (b'{"t": "dtype"}', "lacks"),
    ],
)
def test_headers_that_lie(header: bytes, said: str) -> None:
    error = error_of(parse_header, header, "file")
    assert said in error.what
    assert "'t'" in error.what


def test_overlapping_tensors_are_an_error() -> None:
    both = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    assert "does not begin" in error_of(parse_header, json.dumps({"a": both, "b": both}).encode(), "file").what


def test_a_dtype_yet_to_come_is_measured_by_its_offsets() -> None:
    assert parse_header(entry(dtype="F2_E1M0", offsets=(0, 3)), "file")["t"].n_bytes == 3


def test_a_directory_in_place_of_a_file(tmp_path: Path) -> None:
    assert "not a regular file" in error_of(read_safetensors, tmp_path).what
    assert "not a regular file" in error_of(read_gguf, tmp_path).what


def test_many_shards_are_read_quickly(tmp_path: Path) -> None:
    """163 files of 560 tensors each, the largest checkpoints there are; a second is plenty."""
    shapes = {f"model.layers.{i // 1500}.mlp.experts.{i % 1500}.w": ("F8_E4M3", (2048, 7168)) for i in range(91_280)}
    write_sharded(tmp_path, shapes, 163)
    started = time.perf_counter()
    found = read_weights(tmp_path).facts
    took_s = time.perf_counter() - started
    assert found is not None
    assert found.total_bytes == 91_280 * 2048 * 7168
    assert took_s < 5, f"{took_s:.2f} s"


# --- GGUF


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_every_ggml_type(kind: int) -> None:
    name, block, block_bytes = TYPES[kind]
    fact = parse_gguf(gguf_bytes({"w": (kind, (2 * block, 3))}), "x").tensors["w"]
    assert (fact.dtype, fact.shape, fact.n_bytes) == (name, (3, 2 * block), 6 * block_bytes)


def test_a_gguf_model_beside_its_config(tmp_path: Path) -> None:
    values = {"tokenizer.ggml.tokens": ["<s>", "</s>"], "general.file_type": 15, "nested": [["a"], ["b", "c"]]}
    tensors = {"token_embd.weight": (14, (256, 10)), "output_norm.weight": (0, (256,))}
    (tmp_path / "m-Q4_K_M.gguf").write_bytes(gguf_bytes(tensors, values))
    (tmp_path / "mmproj-m.gguf").write_bytes(gguf_bytes({"v": (1, (999,))}))
    found = read_weights(tmp_path).facts
    assert found is not None
    assert (found.total_bytes, found.basis, found.num_parameters) == (2100 + 1024, "gguf", None)
    assert found.source == "GGUF header of m-Q4_K_M.gguf"


def test_split_gguf_is_one_model(tmp_path: Path) -> None:
    for i in (1, 2):
        (tmp_path / f"m-{i:05d}-of-00002.gguf").write_bytes(gguf_bytes({f"t{i}": (0, (8,))}))
    found = read_weights(tmp_path).facts
    assert found is not None
    assert found.total_bytes == 64
    (tmp_path / "m-00001-of-00002.gguf").unlink()
    assert "m-00001-of-00002.gguf is missing" in error_of(read_weights, tmp_path).what


def test_several_gguf_models_must_be_told_apart(tmp_path: Path) -> None:
    for name in ("m-Q4_K_M", "m-Q8_0"):
        (tmp_path / f"{name}.gguf").write_bytes(gguf_bytes({"t": (0, (8,))}))
    error = error_of(read_weights, tmp_path)
    assert "m-Q4_K_M, m-Q8_0" in error.what
    assert "name one file" in error.hint


BROKEN_GGUF = {
    "not GGUF": b"GGML" + bytes(40),
    "empty": b"",
    "version 1": gguf_bytes({}, version=1),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "unknown type": gguf_bytes({"t": (33, (32,))}),
    "row of half a block": gguf_bytes({"t": (12, (128,))}),
    "a scalar in blocks": gguf_bytes({"t": (12, ())}),
    "too many dimensions": gguf_bytes({"t": (0, (1, 1, 1, 1, 1))}),
    "cut": gguf_bytes({"t": (0, (8,))})[:-9],
    "announces 2^60 values": b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60),
    "announces 2^64-1 tensors": b"GGUF" + struct.pack("<IQQ", 3, 2**64 - 1, 0),
    "a string of 2^63 bytes": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63),
    "a value of no type": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 99),
    "an array of 2^62 numbers": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 4, 2**62),
    "arrays without end": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 9) * 400,
}


@pytest.mark.parametrize("name", BROKEN_GGUF)
def test_broken_gguf(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(BROKEN_GGUF[name])
    assert error_of(read_gguf, path).where == str(path)


# --- whatever the bytes, InvalidInput or an answer


def refusal_of(call: Any, *args: Any) -> InvalidInput | None:
    """The InvalidInput a call ends with, None where it gives an answer; every other exception fails the test."""
    try:
        call(*args)
    except InvalidInput as error:
        return error
    return None


@given(data=st.binary(max_size=200))
@example(data=b"{")
@example(data=b'{"t": {"dtype": "F32", "shape": [1e400], "data_offsets": [0, 4]}}')
@example(data=b"9" * 5000)
@example(data=b"[" * 100_000)
@example(data=b"\xff\xfe{\x00}\x00")
def test_any_bytes_as_a_header(data: bytes) -> None:
    for call in (parse_header, parse_object):
        error = refusal_of(call, data, "x")
        assert error is None or (error.what and error.where.startswith("x"))


@given(data=st.binary(max_size=64))
def test_any_bytes_as_a_length(data: bytes) -> None:
    if refusal_of(header_length, data, "x", len(data)) is None:
        assert header_length(data, "x", len(data)) <= len(data) - 8


@given(at=st.integers(0, 400), new=st.binary(min_size=1, max_size=9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
def test_a_damaged_safetensors_file(tmp_path: Path, at: int, new: bytes) -> None:
    whole = safetensors_bytes({**TWO, "c": ("U8", (5, 5))})
    (tmp_path / "model.safetensors").write_bytes(whole[:at] + new + whole[at + len(new) :])
    error = refusal_of(read_weights, tmp_path)
    assert error is None or "model.safetensors" in error.where


@given(at=st.integers(0, 200), new=st.binary(min_size=1, max_size=9), end=st.integers(0, 300))
@settings(max_examples=300)
def test_a_damaged_gguf_header(at: int, new: bytes, end: int) -> None:
    whole = gguf_bytes({"t": (12, (256, 2)), "u": (0, (8,))}, {"list": ["a", "b"], "n": 3})
    error = refusal_of(parse_gguf, (whole[:at] + new + whole[at + len(new) :])[:end], "x")
    assert error is None or error.where == "x"


@given(data=st.binary(max_size=120), version=st.sampled_from([2, 3]))
@settings(max_examples=300)
def test_any_bytes_behind_the_gguf_magic(data: bytes, version: int) -> None:
    error = refusal_of(parse_gguf, b"GGUF" + struct.pack("<I", version) + data, "x")
    assert error is None or error.where == "x"
