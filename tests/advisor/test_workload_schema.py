"""The JSON Schema that editors use says what the reader says, as far as a schema can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import profiles
from advisor.arrival_fields import ARRIVALS, TRACE
from advisor.gate_keys import GATE
from advisor.problems import InvalidWorkload
from advisor.workload_fields import Section
from advisor.workload_keys import GPU, LOAD, MODEL, SECTIONS, WORKLOAD
from advisor.workload_yaml import read_workload
from tests.advisor.workload_samples import BAD, GOOD, MINIMAL, Bad, edited

SCHEMA: dict[str, Any] = json.loads(
    (Path(profiles.__file__).parent / "schema" / "workload-1.schema.json").read_text(encoding="utf-8")
)

GOOD_TEXTS = {
    "every-key": GOOD,
    "minimal": MINIMAL,
    "model-mapping": edited("Qwen/Qwen2.5-7B-Instruct", "{path: ./model}", MINIMAL),
    "capability-text": edited("RTX 4090", '{name: GB10, compute_capability: "12.1"}', MINIMAL),
    "capability-number": edited("RTX 4090", "{name: GB10, compute_capability: 12.1}", MINIMAL),
    "cpu": edited("RTX 4090", "{name: cpu, memory_gib: 6000}", MINIMAL),
    "empty-sections": MINIMAL + "slo:\npolicy:\nengine:\ngate:\n",
    "pins": MINIMAL + "engine: {--dtype: auto, max-model-len: -1, enforce_eager: true, x: [1, {y: null}], z: 8k}\n",
    "two-part-version": MINIMAL + 'engine: {vllm_version: "0.32"}\n',
    "no-prefix": edited("concurrency: 32", "concurrency: 32\n  shared_prefix_tokens: 0", MINIMAL),
    "gate": MINIMAL + "gate: {kv_after_drain_max: 0, gpu_memory_free_bytes_min: 536870912, success_rate_min: 1}\n",
    "gamma": edited(
        "concurrency: 32", "concurrency: 32\n  requests_per_s: 2\n  arrivals: {process: gamma, cv: 2.5}", MINIMAL
    ),
    "pieces": edited(
        "concurrency: 32",
        "concurrency: 32\n  arrivals: {process: piecewise, rates: [[0, 2], [60, 5.5], [90, 0]]}",
        MINIMAL,
    ),
    "trace-part": edited(
        "traces/chat.csv", "{file: chat.csv, from_s: 0, until_s: 600, keep_fraction: 0.5, time_scale: 2}"
    ),
    "gate-levels": MINIMAL + "gate: {over_limit: error, levels: {preemptions: warn, no_oom: error}}\n",
}


def accepted_by_schema(text: str) -> bool:
    return not list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(yaml.safe_load(text)))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("text", GOOD_TEXTS.values(), ids=GOOD_TEXTS)
def test_both_accept(text: str) -> None:
    read_workload(text, "w.yaml")
    assert accepted_by_schema(text)


@pytest.mark.parametrize("bad", [bad for bad in BAD if bad.by_schema], ids=lambda bad: bad.name)
def test_both_refuse(bad: Bad) -> None:
    with pytest.raises(InvalidWorkload):
        read_workload(bad.text, "w.yaml")
    assert not accepted_by_schema(bad.text)


@pytest.mark.parametrize("bad", [bad for bad in BAD if not bad.by_schema], ids=lambda bad: bad.name)
def test_only_the_reader_can_refuse(bad: Bad) -> None:
    """What the schema cannot see is marked so in the table, and nothing else is."""
    try:
        seen = accepted_by_schema(bad.text)
    except (yaml.YAMLError, ValueError):
        return  # a YAML reader refuses it before the schema is asked
    assert seen


def test_both_know_the_same_keys() -> None:
    properties = SCHEMA["properties"]
    assert set(properties) == set(WORKLOAD.fields)
    assert set(properties["model"]["oneOf"][1]["properties"]) == set(MODEL.fields)
    assert set(properties["gpu"]["oneOf"][1]["properties"]) == set(GPU.fields)
    assert set(properties["workload"]["properties"]) == set(LOAD.fields)
    assert set(properties["gate"]["properties"]) == set(GATE)
    for name, section in SECTIONS.items():
        if name in ("slo", "policy"):
            assert set(properties[name]["properties"]) == set(section.fields)
    assert set(properties["workload"]["properties"]["trace"]["oneOf"][1]["properties"]) == set(TRACE.fields)
    assert set(properties["workload"]["properties"]["arrivals"]["properties"]) == set(ARRIVALS.fields)
    for name in ("prompt_tokens", "output_tokens"):
        lengths = LOAD.fields[name]
        assert isinstance(lengths, Section)
        assert set(properties["workload"]["properties"][name]["properties"]) == set(lengths.fields)


def test_every_key_is_described() -> None:
    undescribed = [key for key, schema in _walk("", SCHEMA) if not schema.get("description")]
    assert undescribed == []


def _walk(prefix: str, schema: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for part in (schema, *schema.get("oneOf", ())):
        for key, inner in part.get("properties", {}).items():
            found += [(f"{prefix}{key}", inner), *_walk(f"{prefix}{key}.", inner)]
    return found
