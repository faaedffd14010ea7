"""The hub, played by a server on the loopback interface and asked through the real huggingface_hub."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InvalidInput
from advisor.facts import ModelFacts
from advisor.workload import ModelRef
from kvadvise.catalogue import add_model, find_facts
from kvadvise.sources import read_model, resolve_model
from kvadvise.surroundings import Surroundings
from tests.kvadvise.fake_hub import COMMIT, FakeHub, File
from tests.kvadvise.model_fixtures import LLAMA, elements, safetensors_bytes, surroundings, write_json

INDEX = "model.safetensors.index.json"
GIB = 1024**3


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    server = FakeHub()
    yield server
    server.close()


def online(hub: FakeHub, tmp_path: Path, **env: str) -> Surroundings:
    settings = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}
    return surroundings(tmp_path, **(settings | env))


def fetch(
    hub: FakeHub, tmp_path: Path, model_id: str = "org/name", revision: str | None = None, **env: str
) -> ModelFacts:
    around = online(hub, tmp_path, **env)
    ref = ModelRef(id=model_id, revision=revision)
    return resolve_model(ref, base_dir=around.cwd, around=around, where="w.yaml, line 1: model")


def refused(hub: FakeHub, tmp_path: Path, model_id: str = "org/name", **how: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        fetch(hub, tmp_path, model_id, **how)
    assert caught.value.where
    assert caught.value.hint
    return caught.value


def weight_file(n_tensors: int = 1, prefix: str = "t", shape: tuple[int, ...] = (1024, 1024, 512)) -> File:
    """A gibibyte a tensor behind a true header."""
    shapes = {f"{prefix}.{i}": ("BF16", shape) for i in range(n_tensors)}
    head = safetensors_bytes(shapes)
    return File(head, len(head) + 2 * elements(shape) * n_tensors)


def sharded(n_files: int) -> dict[str, Any]:
    names = [f"model-{i + 1:05d}-of-{n_files:05d}.safetensors" for i in range(n_files)]
    files: dict[str, Any] = {name: weight_file(1, f"t{i}") for i, name in enumerate(names)}
    index = {"metadata": {"total_size": n_files * GIB}, "weight_map": {f"t{i}.0": n for i, n in enumerate(names)}}
    return {"config.json": LLAMA, INDEX: index, **files}


def test_a_sharded_model(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("org/name", {**sharded(3), "tokenizer_config.json": {"model_max_length": 4096}, "README.md": b"x"})
    facts = fetch(hub, tmp_path)
    assert (facts.id, facts.resolved_from, facts.revision) == ("org/name", "hub", COMMIT)
    assert (facts.config, facts.model_max_length, facts.notes) == (LLAMA, 4096, ())
    assert facts.weights is not None
    assert (facts.weights.total_bytes, facts.weights.basis) == (3 * GIB, "headers")
    assert facts.weights.tensors is not None
    assert set(facts.weights.tensors) == {"t0.0", "t1.0", "t2.0"}


def test_weights_stay_where_they_are(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("org/name", sharded(2))
    fetch(hub, tmp_path)
    assert all(sent <= 128 * 1024 for sent in hub.sent_bytes.values())
    assert not (tmp_path / "home" / ".cache").exists(), "the hub cache is vLLM's to fill"


def test_a_server_that_does_not_know_ranges(hub: FakeHub, tmp_path: Path) -> None:
    """It would send a gibibyte; the connection is closed long before."""
    hub.add("org/name", {"config.json": LLAMA, "model.safetensors": weight_file(2000, "x" * 60)}, knows_ranges=False)
    facts = fetch(hub, tmp_path)
    assert facts.weights is not None
    assert facts.weights.total_bytes == 2000 * GIB
    assert hub.sent_bytes["model.safetensors"] < 64 * 1024**2


def test_a_header_longer_than_the_first_read(hub: FakeHub, tmp_path: Path) -> None:
    file = weight_file(3000, "y" * 50)
    assert len(file.head) > 300_000
    hub.add("org/name", {"config.json": LLAMA, "model.safetensors": file})
    facts = fetch(hub, tmp_path)
    assert facts.weights is not None
    assert facts.weights.total_bytes == 3000 * GIB
    assert hub.sent_bytes["model.safetensors"] == len(file.head)


def test_many_shards_at_once(hub: FakeHub, tmp_path: Path) -> None:
    """163 files at 50 ms each would take 8 seconds one after the other."""
    hub.add("org/name", sharded(163), file_delay_s=0.05)
    fetch_started = time.perf_counter()
    facts = fetch(hub, tmp_path)
    took_s = time.perf_counter() - fetch_started
    assert facts.weights is not None
    assert facts.weights.total_bytes == 163 * GIB
    assert took_s < 5, f"{took_s:.1f} s"


def test_quantisation_beside_the_config(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("org/name", {"config.json": LLAMA, "hf_quant_config.json": {"quantization": {"quant_algo": "FP8"}}})
    facts = fetch(hub, tmp_path)
    assert facts.quant_config == {"quantization": {"quant_algo": "FP8"}}
    assert facts.weights is None


def test_duplicates_are_not_counted(hub: FakeHub, tmp_path: Path) -> None:
    extra = {"consolidated.safetensors": weight_file(3), "original/model.safetensors": weight_file(3)}
    hub.add("org/name", {**sharded(2), **extra})
    hub.add("org/one", {"config.json": LLAMA, "model.safetensors": weight_file(), **extra})
    for model_id, n_gib in (("org/name", 2), ("org/one", 1)):
        weights = fetch(hub, tmp_path, model_id).weights
        assert weights is not None
        assert weights.total_bytes == n_gib * GIB
    assert hub.sent_bytes["consolidated.safetensors"] == 0


def test_torch_weights_have_an_index_only(hub: FakeHub, tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 77}, "weight_map": {"a": "pytorch_model-1.bin"}}
    hub.add("org/name", {"config.json": LLAMA, "pytorch_model.bin.index.json": index, "pytorch_model-1.bin": b"x"})
    weights = fetch(hub, tmp_path).weights
    assert weights is not None
    assert (weights.total_bytes, weights.source) == (77, "total_size of pytorch_model.bin.index.json")
    assert hub.sent_bytes["pytorch_model-1.bin"] == 0


# --- who asks, and where


def test_the_token_goes_to_the_hub_and_nowhere_else(hub: FakeHub, tmp_path: Path) -> None:
    elsewhere = FakeHub()
    try:
        files = {"config.json": LLAMA, "model.safetensors": weight_file()}
        hub.add("org/name", files, redirect=elsewhere.url)
        elsewhere.add("org/name", files)
        facts = fetch(hub, tmp_path, HF_TOKEN="hf_secret\n")
    finally:
        elsewhere.close()
    assert facts.weights is not None
    assert facts.weights.total_bytes == GIB
    assert {headers.get("authorization") for _, headers in hub.seen} == {"Bearer hf_secret"}
    assert len(elsewhere.seen) == 2
    assert {headers.get("authorization") for _, headers in elsewhere.seen} == {None}


def test_without_a_token_none_is_sent(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("org/name", {"config.json": LLAMA})
    fetch(hub, tmp_path)
    assert all("authorization" not in headers for _, headers in hub.seen)


def test_the_environment_of_the_process(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("org/name", {"config.json": LLAMA})
    for name, value in {"HF_ENDPOINT": hub.url + "/", "HF_TOKEN": "hf_mine", "HF_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    ref = ModelRef(id="org/name")
    assert resolve_model(ref, base_dir=tmp_path).resolved_from == "hub"
    assert hub.seen[0][1]["authorization"] == "Bearer hf_mine"
    n_seen = len(hub.seen)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InvalidInput, match="switched off"):
        resolve_model(ref, base_dir=tmp_path)
    assert resolve_model(ref, base_dir=tmp_path, offline=False).resolved_from == "hub"
    assert len(hub.seen) == n_seen * 2, "offline means not one request"


def test_a_revision(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("org/name", {"config.json": LLAMA}, revisions=("v1.0/beta",))
    assert fetch(hub, tmp_path, revision="v1.0/beta").revision == COMMIT
    assert hub.seen[-1][0] == f"/org/name/resolve/{COMMIT}/config.json", (
        "files are those of the commit that was described"
    )
    error = refused(hub, tmp_path, revision="v9")
    assert "no such revision" in error.what


def test_the_catalogue_is_asked_first(hub: FakeHub, tmp_path: Path) -> None:
    assert fetch(hub, tmp_path, "Qwen/Qwen3-8B").resolved_from == "catalogue"
    assert hub.seen == []


def test_add_from_the_hub(hub: FakeHub, tmp_path: Path) -> None:
    around = online(hub, tmp_path)
    hub.add("Qwen/Qwen3-8B", {**sharded(2), "config.json": {**LLAMA, "eos_token_id": 2}})
    path = add_model("Qwen/Qwen3-8B", around=around)
    assert path == around.own_models / "Qwen" / "Qwen3-8B.yaml"
    facts = find_facts("Qwen/Qwen3-8B", around)
    assert facts is not None
    assert facts.config == LLAMA
    assert facts.weights is not None
    assert facts.weights.total_bytes == 2 * GIB
    assert f"commit {COMMIT[:12]}" in facts.source


def test_add_what_is_half_cached(hub: FakeHub, tmp_path: Path) -> None:
    """The cache has the config, as vLLM leaves it behind when it is stopped early; the hub knows the sizes."""
    around = online(hub, tmp_path)
    folder = around.hub_cache / "models--org--name"
    write_json(folder / "snapshots" / COMMIT / "config.json", LLAMA)
    write_json(folder / "refs" / "main", 0).write_text(COMMIT)
    ref = ModelRef(id="org/name")
    assert resolve_model(ref, base_dir=around.cwd, around=around).weights is None
    assert "could not tell their sizes" in read_model(ref, base_dir=around.cwd, around=around).notes[-1]
    hub.add("org/name", sharded(2))
    add_model("org/name", around=around)
    weights = resolve_model(ref, base_dir=around.cwd, around=around).weights
    assert weights is not None
    assert (weights.total_bytes, weights.basis) == (2 * GIB, "catalogue")


# --- what can go wrong


@pytest.mark.parametrize(
    ("how", "said", "advised"),
    [
        ({"status": 403, "error_code": "GatedRepo"}, "gated", "HF_TOKEN"),
        ({"status": 401, "error_code": "GatedRepo"}, "gated", "HF_TOKEN"),
        ({"status": 403}, "gated", "HF_TOKEN"),
        ({"status": 401}, "private or gated", "HF_TOKEN"),
        (
            {"status": 401, "error_message": "Invalid credentials in Authorization header"},
            "refuses HF_TOKEN",
            "valid token",
        ),
        ({"status": 404}, "not on the hub", "check the name"),
        ({"status": 429}, "too many requests", "HF_TOKEN"),
        ({"status": 500}, "status 500", "path: DIR"),
        ({"status": 503}, "status 503", "path: DIR"),
        ({"info": b"<html>Sign in</html>"}, "not a model description", "HF_ENDPOINT"),
        ({"info": b"[]"}, "not a model description", "HF_ENDPOINT"),
        ({"info": b"{}"}, "not a model description", "HF_ENDPOINT"),
    ],
)
def test_a_repository_that_cannot_be_described(
    hub: FakeHub, tmp_path: Path, how: dict[str, Any], said: str, advised: str
) -> None:
    hub.add("org/name", {"config.json": LLAMA}, **how)
    error = refused(hub, tmp_path)
    assert error.where == "w.yaml, line 1: model: org/name"
    assert said in error.what
    assert advised in error.hint


def test_a_model_that_is_not_there(hub: FakeHub, tmp_path: Path) -> None:
    error = refused(hub, tmp_path, "Qwen/Qwen3-8BB")
    assert "not on the hub" in error.what
    assert "nearest in the catalogue: Qwen/Qwen3-8B" in error.hint
    assert "not on the hub" in refused(hub, tmp_path, "Qwen/Qwen3-8BB", HF_TOKEN="hf_x").what


@pytest.mark.parametrize("files", [{}, {"adapter_config.json": {}}, {"m.gguf": b"GGUF"}, {"params.json": {}}])
def test_a_repository_without_config(hub: FakeHub, tmp_path: Path, files: dict[str, Any]) -> None:
    hub.add("org/name", files)
    assert "config.json" in refused(hub, tmp_path).what


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("hf_quant_config.json", b"3"),
        ("tokenizer_config.json", b"<html>"),
        (INDEX, b"{}"),
        (INDEX, b'{"weight_map": {"a": "../../x"}}'),
        (INDEX, b'{"weight_map": {"a": "gone.safetensors"}}'),
    ],
)
def test_broken_json_on_the_hub(hub: FakeHub, tmp_path: Path, name: str, data: bytes) -> None:
    hub.add("org/name", {"config.json": LLAMA, name: data})
    with pytest.raises(InvalidInput) as caught:
        fetch(hub, tmp_path)
    assert caught.value.where.startswith(f"w.yaml, line 1: model: org/name/{name}")


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"1234",
        b"<!DOCTYPE html><html>",
        safetensors_bytes({"a": ("F32", (9,))})[:30],
        bytes([0, 0, 2, 0, 0, 0, 0, 0]),
    ],
)
def test_broken_headers_on_the_hub(hub: FakeHub, tmp_path: Path, head: bytes) -> None:
    """Truncated or lying: no figure is made of it, not even the index's."""
    hub.add("org/name", {**sharded(2), "model-00002-of-00002.safetensors": head})
    assert refused(hub, tmp_path).where == "w.yaml, line 1: model: org/name/model-00002-of-00002.safetensors"


