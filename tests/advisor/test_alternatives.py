"""Other ways are planned in full, ranked, and never applied; the command line says the same as the flags."""

from __future__ import annotations

from typing import Any

import msgspec

from advisor.facts import ModelFacts
from advisor.plan import make_plan
from advisor.plan_types import Alternative, Plan
from advisor.units import GIB
from kvadvise.constants import load_constants
from tests.advisor import plan_samples as s

CROWDED: dict[str, Any] = {"prompt": 6000, "output": 500, "concurrency": 40}


def of_kind(made: Plan, kind: str) -> list[Alternative]:
    return [way for way in made.alternatives if way.kind == kind]


def test_each_way_has_flags_and_concurrency() -> None:
    made = s.plan(s.LLAMA, s.gpu(), weights_gib=14.99, known_gpus=[s.h100(), s.a100()], **CROWDED)
    assert made.outcome == "does_not_fit"
    assert made.alternatives
    for way in made.alternatives:
        assert way.flags["max_model_len"] >= 6500
        assert way.concurrency.target == 40
        assert (way.concurrency.promised >= 40 and way.starts is True) == (way.outcome != "does_not_fit")
    assert made.flags["tensor_parallel_size"] == 1


def test_those_that_fit_come_first_then_fewer_gpus() -> None:
    made = s.plan(s.LLAMA, s.gpu(), known_gpus=[s.h100(), s.a100()], **CROWDED)
    ranks = [way.outcome == "does_not_fit" for way in made.alternatives]
    assert ranks == sorted(ranks)
    fitting = [way.gpus for way in made.alternatives if way.outcome == "fits"]
    assert fitting == sorted(fitting)


def test_larger_gpus_the_smallest_first_and_two_at_most() -> None:
    larger = [s.gpu(f"card {n}", n, cap=(9, 0)) for n in (180, 24, 80, 48, 141, 20)]
    found = of_kind(s.plan(s.LLAMA, s.gpu(), known_gpus=larger, **CROWDED), "gpu")
    assert {way.gpu for way in found} == {"card 48", "card 80"}


def test_other_vendors_and_hosts_are_not_suggested() -> None:
    others = [s.gpu("MI300X", 191, cap=None, vendor="amd", arch="gfx942"), s.cpu(500, 400)]
    assert of_kind(s.plan(s.LLAMA, s.gpu(), known_gpus=others, **CROWDED), "gpu") == []


def test_the_smallest_number_of_gpus_that_does() -> None:
    (way,) = of_kind(s.plan(s.LLAMA, s.gpu(), **CROWDED), "gpus")
    assert way.outcome != "does_not_fit"
    assert way.gpus == way.flags["tensor_parallel_size"] > 1
    hopeless = s.plan(s.LLAMA, s.gpu(), prompt=6000, output=500, concurrency=5000)
    assert of_kind(hopeless, "gpus") == []


def test_what_the_policy_forbids_is_shown() -> None:
    made = s.plan(s.LLAMA, s.gpu(), weights_gib=14.99, prompt=6000, output=500, concurrency=9, policy="never")
    (way,) = of_kind(made, "kv_cache_dtype")
    assert (way.outcome, way.flags["kv_cache_dtype"]) == ("fits_with_loss", "fp8")
    pinned = s.plan(s.LLAMA, s.gpu(), engine={"kv_cache_dtype": "auto"}, **CROWDED)
    assert of_kind(pinned, "kv_cache_dtype") == []


