"""The order in which a model is looked for, and what is said when it is nowhere or broken."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.facts import ModelFacts
from advisor.workload import ModelRef
from kvadvise.catalogue import bundled_models
from kvadvise.model_files import is_repository_id
from kvadvise.sources import read_model, resolve_model
from kvadvise.surroundings import Surroundings
from tests.kvadvise.model_fixtures import (
    LLAMA,
    gguf_bytes,
    surroundings,
    write_json,
    write_safetensors,
    write_sharded,
)

WHERE = "w.yaml, line 1: model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TWO = {"a": ("BF16", (4, 8)), "b": ("BF16", (3,))}


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    return surroundings(tmp_path)


def resolve(around: Surroundings, base_dir: Path | None = None, **ref: Any) -> ModelFacts:
    return resolve_model(ModelRef(**ref), base_dir=base_dir or around.cwd, around=around, where=WHERE)


def refused(around: Surroundings, **ref: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        resolve(around, **ref)
    return caught.value


def cache_model(around: Surroundings, model_id: str, config: dict[str, Any], *, ref: str = "main") -> Path:
    """A model in the hub cache as huggingface_hub lays it out."""
    folder = around.hub_cache / ("models--" + model_id.replace("/", "--"))
    write_json(folder / "snapshots" / COMMIT / "config.json", config)
    (folder / "refs").mkdir(exist_ok=True)
    (folder / "refs" / ref).write_text(COMMIT)
    return folder / "snapshots" / COMMIT


# --- directories


def test_a_directory_with_nothing_but_config(around: Surroundings) -> None:
    write_json(around.cwd / "mine" / "config.json", LLAMA)
    facts = resolve(around, id="./mine")
    assert (facts.id, facts.config, facts.resolved_from) == ("./mine", LLAMA, "directory")
    assert (facts.weights, facts.quant_config, facts.model_max_length, facts.notes) == (None, None, None, ())


def test_everything_in_a_directory(around: Surroundings) -> None:
    folder = around.cwd / "mine"
    write_json(folder / "config.json", LLAMA)
    write_json(folder / "hf_quant_config.json", {"quantization": {"quant_algo": "FP8"}})
    write_json(folder / "tokenizer_config.json", {"added": {"1": {"content": "x"}}, "model_max_length": 8192})
    write_sharded(folder, TWO, 2)
    facts = resolve(around, id="mine")
    assert facts.quant_config == {"quantization": {"quant_algo": "FP8"}}
    assert facts.model_max_length == 8192
    assert facts.weights is not None
    assert (facts.weights.total_bytes, facts.weights.num_parameters) == (70, 35)


def test_a_path_starts_at_the_workload_file(around: Surroundings, tmp_path: Path) -> None:
    write_json(tmp_path / "beside" / "m" / "config.json", {**LLAMA, "vocab_size": 1})
    write_json(around.cwd / "m" / "config.json", {**LLAMA, "vocab_size": 2})
    assert resolve(around, tmp_path / "beside", id="org/name", path="m").config["vocab_size"] == 1
    assert resolve(around, tmp_path / "elsewhere", id="org/name", path="m").config["vocab_size"] == 2
    assert resolve(around, id="x", path=str(around.cwd / "m")).config["vocab_size"] == 2
    write_json(around.home / "models" / "m" / "config.json", {**LLAMA, "vocab_size": 3})
    assert resolve(around, id="~/models/m").config["vocab_size"] == 3


def test_a_directory_hides_a_catalogue_name(around: Surroundings) -> None:
    write_json(around.cwd / "Qwen" / "Qwen3-8B" / "config.json", LLAMA)
    facts = resolve(around, id="Qwen/Qwen3-8B")
    assert (facts.resolved_from, facts.config) == ("directory", LLAMA)


def test_a_directory_without_config_hides_nothing(around: Surroundings) -> None:
    (around.cwd / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    assert resolve(around, id="Qwen/Qwen3-8B").resolved_from == "catalogue"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (None, "holds no config.json"),
        ("adapter_config.json", "LoRA adapter"),
        ("params.json", "Mistral's own format"),
        ("m-Q4.gguf", "GGUF files but no config.json"),
    ],
)
@pytest.mark.parametrize("ref", [{"id": "./mine"}, {"id": "mine"}, {"id": "org/x", "path": "mine"}])
def test_a_directory_without_config(around: Surroundings, file: str | None, said: str, ref: dict[str, str]) -> None:
    (around.cwd / "mine").mkdir()
    if file:
        (around.cwd / "mine" / file).write_bytes(b"{}")
    error = refused(around, **ref)
    assert said in error.what
    assert error.where == str(around.cwd / "mine")
    assert error.hint


def test_no_such_directory(around: Surroundings) -> None:
    for ref in ({"id": "./nope"}, {"id": "x", "path": "nope"}, {"id": "/nope/nope"}, {"id": "~/nope"}):
        error = refused(around, **ref)
        assert "there is no directory" in error.what
        assert error.where == WHERE


def test_one_gguf_file(around: Surroundings) -> None:
    write_json(around.cwd / "m" / "config.json", LLAMA)
    for name, rows in (("m-Q4_K_M", 4), ("m-Q8_0", 8)):
        (around.cwd / "m" / f"{name}.gguf").write_bytes(gguf_bytes({"t": (8, (32, rows))}))
    facts = resolve(around, id="org/m", path="m/m-Q8_0.gguf")
    assert facts.weights is not None
    assert (facts.weights.total_bytes, facts.weights.basis) == (8 * 34, "gguf")
    assert "name one file" in refused(around, id="org/m", path="m").hint


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ('{\n  "a": 1,\n  "b" 2\n}', "config.json, line 3, column 7", "not valid JSON"),
        ("[1]", "config.json", "holds a list, expected a JSON object"),
        ("null", "config.json", "holds null"),
        ("", "config.json, line 1, column 1", "not valid JSON"),
        ("[" * 100_000, "config.json", ""),
        ('{"a": ' + "9" * 5000 + "}", "config.json", ""),
        (b"\xff\xfe\xfa", "config.json", ""),
    ],
)
def test_broken_config(around: Surroundings, text: str | bytes, where: str, said: str) -> None:
    folder = around.cwd / "mine"
    folder.mkdir()
    (folder / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    error = refused(around, id="./mine")
    assert said in error.what
    assert error.where.startswith(str(folder / where.split(",")[0]))
    assert error.where.endswith(where)


@pytest.mark.parametrize("name", ["hf_quant_config.json", "tokenizer_config.json"])
def test_broken_neighbours(around: Surroundings, name: str) -> None:
    write_json(around.cwd / "mine" / "config.json", LLAMA)
    (around.cwd / "mine" / name).write_text("{")
    assert name in refused(around, id="./mine").where


def test_a_config_that_is_a_directory(around: Surroundings) -> None:
    (around.cwd / "mine" / "config.json").mkdir(parents=True)
    assert "not a regular file" in refused(around, id="./mine").what


def test_numbers_json_does_not_know(around: Surroundings) -> None:
    write_json(around.cwd / "mine" / "config.json", {**LLAMA, "time_step_limit": [0.0, float("inf")]})
    (around.cwd / "bom").mkdir()
    (around.cwd / "bom" / "config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())
    assert resolve(around, id="./mine").config["time_step_limit"] == [0.0, float("inf")]
    assert resolve(around, id="./bom").config == LLAMA


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        ("131072", 131072),
        ("1000000000000000019884624838656", None),
        ("1e30", None),
        ("8192.0", None),
        ("true", None),
        ("null", None),
        ('"512"', None),
        ("0", None),
        ("-1", None),
        ("Infinity", None),
    ],
)
def test_the_tokenizers_limit(around: Surroundings, value: str, limit: int | None) -> None:
    write_json(around.cwd / "mine" / "config.json", LLAMA)
    (around.cwd / "mine" / "tokenizer_config.json").write_text(f'{{"x": [1], "model_max_length": {value}}}')
    assert resolve(around, id="./mine").model_max_length == limit


# --- the hub cache


def test_the_hub_cache(around: Surroundings) -> None:
    snapshot = cache_model(around, "org/name", LLAMA)
    write_safetensors(snapshot / "blob", TWO).rename(snapshot.parents[1] / "blob")
    (snapshot / "model.safetensors").symlink_to(snapshot.parents[1] / "blob")
    facts = resolve(around, id="org/name")
    assert (facts.id, facts.resolved_from, facts.revision) == ("org/name", "hub cache", COMMIT)
    assert facts.weights is not None
    assert facts.weights.total_bytes == 70


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_revisions_in_the_cache(around: Surroundings, revision: str | None) -> None:
    cache_model(around, "org/name", LLAMA)
    assert resolve(around, id="org/name", revision=revision).revision == COMMIT


@pytest.mark.parametrize("revision", ["v2", "0" * 40, "../../x", "/etc", "", "a\0b", "refs/pr/1"])
def test_revisions_that_are_not_cached(around: Surroundings, revision: str) -> None:
    cache_model(around, "org/name", LLAMA, ref="v1")
    assert "hub is switched off" in refused(around, id="org/name", revision=revision).what


def test_a_pull_request_in_the_cache(around: Surroundings) -> None:
    cache_model(around, "org/name", LLAMA)
    folder = around.hub_cache / "models--org--name"
    (folder / "refs" / "refs" / "pr").mkdir(parents=True)
    (folder / "refs" / "refs" / "pr" / "1").write_text(COMMIT + "\n")
    assert resolve(around, id="org/name", revision="refs/pr/1").revision == COMMIT


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ({}, "home/.cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "@/xdg"}, "xdg/huggingface/hub"),
        ({"HF_HOME": "@/hf", "XDG_CACHE_HOME": "@/xdg"}, "hf/hub"),
        ({"HUGGINGFACE_HUB_CACHE": "@/old", "HF_HOME": "@/hf"}, "old"),
        ({"HF_HUB_CACHE": "@/new", "HUGGINGFACE_HUB_CACHE": "@/old"}, "new"),
        ({"HF_HUB_CACHE": "~/mine"}, "home/mine"),
        ({"HF_HUB_CACHE": "relative"}, "cwd/relative"),
    ],
)
def test_where_the_cache_is(tmp_path: Path, env: dict[str, str], place: str) -> None:
    around = surroundings(tmp_path, **{name: value.replace("@", str(tmp_path)) for name, value in env.items()})
    assert around.hub_cache == tmp_path / place
    cache_model(around, "org/name", LLAMA)
    assert resolve(around, id="org/name").resolved_from == "hub cache"


def test_the_cache_comes_before_the_catalogue(around: Surroundings) -> None:
    cache_model(around, "Qwen/Qwen3-8B", LLAMA)
    facts = resolve(around, id="Qwen/Qwen3-8B")
    assert (facts.resolved_from, facts.config) == ("hub cache", LLAMA)
    assert facts.weights is None, "another model's size is no answer"
    assert "models add" in facts.notes[0]


def test_a_cached_config_takes_the_catalogues_size(around: Surroundings) -> None:
    known = resolve(around, id="Qwen/Qwen3-8B")
    cache_model(around, "Qwen/Qwen3-8B", {**known.config, "eos_token_id": 3})
    facts = resolve(around, id="Qwen/Qwen3-8B")
    assert (facts.resolved_from, facts.weights, facts.notes) == ("hub cache", known.weights, ())
    quantised = {**known.config, "quantization_config": {"quant_method": "awq"}}
    cache_model(around, "Qwen/Qwen3-8B", quantised)
    assert resolve(around, id="Qwen/Qwen3-8B").weights is None


def test_a_half_cached_model_counts_by_its_index(around: Surroundings) -> None:
    snapshot = cache_model(around, "org/name", LLAMA)
    write_sharded(snapshot, TWO, 2)[1].unlink()
    weights = resolve(around, id="org/name").weights
    assert weights is not None
    assert (weights.total_bytes, weights.basis) == (70, "index")


def test_a_broken_file_in_the_cache_is_an_error(around: Surroundings) -> None:
    snapshot = cache_model(around, "org/name", LLAMA)
    (snapshot / "model.safetensors").write_bytes(b"12345678{")
    assert "model.safetensors" in refused(around, id="org/name").where


# --- the catalogue, and nowhere


def test_the_catalogue(around: Surroundings) -> None:
    facts = resolve(around, id="qwen2.5-7b-instruct")
    assert (facts.id, facts.resolved_from) == ("Qwen/Qwen2.5-7B-Instruct", "catalogue")
    assert facts.weights is not None
    assert facts.weights.total_bytes == 15_231_233_024


def test_a_revision_the_catalogue_does_not_know(around: Surroundings) -> None:
    facts = resolve(around, id="Qwen/Qwen3-8B", revision="abc")
    assert "revision abc" in facts.notes[-1]


def test_a_broken_entry_of_ones_own(around: Surroundings) -> None:
    path = around.own_models / "me" / "mine.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("id: me/mine\nconfig: [")
    error = refused(around, id="me/mine")
    assert error.where.startswith(f"{path}, line 3")


def test_nowhere(around: Surroundings) -> None:
    error = refused(around, id="Qwen/Qwen2.5-7B-Instrct")
    assert error.where == f"{WHERE}: Qwen/Qwen2.5-7B-Instrct"
    assert "hub is switched off" in error.what
    assert "nearest in the catalogue: Qwen/Qwen2.5-7B-Instruct" in error.hint
    assert "HF_HUB_OFFLINE" in error.hint


def test_offline_as_asked_for(around: Surroundings) -> None:
    online = Surroundings(env={}, cwd=around.cwd, home=around.home)
    with pytest.raises(InvalidInput, match="switched off"):
        resolve_model(ModelRef(id="org/nowhere"), base_dir=online.cwd, offline=True, around=online)


@pytest.mark.parametrize("value", ["1", "true", "YES", "on"])
@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_ways_to_be_offline(tmp_path: Path, name: str, value: str) -> None:
    assert Surroundings(env={name: value}, cwd=tmp_path, home=tmp_path).is_offline
    assert not Surroundings(env={name: "0"}, cwd=tmp_path, home=tmp_path).is_offline


def test_the_model_itself_not_the_catalogue(around: Surroundings) -> None:
    with pytest.raises(InvalidInput, match="switched off"):
        read_model(ModelRef(id="Qwen/Qwen3-8B"), base_dir=around.cwd, around=around)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("gpt2", True),
        ("org/name", True),
        ("org/na.me_1-x", True),
        ("a/b/c", False),
        ("a b", False),
        ("", False),
        ("-a", False),
        ("a--b", False),
        ("a..b", False),
        ("a.", False),
        ("http://x/y", False),
        ("x" * 97, False),
        ("org/name:Q4", False),
        ("org/name\n", False),
    ],
)
def test_repository_ids(around: Surroundings, name: str, is_one: bool) -> None:
    assert is_repository_id(name) is is_one
    if not is_one:
        assert refused(around, id=name).where.startswith(WHERE)


@given(name=st.text(max_size=40) | st.text("./~\0 ab-", max_size=12), as_path=st.booleans())
@example(name="x" * 5000, as_path=False)
@example(name="x" * 5000, as_path=True)
@example(name="/" + "x/" * 3000, as_path=True)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
def test_any_name(around: Surroundings, name: str, as_path: bool) -> None:
    try:
        said = resolve(around, id="x" if as_path else name, path=name if as_path else None).source
    except InvalidInput as error:
        said = error.what if error.where else ""
    assert said


@given(data=st.binary(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_config(around: Surroundings, data: bytes) -> None:
    (around.cwd / "mine").mkdir(exist_ok=True)
    (around.cwd / "mine" / "config.json").write_bytes(data)
    try:
        facts = resolve(around, id="./mine")
    except InvalidInput as error:
        where = error.where
    else:
        where = facts.source
    assert "mine" in where


def test_planning_from_the_catalogue_imports_no_network() -> None:
    """A plan must not wait for modules it does not use."""
    script = (
        "import sys; from pathlib import Path; from advisor.workload import ModelRef;"
        "from kvadvise.sources import resolve_model;"
        "print(resolve_model(ModelRef(id='Qwen/Qwen3-8B'), base_dir=Path('.')).id,"
        "sorted({'huggingface_hub', 'httpx', 'asyncio', 'tempfile', 'difflib', 'ssl'} & set(sys.modules)))"
    )
    root = bundled_models().parents[1]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout == "Qwen/Qwen3-8B []\n"