def test_headers_out_of_reach_leave_the_index(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("org/name", sharded(2), file_status={"model-00001-of-00002.safetensors": 500})
    facts = fetch(hub, tmp_path)
    assert facts.weights is not None
    assert (facts.weights.total_bytes, facts.weights.basis) == (2 * GIB, "index")
    assert "status 500" in facts.notes[0]


def test_a_file_that_only_some_may_read(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("org/name", {"config.json": LLAMA}, file_status={"config.json": 403})
    error = refused(hub, tmp_path)
    assert "gated" in error.what
    assert error.where.endswith("model: org/name/config.json")


def test_a_hub_that_stumbles_is_asked_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("org/name", sharded(2), fails_first=2)
    facts = fetch(hub, tmp_path)
    assert facts.weights is not None
    assert facts.weights.basis == "headers"


def test_a_slow_hub(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("org/name", {"config.json": LLAMA}, delay_s=3.0)
    started = time.perf_counter()
    error = refused(hub, tmp_path, HF_HUB_DOWNLOAD_TIMEOUT="0.3")
    assert time.perf_counter() - started < 2
    assert "does not answer in time" in error.what
    assert "HF_HUB_DOWNLOAD_TIMEOUT" in error.hint


def test_slow_files(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("org/name", {"config.json": LLAMA}, file_delay_s=3.0)
    error = refused(hub, tmp_path, HF_HUB_DOWNLOAD_TIMEOUT="0.3")
    assert "does not answer in time" in error.what
    assert error.where.endswith("org/name/config.json")


def test_a_redirect_without_end(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("org/name", {"config.json": LLAMA}, redirect=hub.url, redirects_forever=True)
    assert "cannot be reached" in refused(hub, tmp_path).what


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "http://127.0.0.1:9/", "https://127.0.0.1:9/mirror"])
def test_nobody_answers(hub: FakeHub, tmp_path: Path, endpoint: str) -> None:
    error = refused(hub, tmp_path, HF_ENDPOINT=endpoint)
    assert "cannot be reached" in error.what
    assert "HF_ENDPOINT" in error.hint


@pytest.mark.parametrize("endpoint", ["localhost", "ftp://x", "http://", "http://a b", "http://x/?q", "http://[::1"])
def test_endpoints_that_are_none(hub: FakeHub, tmp_path: Path, endpoint: str) -> None:
    error = refused(hub, tmp_path, HF_ENDPOINT=endpoint)
    assert error.what


@pytest.mark.parametrize("value", ["abc", "-1", "0", "nan", "1e9"])
def test_timeouts_that_are_none(hub: FakeHub, tmp_path: Path, value: str) -> None:
    hub.add("org/name", {"config.json": LLAMA})
    assert fetch(hub, tmp_path, HF_HUB_DOWNLOAD_TIMEOUT=value).config == LLAMA


def test_a_proxy_is_used(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy nobody listens at: the request goes there, and fails, although the hub itself would answer."""
    hub.add("org/name", {"config.json": LLAMA})
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    import huggingface_hub

    huggingface_hub.close_session()
    try:
        error = refused(hub, tmp_path)
    finally:
        monkeypatch.undo()
        huggingface_hub.close_session()
    assert "proxy" in error.hint
    assert hub.seen == []