def test_checkpoints_of_the_family_the_largest_that_fits() -> None:
    names = ("Qwen/Qwen2.5-0.5B-Instruct", "Qwen/Qwen2.5-1.5B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "BAAI/bge-m3")
    family = [s.facts_of(name) for name in names]
    unknown = ModelFacts(id="org/unknown", config={"architectures": ["Unknown"]})
    made = s.plan("Qwen/Qwen2.5-7B-Instruct", s.gpu(), siblings=[*family, unknown], **CROWDED)
    found = of_kind(made, "model")
    assert [way.model for way in found] == [
        "Qwen/Qwen2.5-1.5B-Instruct",
        "Qwen/Qwen2.5-0.5B-Instruct",
    ]
    long = s.plan(s.QWEN, s.gpu(), siblings=[s.facts_of("google/gemma-2b")], prompt=9000, output=500, concurrency=99)
    assert of_kind(long, "model") == []


def test_gpus_left_over_make_replicas() -> None:
    made = s.plan(s.LLAMA, s.h100(4))
    (way,) = of_kind(made, "replicas")
    assert way.flags["data_parallel_size"] == 4
    assert (way.gpus, way.concurrency.target, way.concurrency.replicas) == (4, 4, 4)
    assert way.outcome == "fits"


def test_replicas_of_one_gpu_and_of_the_split() -> None:
    made = s.plan(s.LLAMA, s.gpu(count=4), **CROWDED)
    worlds = {way.flags["tensor_parallel_size"] for way in of_kind(made, "replicas")}
    assert worlds <= {1, made.flags["tensor_parallel_size"]}
    assert of_kind(s.plan(s.LLAMA, s.h100(4), engine={"data_parallel_size": 2}), "replicas") == []
    pinned = s.plan(s.LLAMA, s.h100(4), engine={"tensor_parallel_size": 2})
    assert [way.flags["tensor_parallel_size"] for way in of_kind(pinned, "replicas")] == [2]


def test_each_pin_that_costs_is_let_go() -> None:
    pins = {"gpu_memory_utilization": 0.5, "max_model_len": 100_000}
    made = s.plan(s.LLAMA, s.h100(), engine=pins, prompt=6000, output=500, concurrency=16)
    assert made.flags["gpu_memory_utilization"] == 0.5
    released = {way.description.split(":")[0].removeprefix("without the pin "): way for way in of_kind(made, "unpin")}
    assert released["gpu_memory_utilization"].flags["gpu_memory_utilization"] >= 0.92
    assert "pin-cost" in s.codes(made)


def test_a_pin_that_costs_nothing_is_not_mentioned() -> None:
    made = s.plan(s.LLAMA, s.h100(), engine={"max_model_len": 8192, "max_num_seqs": 16})
    assert made.outcome == "fits"
    assert of_kind(made, "unpin") == []
    assert "pin-cost" not in s.codes(made)


def test_an_enlarged_pool_is_worth_a_note_only() -> None:
    made = s.plan(s.LLAMA, s.h100(), concurrency=4, engine={"kv_cache_memory_bytes": 10 * GIB})
    (cost,) = [finding for finding in made.findings if finding.code == "pin-cost"]
    assert cost.severity == "note"


def test_nothing_else_is_tried_while_the_target_is_met() -> None:
    made = s.plan(s.LLAMA, s.h100(), known_gpus=[s.gpu("B200", 178, cap=(10, 0))], siblings=[s.facts_of(s.QWEN)])
    assert made.alternatives == ()


def test_a_cpu_gets_no_gpus() -> None:
    made = s.plan("Qwen/Qwen3-0.6B", s.cpu(4, 3), weights_gib=1.2, prompt=6000, output=500, concurrency=64)
    assert made.outcome == "does_not_fit"
    assert {way.kind for way in made.alternatives} <= {"unpin"}


def planned(**ref: Any) -> Plan:
    work = s.workload(s.LLAMA)
    work = msgspec.structs.replace(work, model=msgspec.structs.replace(work.model, **ref))
    return make_plan(work, s.facts_of(s.LLAMA), s.h100(), load_constants(), kvadvise_version="0", inputs_sha256="x")


def test_the_model_on_the_command_line() -> None:
    assert planned().argv[2] == s.LLAMA
    assert planned(path="/models/llama").argv[2] == "/models/llama"
    words = planned(revision="abc123").argv
    assert words[3:5] == ("--revision", "abc123")


def test_a_stated_quantisation_is_an_argument() -> None:
    made = planned(quantization="fp8")
    assert made.flags["quantization"] == "fp8"
    assert "quantized-while-loading" in s.codes(made)


def test_a_block_size_that_would_move_the_layout_is_left_to_vllm() -> None:
    old = s.plan(s.HYBRID, s.h100(4), engine={"vllm_version": "0.19.1"})
    assert old.flags["block_size"] == 16
    assert "--block-size" not in old.argv
    new = s.plan(s.HYBRID, s.h100(4))
    assert "--block-size" in new.argv


def test_lists_of_mappings_and_old_switches() -> None:
    pins = {"lora_modules": [{"name": "a", "path": "/a"}], "enable_lora": True}
    words = s.plan(s.LLAMA, engine=pins).argv
    assert '{"name":"a","path":"/a"}' in words


def test_weights_of_unknown_size_make_no_number() -> None:
    facts = msgspec.structs.replace(s.facts_of(s.LLAMA), weights=None, config={**s.facts_of(s.LLAMA).config})
    made = make_plan(
        s.workload(s.LLAMA, weights_gib=14.99),
        facts,
        s.h100(),
        load_constants(),
        kvadvise_version="0",
        inputs_sha256="x",
    )
    assert made.outcome == "fits"
    assert made.assumptions[1].startswith("weights: 14.99 GiB per GPU, as stated")
