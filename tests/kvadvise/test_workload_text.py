"""Finding a workload's text, changing it with --set, keeping it as a profile, and hashing it."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.facts import ModelFacts
from kvadvise.identity import inputs_sha256
from kvadvise.profile_store import find_profile, list_profiles, save_profile, user_dir
from kvadvise.workload_edit import apply_settings, edited
from kvadvise.workload_text import WorkloadText, read_profile, read_text, with_plan

FILE = b"""# the chat service
model: Qwen/Qwen2.5-7B-Instruct
gpu: RTX 4090
workload:
  prompt_tokens: {p50: 100, p95: 1000}
  output_tokens: {p95: 200}  # counted by the gateway
  concurrency: 8
engine: {vllm_version: "0.30"}
"""


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def text(data: bytes = FILE, base: Path = Path()) -> WorkloadText:
    return WorkloadText(data=data, label="w.yaml", base_dir=base)


# finding


def test_a_file_is_read_with_its_folder_as_base(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.yaml").write_bytes(FILE)
    found = read_text("sub/w.yaml")
    assert (found.data, found.label, found.base_dir) == (FILE, "sub/w.yaml", Path("sub"))


def test_dash_is_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(FILE)))
    assert read_text("-").data == FILE


def test_a_profile_works_as_a_file_and_ones_own_comes_first() -> None:
    assert b"name: chat-8k\n" in read_text("chat-8k").data
    save_profile("chat-8k", FILE)
    assert read_text("chat-8k").data == FILE


def test_a_file_comes_before_a_profile(tmp_path: Path) -> None:
    (tmp_path / "chat-8k").write_bytes(FILE)
    assert read_text("chat-8k").data == FILE


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("no-such.yaml", "cannot read: No such file"),
        ("chat-8K", "chat-8k"),
        ("../../etc/passwd", "cannot read"),
        (".", "cannot read: Is a directory"),
    ],
)
def test_what_is_not_there_is_said(reference: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_text(reference)
    assert words in str(caught.value)


def test_no_more_is_read_than_a_workload_may_be_long() -> None:
    assert len(read_text("/dev/zero").data) == 1024**2 + 1


# --set


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("workload.concurrency=64", "workload.concurrency", 64),
        ("workload.prompt_tokens={p95: 9}", "workload.prompt_tokens", {"p95": 9}),
        ("workload.prompt_tokens.p99=1500", "workload.prompt_tokens.p99", 1500),
        ("model=a/b", "model", "a/b"),
        ("model.revision=abc", "model", {"id": "Qwen/Qwen2.5-7B-Instruct", "revision": "abc"}),
        ("gpu.count=2", "gpu", {"name": "RTX 4090", "count": 2}),
        ("slo.ttft_p95_s=2.0", "slo.ttft_p95_s", 2.0),
        ('engine.vllm_version="0.32"', "engine.vllm_version", "0.32"),
        ("description=a = b", "description", "a = b"),
    ],
)
def test_set(setting: str, path: str, value: object) -> None:
    document = yaml.safe_load(apply_settings(FILE, [setting], "w.yaml"))
    for name in path.split("."):
        document = document[name]
    assert document == value


@pytest.mark.parametrize("key", ["slo.ttft_p95_s", "gate", "workload.trace"])
def test_taking_out_what_is_not_there_changes_nothing(key: str) -> None:
    assert yaml.safe_load(apply_settings(FILE, [f"{key}="], "w.yaml")) == yaml.safe_load(FILE)


def test_an_empty_value_takes_the_key_out() -> None:
    assert "engine" not in yaml.safe_load(apply_settings(FILE, ["engine="], "w.yaml"))


def test_the_rest_stays_as_it_was_written() -> None:
    changed = yaml.safe_load(apply_settings(FILE, ["workload.concurrency=64"], "w.yaml"))
    before = yaml.safe_load(FILE)
    before["workload"]["concurrency"] = 64
    assert changed == before
    assert changed["engine"]["vllm_version"] == "0.30"


@pytest.mark.parametrize("setting", ["", "concurrency", "=5", "a..b=1", "workload.concurrency.x=1", "gpu=[1", ".=1"])
def test_a_setting_that_cannot_be_is_an_error(setting: str) -> None:
    with pytest.raises(InvalidInput, match="--set"):
        apply_settings(FILE, [setting], "w.yaml")


@pytest.mark.parametrize("data", [b"", b"- 1\n", b"a: [", b"\xff\xfe", b"[" * 5000, b"a: 1\n---\nb: 2\n"])
def test_text_that_is_no_mapping_is_left_to_the_reader(data: bytes) -> None:
    assert apply_settings(data, ["a=1"], "w.yaml") == data


# keeping


def test_nothing_changes_where_nothing_must(tmp_path: Path) -> None:
    assert edited(text(base=tmp_path), (), keep=True).data == FILE


def test_a_kept_profile_names_paths_absolutely(tmp_path: Path) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    data = FILE.replace(b"Qwen/Qwen2.5-7B-Instruct", b"./models/mine")
    document = yaml.safe_load(edited(text(data, tmp_path), (), keep=True).data)
    assert document["model"] == str(tmp_path / "models" / "mine")
    data = FILE.replace(b"model: Qwen/Qwen2.5-7B-Instruct", b"model: {id: x/y, path: models/mine}")
    document = yaml.safe_load(edited(text(data, tmp_path), (), keep=True).data)
    assert document["model"] == {"id": "x/y", "path": str(tmp_path / "models" / "mine")}


PLAN = {"schema": "kvadvise.plan/1", "outcome": "fits", "flags": {"max_model_len": 8192, "x": 0.92}, "words": ["é: {"]}


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n"])
def test_a_saved_plan_leaves_the_question_as_it_was(ending: bytes) -> None:
    data = FILE.rstrip(b"\n") + ending
    kept = text(with_plan(text(data), PLAN))
    assert kept.question.rstrip(b"\n") == data.rstrip(b"\n")
    assert yaml.safe_load(kept.data) == yaml.safe_load(FILE) | {"plan": PLAN}
    assert with_plan(kept, PLAN) == kept.data
    assert inputs_sha256(kept.question, None, None) == inputs_sha256(data, None, None)


def test_json_can_be_kept_too() -> None:
    kept = edited(text(b'{"model": "a/b", "workload": {"concurrency": 1}}'), (), keep=True)
    document = yaml.safe_load(with_plan(kept, PLAN))
    assert document == {"model": "a/b", "workload": {"concurrency": 1}, "plan": PLAN}


# profiles


def test_a_profile_is_not_replaced_unasked() -> None:
    path = save_profile("mine", FILE)
    assert path == user_dir() / "mine.yaml"
    with pytest.raises(InvalidInput, match="--force replaces it"):
        save_profile("mine", b"other")
    assert path.read_bytes() == FILE
    save_profile("mine", b"other", force=True)
    assert read_profile("mine").data == b"other"
    assert [entry.name for entry in path.parent.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "-x", "a" * 65, "x y", "x\n"])
def test_a_profile_has_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidInput, match="is not a profile name"):
        save_profile(name, FILE)
    assert find_profile(name) is None


def test_a_file_where_the_directory_belongs_is_said(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("")
    with pytest.raises(InvalidInput, match="cannot write"):
        save_profile("mine", FILE)


def test_the_list_has_ones_own_in_place_of_a_bundled_one() -> None:
    save_profile("rag-32k", FILE)
    origins = {profile.name: profile.origin for profile in list_profiles()}
    assert origins["rag-32k"] == "user"
    assert origins["chat-8k"] == "bundled"


# identity


def test_the_hash_covers_every_part() -> None:
    facts = ModelFacts(id="a/b", config={"x": 1, "y": [2.5]})
    other = ModelFacts(id="a/b", config={"x": 1, "y": [2.6]})
    hashes = {
        inputs_sha256(b"w", facts, None),
        inputs_sha256(b"v", facts, None),
        inputs_sha256(b"w", other, None),
        inputs_sha256(b"w", None, None),
        inputs_sha256(b"w", facts, None, measured=b"m"),
    }
    assert len(hashes) == 5
    assert inputs_sha256(b"w", facts, None) == inputs_sha256(
        b"w\n", ModelFacts(id="a/b", config={"y": [2.5], "x": 1}), None
    )


@given(st.binary(max_size=200))
def test_editing_never_fails_on_any_text(data: bytes) -> None:
    out = apply_settings(data, ["a.b=1"], "w") if b"a" not in data else b""
    assert isinstance(out, bytes)
    assert isinstance(edited(text(data), (), keep=True).data, bytes)
