"""The bundled workload files: each is read, says where its percentiles come from, and keeps to the length it names."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

import profiles
from advisor.workload import WorkloadFile
from advisor.workload_yaml import read_workload_bytes
from tools.profile_percentiles import main

HOME = Path(profiles.__file__).parent
SHARED = Path(os.environ.get("KVADVISE_SHARED", Path(__file__).resolve().parents[3] / "shared"))
FILES = sorted((HOME / "workloads").glob("*.yaml"))
BY_LENGTH = {
    "chat-8k": 8192,
    "rag-32k": 32768,
    "code-16k": 16384,
    "agent-128k": 131072,
    "batch-4k": 4096,
    "reasoning-32k": 32768,
}
LOCAL_NAMES = {  # what a trace is called where it is published -> here
    "conversation_trace.jsonl": "mooncake_conversation_first25min.jsonl",
    "sharegpt_8k_filtered_stats_llama2_tokenizer.csv": "sharegpt_8k_lengths_llama2.csv",
}


def read(name: str) -> WorkloadFile:
    return read_workload_bytes((HOME / "workloads" / f"{name}.yaml").read_bytes(), f"{name}.yaml")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_is_read_and_says_where_it_comes_from(path: Path) -> None:
    workload = read_workload_bytes(path.read_bytes(), path.name)
    assert workload.name == path.stem
    assert workload.description
    assert workload.origin
    assert workload.plan is None
    assert "vllm_version" not in workload.engine


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_is_what_the_schema_says(path: Path) -> None:
    schema: dict[str, Any] = json.loads((HOME / "schema" / "workload-1.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), schema)


@pytest.mark.parametrize(("name", "length"), BY_LENGTH.items(), ids=BY_LENGTH)
def test_keeps_to_the_length_it_names(name: str, length: int) -> None:
    load = read(name).workload
    longest = load.prompt_tokens.longest + load.chat_template_tokens + load.output_tokens.longest
    assert 0.9 * length < longest <= length


@pytest.mark.parametrize("name", BY_LENGTH)
def test_percentiles_are_those_of_the_trace(name: str) -> None:
    workload = read(name)
    assert workload.origin
    command = shlex.split(workload.origin.splitlines()[-1])
    assert command[:3] == ["python", "-m", "tools.profile_percentiles"]
    trace = SHARED / "traces" / LOCAL_NAMES.get(command[3], command[3])
    if not trace.exists():
        pytest.skip(f"the trace {command[3]} is not here")
    result = CliRunner().invoke(main, [str(trace), *command[4:]])
    assert result.exit_code == 0, result.output
    written = yaml.safe_load((HOME / "workloads" / f"{name}.yaml").read_text(encoding="utf-8"))["workload"]
    stated = {key: written[key] for key in ("prompt_tokens", "output_tokens", "shared_prefix_tokens") if key in written}
    assert yaml.safe_load(result.output) == stated


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_attribution_asked_for_is_given(path: Path) -> None:
    origin = read_workload_bytes(path.read_bytes(), path.name).origin or ""
    if "Azure" in origin:
        assert "CC-BY 4.0" in origin
        assert "github.com/Azure/AzurePublicDataset" in origin
        assert "Splitwise, ISCA 2024" in " ".join(origin.split())
