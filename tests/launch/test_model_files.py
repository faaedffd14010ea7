"""A model's files before a start: what is missing, cut short or only a pointer is said, all of it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from launch.check_model import check_model, to_download
from launch.weight_files import weight_problems
from tests.launch.machines import host

REPOSITORY = "org/model"


def safetensors(n_bytes: int = 64, names: tuple[str, ...] = ("w",)) -> bytes:
    """A whole file with these tensors, each of `n_bytes`."""
    header = json.dumps(
        {
            name: {"dtype": "U8", "shape": [n_bytes], "data_offsets": [i * n_bytes, (i + 1) * n_bytes]}
            for i, name in enumerate(names)
        }
    ).encode()
    return struct.pack("<Q", len(header)) + header + bytes(n_bytes * len(names))


def index(**mapping: str) -> bytes:
    return json.dumps({"metadata": {}, "weight_map": mapping}).encode()


WHOLE: dict[str, bytes] = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "model.safetensors": safetensors(),
}
SHARDED: dict[str, bytes] = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "model.safetensors.index.json": index(a="model-00001-of-00002.safetensors", b="model-00002-of-00002.safetensors"),
    "model-00001-of-00002.safetensors": safetensors(names=("a",)),
    "model-00002-of-00002.safetensors": safetensors(names=("b",)),
}
SECOND = "model-00002-of-00002.safetensors"


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(WHOLE, {}, id="whole"),
        pytest.param(SHARDED, {}, id="whole-shards"),
        pytest.param(WHOLE | {"model.safetensors": safetensors()[:-1]}, {"weights-corrupt": "cut short"}, id="cut"),
        pytest.param(WHOLE | {"model.safetensors": safetensors()[:20]}, {"weights-corrupt": "header"}, id="in-header"),
        pytest.param(WHOLE | {"model.safetensors": safetensors() + b"x"}, {"weights-corrupt": "too long"}, id="longer"),
        pytest.param(WHOLE | {"model.safetensors": b""}, {"weights-corrupt": "is empty"}, id="empty"),
        pytest.param(WHOLE | {"model.safetensors": b"<html>" * 9}, {"weights-corrupt": "no safetensors"}, id="a-page"),
        pytest.param(
            WHOLE | {"model.safetensors": b"version https://git-lfs.github.com/spec/v1\n"},
            {"weights-corrupt": "Git LFS pointer"},
            id="pointer",
        ),
        pytest.param(
            WHOLE | {"model.safetensors": struct.pack("<Q", 4) + b"nope"}, {"weights-corrupt": "header"}, id="json"
        ),
        pytest.param(
            {n: d for n, d in SHARDED.items() if n != SECOND}, {"weights-missing": f"{SECOND} is not there"}, id="shard"
        ),
        pytest.param(SHARDED | {SECOND: safetensors(names=("c",))}, {"weights-corrupt": "b first"}, id="other-tensors"),
        pytest.param(SHARDED | {"model.safetensors.index.json": b"[]"}, {"weights-corrupt": "weight_map"}, id="index"),
        pytest.param(
            {n: d for n, d in SHARDED.items() if not n.endswith(("index.json", SECOND))},
            {"weights-missing": SECOND},
            id="by-its-number",
        ),
        pytest.param(
            {n: d for n, d in WHOLE.items() if n != "model.safetensors"} | {"training_args.bin": b"x"},
            {"weights-missing": "no weight file"},
            id="none",
        ),
        pytest.param(
            {"config.json": b"{}", "tokenizer.json": b"{}", "pytorch_model.bin": b"PK\x03\x04" + bytes(50)},
            {"weights-corrupt": "end of the archive"},
            id="cut-bin",
        ),
        pytest.param(
            {"config.json": b"{}", "tokenizer.json": b"{}", "m.gguf": b"nothing"},
            {"weights-corrupt": "no GGUF"},
            id="gguf",
        ),
        pytest.param(
            {n: d for n, d in WHOLE.items() if n != "config.json"}, {"model-missing": "no config"}, id="config"
        ),
        pytest.param(WHOLE | {"config.json": b"{"}, {"model-missing": "no JSON object"}, id="broken-config"),
        pytest.param(
            {n: d for n, d in WHOLE.items() if n != "tokenizer.json"}, {"tokenizer-missing": "no tokenizer"}, id="tok"
        ),
        pytest.param(
            {n: d for n, d in SHARDED.items() if n not in (SECOND, "tokenizer.json")}
            | {"model-00001-of-00002.safetensors": b""},
            {"weights-missing": SECOND, "weights-corrupt": "empty", "tokenizer-missing": ""},
            id="all-at-once",
        ),
    ],
)
def test_a_directory(files: dict[str, bytes], expected: dict[str, str], tmp_path: Path) -> None:
    folder = write(tmp_path / "model", files)
    found = check_model(str(folder), (), host(tmp_path))
    assert [finding.code for finding in found] == list(expected)
    for finding, says in zip(found, expected.values(), strict=True):
        assert says in finding.message
        assert finding.remedy


def test_loaders_that_read_no_such_files(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", {"config.json": b"{}"})
    words = ("--load-format", "dummy", "--skip-tokenizer-init")
    assert check_model(str(folder), words, host(tmp_path)) == []


def test_a_directory_that_is_not_there_names_the_one_that_looks_like_it(tmp_path: Path) -> None:
    write(tmp_path / "llama-8b", WHOLE)
    found = check_model(str(tmp_path / "lama-8b"), (), host(tmp_path))
    assert [(f.code, f.severity) for f in found] == [("model-missing", "error")]
    assert f"did you mean {tmp_path / 'llama-8b'}" in found[0].remedy


def cached(home: Path, files: dict[str, bytes]) -> dict[str, str]:
    """A hub cache with these files; the environment that points to it."""
    model = home / "hub" / "models--org--model"
    write(model / "blobs", files)
    write(model / "refs", {"main": b"abc"})
    (model / "snapshots" / "abc").mkdir(parents=True)
    for name in files:
        (model / "snapshots" / "abc" / name).symlink_to(Path("../../blobs") / name)
    return {"HF_HOME": str(home)}


@pytest.mark.parametrize("offline", [True, False])
@pytest.mark.parametrize(
    ("files", "gone", "offline_codes", "online_codes", "fetches"),
    [
        pytest.param(WHOLE, "", [], [], False, id="whole"),
        pytest.param(WHOLE, "model.safetensors", ["weights-missing"], [], True, id="blob-gone"),
        pytest.param(SHARDED | {SECOND: b"x"}, "", ["weights-corrupt"], ["weights-corrupt"], False, id="cut-short"),
    ],
)
def test_the_hub_cache(
    files: dict[str, bytes],
    gone: str,
    offline_codes: list[str],
    online_codes: list[str],
    fetches: bool,
    offline: bool,
    tmp_path: Path,
) -> None:
    env = cached(tmp_path / "home", files) | ({"HF_HUB_OFFLINE": "1"} if offline else {})
    if gone:
        (tmp_path / "home/hub/models--org--model/blobs" / gone).unlink()
    machine = host(tmp_path, env)
    assert [f.code for f in check_model(REPOSITORY, (), machine)] == (offline_codes if offline else online_codes)
    assert to_download(REPOSITORY, (), machine) == (fetches and not offline)


@pytest.mark.parametrize(
    ("env", "code", "severity"),
    [({}, "model-download", "note"), ({"HF_HUB_OFFLINE": "yes"}, "hub-offline", "error")],
    ids=["online", "offline"],
)
def test_a_model_that_is_not_cached(env: dict[str, str], code: str, severity: str, tmp_path: Path) -> None:
    machine = host(tmp_path, env | {"HF_HOME": str(tmp_path)})
    assert [(f.code, f.severity) for f in check_model(REPOSITORY, (), machine)] == [(code, severity)]
    assert to_download(REPOSITORY, (), machine) == (severity == "note")


@pytest.mark.parametrize(
    ("config", "offline", "expected"),
    [
        ({"model": "org/draft", "num_speculative_tokens": 3}, True, ["draft-model-missing"]),
        ({"model": "org/draft", "num_speculative_tokens": 3}, False, ["model-download"]),
        ({"model": "./no/such/draft"}, True, ["draft-model-missing"]),
        ({"model": "DRAFT"}, True, ["weights-corrupt"]),
        ({"method": "ngram", "num_speculative_tokens": 3}, True, []),
        ("not json", True, []),
    ],
    ids=["offline", "to-fetch", "path", "cut-short", "none-needed", "no-json"],
)
def test_the_draft_model(config: object, offline: bool, expected: list[str], tmp_path: Path) -> None:
    draft = write(tmp_path / "draft", WHOLE | {"model.safetensors": safetensors()[:-5]})
    folder = write(tmp_path / "model", WHOLE)
    text = config if isinstance(config, str) else json.dumps(config).replace("DRAFT", str(draft))
    machine = host(tmp_path, {"HF_HOME": str(tmp_path)} | ({"HF_HUB_OFFLINE": "1"} if offline else {}))
    found = check_model(str(folder), ("--speculative-config", text), machine)
    assert [finding.code for finding in found] == expected


def test_files_named_by_an_address_are_left_to_vllm(tmp_path: Path) -> None:
    assert check_model("s3://bucket/model", (), host(tmp_path)) == []


def test_a_gguf_file_by_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", {"m.gguf": b"GGUF" + bytes(20)})
    assert check_model(str(folder / "m.gguf"), (), host(tmp_path)) == []
    assert weight_problems(folder) == []
