"""A plan as others read it: keys, order, identity, outcomes, and what is left empty when nothing is known."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from advisor.errors import NotUnderstood
from advisor.facts import ModelFacts
from advisor.gpu import Gpu
from advisor.plan import make_plan, planned_version
from advisor.plan_types import Plan
from advisor.units import GIB, MIB
from advisor.versions import Version
from advisor.workload import Lengths
from kvadvise.constants import load_constants
from tests.advisor import plan_samples as s

ALWAYS = {
    *("max_model_len", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype"),
    *("block_size", "tensor_parallel_size", "pipeline_parallel_size"),
}
PARAMETERS = ["max_model_len", "gpu_memory_utilization", "max_num_seqs", "kv_cache_dtype", "model_or_gpus"]
KEYS = {
    *("schema", "kvadvise_version", "inputs_sha256", "outcome", "flags", "argv", "steps", "memory", "kv"),
    *("concurrency", "starts", "findings", "alternatives", "assumptions"),
}
LEDGER = {
    *("total_bytes", "budget_bytes", "weights_bytes", "activation_bytes", "non_torch_bytes", "cuda_graph_bytes"),
    *("kv_cache_bytes", "outside_budget_bytes"),
}
KV_KEYS = {
    *("block_size", "num_blocks", "bytes_per_block", "bytes_per_token", "groups", "capacity_tokens"),
    *("max_concurrency", "bytes_per_request", "estimated_max_model_len"),
}
STEP_KEYS = {
    *("priority", "parameter", "before", "after", "reason", "binding"),
    *("concurrency_at_p95_before", "concurrency_at_p95_after"),
}


def builtins(plan: Plan) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(msgspec.json.encode(plan))
    return made


def make(config: dict[str, Any], device: Gpu, **work: Any) -> Plan:
    facts = ModelFacts(id="org/model", config=config)
    return make_plan(
        s.workload("org/model", **work), facts, device, load_constants(), kvadvise_version="0", inputs_sha256="x"
    )


@pytest.mark.parametrize(
    ("model", "device"),
    [
        pytest.param(s.LLAMA, s.h100(), id="dense"),
        pytest.param(s.SLIDING, s.h100(), id="sliding"),
        pytest.param(s.HYBRID, s.h100(4), id="hybrid"),
        pytest.param(s.MLA, s.h100(), id="mla"),
        pytest.param("Qwen/Qwen3-0.6B", s.cpu(), id="cpu"),
        pytest.param(s.LLAMA_70B, s.gpu(), id="far-too-small"),
    ],
)
def test_every_key_of_the_contract(model: str, device: Gpu) -> None:
    made = builtins(s.plan(model, device))
    assert made.keys() >= KEYS
    assert made["schema"] == "kvadvise.plan/1"
    assert made["flags"].keys() >= ALWAYS
    assert all(value is not None for value in made["flags"].values())
    assert [step["parameter"] for step in made["steps"]] == PARAMETERS
    assert [step["priority"] for step in made["steps"]] == [1, 2, 3, 4, 5]
    assert all(step.keys() >= STEP_KEYS and step["reason"] for step in made["steps"])
    assert made["memory"].keys() >= LEDGER | {"cuda_graphs_in_budget"}
    assert all(made["memory"][name].keys() == {"value", "low", "high", "basis"} for name in LEDGER)
    assert made["kv"].keys() >= KV_KEYS
    assert made["concurrency"].keys() >= {"target", "at_p95", "promised", "bound_by", "replicas"}
    assert made["argv"][:2] == ["vllm", "serve"]
    assert made["assumptions"][0].startswith("vLLM 0.32.0")


@pytest.mark.parametrize("device", [s.h100(), s.gpu(), s.rtx_3090(4), s.cpu()], ids=lambda d: f"{d.count}x{d.name}")
def test_steps_lead_from_one_to_the_next(device: Gpu) -> None:
    made = s.plan(s.LLAMA, device, weights_gib=14.99 if device.count == 1 else 3.75, concurrency=64)
    for step, following in zip(made.steps, made.steps[1:], strict=False):
        assert step.concurrency_at_p95_after == following.concurrency_at_p95_before
        assert step.starts_after == following.starts_before
    assert made.concurrency is not None
    assert made.steps[-1].concurrency_at_p95_after == made.concurrency.at_p95
    last = {step.parameter: step.after for step in made.steps}
    moved = {name: change.after for step in made.steps for name, change in step.also.items()}
    for name in ("max_model_len", "gpu_memory_utilization", "max_num_seqs", "kv_cache_dtype"):
        assert made.flags[name] == moved.get(name, last[name])


def test_the_same_input_gives_the_same_bytes() -> None:
    first, second = (msgspec.json.encode(s.plan(s.LLAMA, s.gpu(), concurrency=64)) for _ in range(2))
    assert first == second


def test_where_the_file_lay_is_no_part_of_the_plan() -> None:
    here, there = (msgspec.json.encode(s.plan(s.LLAMA, file=name)) for name in ("a.yaml", "/elsewhere/b.yaml"))
    assert here == there


def test_flags_and_command_agree() -> None:
    made = s.plan(s.LLAMA, s.h100(), engine={"enforce_eager": True, "enable_prefix_caching": False, "seed": 7})
    words = list(made.argv[3:])
    for name, value in made.flags.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            assert flag in words
        elif value is False:
            assert "--no-" + flag[2:] in words
        else:
            assert words[words.index(flag) + 1] == f"{value:g}" if isinstance(value, float) else str(value)


def test_mappings_and_lists_on_the_command_line() -> None:
    pins = {"limit_mm_per_prompt": {"image": 0}, "cudagraph_capture_sizes": [1, 2, 4], "vllm_version": "0.32.0"}
    words = s.plan(s.LLAMA, s.h100(), engine=pins).argv
    assert '{"image":0}' in words
    assert words[words.index("--cudagraph-capture-sizes") + 1 :][:3] == ("1", "2", "4")
    assert "--vllm-version" not in words


def test_switches_that_old_releases_cannot_negate_are_left_out() -> None:
    words = s.plan(s.LLAMA, s.h100(), engine={"enforce_eager": False, "vllm_version": "0.8.5"}).argv
    assert not any("enforce-eager" in word for word in words)


@pytest.mark.parametrize(
    ("model", "device", "work", "outcome", "starts"),
    [
        pytest.param(s.LLAMA, s.h100(), {}, "fits", True, id="fits"),
        pytest.param(
            s.LLAMA,
            s.gpu(),
            {"weights_gib": 14.99, "prompt": 6000, "output": 500, "concurrency": 9},
            "fits_with_loss",
            True,
            id="needs-quantisation",
        ),
        pytest.param(
            s.LLAMA,
            s.gpu(),
            {"weights_gib": 14.99, "prompt": 6000, "output": 500, "concurrency": 9, "policy": "never"},
            "does_not_fit",
            True,
            id="quantisation-forbidden",
        ),
        pytest.param(s.LLAMA_70B, s.gpu(), {"weights_gib": 131.0}, "does_not_fit", False, id="weights"),
        pytest.param(s.LLAMA, s.h100(), {"engine": {"nonsense": 1}}, "invalid", False, id="unknown-argument"),
        pytest.param(s.LLAMA, s.h100(), {"engine": {"max_model_len": "many"}}, "invalid", False, id="impossible-value"),
        pytest.param(s.LLAMA, s.h100(), {"engine": {"vllm_version": "0.5.0"}}, "invalid", False, id="release-too-old"),
        pytest.param("BAAI/bge-m3", s.h100(), {}, "not_understood", None, id="no-cache"),
    ],
)
def test_outcomes(model: str, device: Gpu, work: dict[str, Any], outcome: str, starts: bool | None) -> None:
    made = s.plan(model, device, **work)
    assert made.outcome == outcome
    assert made.starts is starts


@pytest.mark.parametrize(
    "config",
    [{"architectures": ["NobodyKnowsThisForCausalLM"], "model_type": "nobody"}, {}],
    ids=["unknown", "empty"],
)
def test_what_is_not_understood_has_no_number(config: dict[str, Any]) -> None:
    made = make(config, s.h100())
    assert made.outcome == "not_understood"
    assert made.starts is None
    assert (made.memory, made.kv, made.concurrency, made.flags, made.argv, made.steps) == (None, None, None, {}, (), ())
    assert [finding.severity for finding in made.findings] == ["error"]
    assert not any(char.isdigit() for char in made.findings[0].message.replace("NobodyKnowsThis", ""))


def test_a_refused_length_keeps_the_layout_of_the_pins() -> None:
    pins = {"max_model_len": 16_384, "kv_cache_memory_bytes": 4 * GIB}
    made = s.plan("google/gemma-2-9b", s.h100(), weights_gib=17.2, concurrency=200, engine=pins)
    assert made.outcome == "invalid"
    assert made.starts is False
    assert made.kv is not None
    assert made.flags["kv_cache_dtype"] == "auto"


def test_a_refused_length_is_shown_without_a_loss_nobody_asked_for() -> None:
    pins = {"max_model_len": 32_768, "kv_cache_memory_bytes": 20 * GIB}
    made = s.plan("google/gemma-2-9b", s.h100(), weights_gib=17.2, concurrency=24, engine=pins)
    assert made.outcome == "invalid"
    assert made.kv is not None
    assert (made.kv.num_blocks, made.flags["kv_cache_dtype"]) == (7801, "auto")
    assert made.workload is not None
    assert made.workload["policy"]["kv_cache_quantization"] == "ask"


@pytest.mark.parametrize(
    ("pins", "blocks"),
    [({}, None), ({"num_gpu_blocks_override": 500}, 500), ({"kv_cache_memory_bytes": 2**30}, 2**30 // 2**21)],
)
def test_a_layout_without_weights_is_still_shown(
    pins: dict[str, Any], blocks: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: Any) -> None:
        raise NotUnderstood("the weights are not known", where="architectures")

    monkeypatch.setattr("advisor.sizing.stage_weights", unknown)
    made = s.plan(s.LLAMA, s.h100(), engine=pins)
    assert made.outcome == "not_understood"
    assert (made.memory, made.concurrency, made.flags) == (None, None, {})
    assert made.kv is not None
    assert made.kv.bytes_per_token == 131_072
    assert made.kv.num_blocks == blocks


def test_every_violated_rule_is_told_at_once() -> None:
    pins = {"tensor_parallel_size": 3, "kv_cache_dtype": "fp8", "dtype": "bfloat16", "frobnicate": 1}
    made = s.plan(s.QWEN, s.gpu("T4", 14.56, 14.4, cap=(7, 5), count=3), engine=pins)
    assert made.outcome == "invalid"
    expected = {"tp-heads", "tp-kv-heads", "tp-mlp", "kv-fp8-capability", "dtype-bf16-capability", "unknown-argument"}
    assert s.codes(made) >= expected
    severities = [finding.severity for finding in made.findings]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)


def test_pinned_bytes_and_blocks_give_the_pool_exactly() -> None:
    stated = s.plan(s.LLAMA, s.h100(), weights_gib=14.99, engine={"kv_cache_memory_bytes": 20 * GIB})
    assert stated.kv is not None
    assert stated.memory is not None
    assert (stated.kv.num_blocks, stated.memory.kv_cache_bytes.basis) == (10_240, "exact")
    assert stated.kv.num_blocks_low == stated.kv.num_blocks_high
    blocks = s.plan(s.LLAMA, s.h100(), weights_gib=14.99, engine={"num_gpu_blocks_override": 777})
    assert blocks.kv is not None
    assert blocks.memory is not None
    assert blocks.kv.num_blocks == 777
    assert blocks.memory.kv_cache_bytes.value == 777 * blocks.kv.bytes_per_block


def test_a_stated_pool_needs_no_fitting_weights_for_its_layout() -> None:
    pins = {"kv_cache_memory_bytes": 20 * GIB, "tensor_parallel_size": 8}
    made = s.plan(s.LLAMA_70B, s.gpu(), weights_gib=100, engine=pins)
    assert made.outcome == "does_not_fit"
    assert made.kv is not None
    assert made.kv.num_blocks == 20 * GIB // (80 * 16 * 4 * 128)
    assert s.codes(made) >= {"gpu-count", "weights-over-device"}


def test_a_cpu_plan_states_its_pool() -> None:
    made = s.plan("Qwen/Qwen3-0.6B", s.cpu(16, 12), weights_gib=1.2, concurrency=4)
    assert made.outcome == "fits"
    assert made.memory is not None
    stated = made.flags["kv_cache_memory_bytes"]
    assert 0 < stated <= (12 - 1.2) * GIB
    assert stated % MIB == 0
    assert (made.flags["block_size"], made.memory.cuda_graph_bytes.value) == (128, 0)
    assert made.memory.kv_cache_bytes.value == stated
    assert s.plan("Qwen/Qwen3-0.6B", s.cpu(2, 1), weights_gib=1.2, concurrency=4).outcome == "does_not_fit"


def test_percentiles_alone_leave_a_share_open() -> None:
    made = s.plan(s.LLAMA, prompt=Lengths(p95=6500), output=Lengths(p95=800, p99=900))
    said = s.messages(made, "lengths-percentile-only")
    assert "5 % of prompts" in said
    assert "1 % of outputs" in said
    assert "refuses" in said
    assert "max" in said
    assert not any("truncat" in finding.message + finding.remedy for finding in made.findings)
    assert made.flags["max_model_len"] == 7408
    assert "lengths-percentile-only" not in s.codes(s.plan(s.LLAMA))


def test_the_length_is_whole_blocks_with_the_template() -> None:
    made = s.plan(s.LLAMA, prompt=6500, output=900, chat_template_tokens=30)
    assert made.flags["max_model_len"] == 7440
    assert "30 chat template" in made.steps[0].reason


def test_the_length_never_passes_the_model() -> None:
    made = s.plan("meta-llama/Meta-Llama-3-8B", prompt=8000, output=190)
    assert made.flags["max_model_len"] == 8192


@pytest.mark.parametrize(
    ("stated", "planned"),
    [(None, (0, 32, 0)), ("0.19.1", (0, 19, 1)), ("0.41.2", (0, 33, 0)), ("0.33.4", (0, 33, 4)), ("0.2", (0, 8, 0))],
)
def test_which_release_is_planned(stated: str | None, planned: tuple[int, int, int]) -> None:
    work = s.workload(engine={} if stated is None else {"vllm_version": stated})
    assert planned_version(work) == Version(*planned)


def test_a_release_that_nobody_measured_has_wider_bands() -> None:
    known, newer = (s.plan(s.LLAMA, weights_gib=14.99, engine={"vllm_version": v}).memory for v in ("0.33.0", "0.50.0"))
    assert known is not None
    assert newer is not None
    assert newer.kv_cache_bytes.value == known.kv_cache_bytes.value
    assert newer.kv_cache_bytes.low < known.kv_cache_bytes.low
    assert newer.kv_cache_bytes.high > known.kv_cache_bytes.high


def test_auto_length_takes_what_fits() -> None:
    made = s.plan(s.LLAMA, s.gpu(), weights_gib=14.99, engine={"max_model_len": -1})
    assert made.flags["max_model_len"] == -1
    assert made.starts is True
    assert made.kv is not None
    assert made.kv.bytes_per_request <= s.known(made.kv.num_blocks_low) * made.kv.bytes_per_block
    old = s.plan(s.LLAMA, s.gpu(), engine={"max_model_len": -1, "vllm_version": "0.13.0"})
    assert old.outcome == "invalid"


def test_two_engines_share_the_load() -> None:
    made = s.plan(s.LLAMA, s.h100(2), concurrency=33, engine={"data_parallel_size": 2})
    assert made.concurrency is not None
    assert (made.concurrency.target, made.concurrency.replicas) == (17, 2)
    assert made.flags["data_parallel_size"] == 2
    assert "data-parallel-share" in s.codes(made)


def test_a_shared_prefix_is_counted_once() -> None:
    pins = {"kv_cache_memory_bytes": 5 * GIB}
    apart, shared = (
        s.plan(s.LLAMA, s.gpu(), weights_gib=14.99, engine=pins, concurrency=4, shared_prefix_tokens=n).concurrency
        for n in (0, 1600)
    )
    assert apart is not None
    assert shared is not None
    assert shared.at_p95 == (2560 - 1 - 100) // (138 - 100)
    assert apart.at_p95 == (2560 - 1) // 138
