"""Every rule has a case that meets it and one beside it that does not; codes are stable and documented."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from advisor.facts import AdapterFact, ModelFacts
from advisor.gpu import Gpu
from advisor.plan import make_plan
from advisor.plan_types import Plan
from advisor.rules import INPUT_RULES, PLAN_RULES
from advisor.rules.lengths import may_reason
from advisor.rules.table import InputRule, PlanRule, gravest
from advisor.units import GIB
from advisor.workload import Lengths, Slo
from kvadvise.constants import load_constants
from tests.advisor import plan_samples as s

RULES: tuple[InputRule | PlanRule, ...] = (*INPUT_RULES, *PLAN_RULES)
P95 = Lengths(p95=2000)


class Case(msgspec.Struct, frozen=True):
    """Work that meets a rule, and the change that makes it meet it no more (or the other way round)."""

    code: str
    work: dict[str, Any]
    without: dict[str, Any] = {}
    model: str = s.LLAMA
    device: Gpu = s.h100()
    other_device: Gpu | None = None
    other_model: str | None = None


def pins(**engine: Any) -> dict[str, Any]:
    return {"engine": engine}


KV = 20 * GIB
CASES = (
    Case("vllm-too-old", pins(vllm_version="0.7.3"), pins(vllm_version="0.8.0")),
    Case("vllm-newer", pins(vllm_version="0.40.0"), pins(vllm_version="0.33.1")),
    Case("vllm-between", pins(vllm_version="0.30.0"), pins(vllm_version="0.29.0")),
    Case("tp-heads", pins(tensor_parallel_size=3), pins(tensor_parallel_size=2), device=s.h100(4)),
    Case("tp-kv-heads", pins(tensor_parallel_size=7), pins(tensor_parallel_size=4), s.QWEN, s.h100(8)),
    Case("tp-mlp", pins(tensor_parallel_size=7), pins(tensor_parallel_size=2), s.QWEN, s.h100(8)),
    Case(
        "tp-experts",
        pins(tensor_parallel_size=5),
        pins(tensor_parallel_size=5, enable_expert_parallel=True),
        "Qwen/Qwen3-30B-A3B",
        s.h100(8),
    ),
    Case("tp-vocab", pins(tensor_parallel_size=7), pins(tensor_parallel_size=2), s.LLAMA, s.h100(8)),
    Case(
        "tp-tower",
        pins(tensor_parallel_size=32),
        pins(tensor_parallel_size=32, mm_encoder_tp_mode="data"),
        "Qwen/Qwen3-VL-8B-Instruct",
        s.h100(32),
    ),
    Case(
        "tp-tower",
        pins(tensor_parallel_size=32),
        pins(tensor_parallel_size=32, limit_mm_per_prompt={"image": 0, "video": 0}),
        "Qwen/Qwen3-VL-8B-Instruct",
        s.h100(32),
    ),
    Case("tp-state", pins(tensor_parallel_size=3), pins(tensor_parallel_size=2), s.HYBRID, s.h100(8)),
    Case(
        "kv-fp8-capability",
        pins(kv_cache_dtype="fp8", vllm_version="0.23.0"),
        pins(kv_cache_dtype="fp8_e5m2", vllm_version="0.23.0"),
        device=s.a100(),
    ),
    Case("kv-fp8-capability", pins(kv_cache_dtype="fp8_e5m2"), device=s.a100(), other_device=s.h100()),
    Case("pp-architecture", pins(pipeline_parallel_size=2), pins(), "google/gemma-3n-E4B-it", s.h100(2)),
    Case(
        "ray-gpu-share",
        pins(distributed_executor_backend="ray"),
        pins(distributed_executor_backend="ray", gpu_memory_utilization=0.45),
        s.LLAMA,
    ),
    Case(
        "ray-gpu-share",
        pins(distributed_executor_backend="ray", gpu_memory_utilization=0.9),
        pins(distributed_executor_backend="ray", tensor_parallel_size=2),
        device=s.h100(2),
    ),
    Case("dtype-float16-model", pins(dtype="half"), pins(dtype="float32"), "google/gemma-3-1b-it", s.t4()),
    Case("dtype-bf16-capability", pins(dtype="bfloat16"), pins(dtype="half"), "Qwen/Qwen3-0.6B", s.t4()),
    Case(
        "quantization-capability",
        pins(),
        {},
        "openai/gpt-oss-20b",
        s.gpu("T4", 40, 39, cap=(7, 5)),
        s.a100(),
    ),
    Case(
        "nvfp4-fallback",
        {"weights_gib": 5.0},
        {},
        "nvidia/DeepSeek-V3.1-NVFP4",
        s.h100(),
        s.gpu("B200", 178, cap=(10, 0)),
    ),
    Case("quantization-undescribed", pins(quantization="awq"), pins(quantization="fp8")),
    Case("quantized-while-loading", pins(quantization="fp8"), pins()),
    Case("load-beyond-model", {"prompt": 9000}, {"prompt": 7000}, "meta-llama/Meta-Llama-3-8B"),
    Case("p95-beyond-max-model-len", pins(max_model_len=2000), pins(max_model_len=4000)),
    Case(
        "longest-beyond-max-model-len",
        {"prompt": Lengths(p95=2000, max=8000), **pins(max_model_len=4000)},
        {"prompt": Lengths(p95=2000, max=3000), **pins(max_model_len=4000)},
    ),
    Case(
        "max-model-len-auto",
        pins(max_model_len="auto", vllm_version="0.13.0"),
        pins(max_model_len="auto", vllm_version="0.14.0"),
    ),
    Case("lengths-percentile-only", {"prompt": P95}, {"prompt": 2000}),
    Case("template-margin", pins(max_model_len=2200), {"chat_template_tokens": 40, **pins(max_model_len=2240)}),
    Case("reasoning-output", {"output": Lengths(p95=900)}, {"output": 900}, s.QWEN3),
    Case("utilization-refused", pins(gpu_memory_utilization=0.99), pins(gpu_memory_utilization=0.98)),
    Case("utilization-unsafe", pins(gpu_memory_utilization=0.97), pins(gpu_memory_utilization=0.95)),
    Case("mig-slice", {}, {}, s.LLAMA, s.gpu("H100 MIG 2g.20gb", 19.5, cap=(9, 0)), s.gpu(total=19.5)),
    Case(
        "batched-tokens-below-seqs",
        pins(max_num_batched_tokens=64, max_num_seqs=128),
        pins(max_num_batched_tokens=128, max_num_seqs=128),
    ),
    Case(
        "batched-tokens-below-length",
        pins(enable_chunked_prefill=False, max_num_batched_tokens=2048, max_model_len=8192),
        pins(enable_chunked_prefill=False, max_num_batched_tokens=8192, max_model_len=8192),
    ),
    Case("max-num-seqs-below-target", pins(max_num_seqs=8), pins(max_num_seqs=16)),
    Case("batched-tokens-below-target", pins(max_num_batched_tokens=8), pins(max_num_batched_tokens=16)),
    Case("headroom-thin", {"headroom": 0.95}, {"headroom": 0.9}),
    Case(
        "rate-over-concurrency",
        {"requests_per_s": 4.0, "slo": Slo(ttft_p95_s=2.0, tpot_p95_s=0.05)},
        {"requests_per_s": 1.0, "slo": Slo(ttft_p95_s=2.0, tpot_p95_s=0.05)},
    ),
    Case(
        "draft-model-unknown",
        pins(speculative_config={"method": "eagle3", "model": "org/draft", "num_speculative_tokens": 3}),
        pins(speculative_config={"method": "ngram", "num_speculative_tokens": 3}),
    ),
    Case("speculation", pins(speculative_config={"method": "ngram", "num_speculative_tokens": 3}), pins()),
    Case("offload-no-room", pins(cpu_offload_gb=8), pins(cpu_offload_gb=0)),
    Case("cpu-offload-weights", pins(cpu_offload_gb=8), pins()),
    Case(
        "connector-sliding",
        pins(kv_transfer_config={"kv_connector": "LMCacheConnectorV1"}),
        pins(),
        s.SLIDING,
    ),
    Case("lora-buffers", pins(enable_lora=True, max_lora_rank=64), pins()),
    Case("lora-architecture", pins(enable_lora=True), pins(), "microsoft/Phi-3.5-vision-instruct"),
    Case(
        "lora-architecture",
        pins(enable_lora=True, vllm_version="0.9.2"),
        pins(enable_lora=True, vllm_version="0.10.2"),
        s.MLA,
    ),
    Case("lora-rank", pins(enable_lora=True, max_lora_rank=24), pins(enable_lora=True, max_lora_rank=32)),
    Case(
        "lora-rank",
        pins(enable_lora=True, max_lora_rank=1, vllm_version="0.11.0"),
        pins(enable_lora=True, max_lora_rank=1, vllm_version="0.11.2"),
    ),
    Case(
        "lora-slots",
        pins(enable_lora=True, max_loras=4, max_cpu_loras=2),
        pins(enable_lora=True, max_loras=4, max_cpu_loras=4),
    ),
    Case("lora-disabled", pins(lora_modules=["a=org/a"]), pins(lora_modules=["a=org/a"], enable_lora=True)),
    Case(
        "lora-shared-slots",
        pins(lora_modules=["a=org/a", "b=org/b"], enable_lora=True),
        pins(lora_modules=["a=org/a", "b=org/b"], enable_lora=True, max_loras=2),
    ),
    Case("images-reserved", {}, pins(limit_mm_per_prompt={"image": 0}), "Qwen/Qwen3-VL-8B-Instruct"),
    Case(
        "cpu-state-dtype",
        pins(),
        pins(mamba_ssm_cache_dtype="float32"),
        "tiiuae/Falcon-H1-0.5B-Instruct",
        s.cpu(),
    ),
    Case("eager", pins(enforce_eager=True), pins(enforce_eager=False)),
    Case("prompt-logprobs", pins(max_logprobs=-1), pins(max_logprobs=20)),
    Case("weights-over-device", {"weights_gib": 131.0}, {"weights_gib": 60.0}, s.LLAMA_70B),
    Case("utilization-over-free", {}, {}, s.LLAMA, s.h100(), None),
    Case(
        "kv-pool-too-small",
        {"concurrency": 1, **pins(max_model_len=100_000, kv_cache_memory_bytes=4 * GIB)},
        {"concurrency": 1, **pins(max_model_len=8192, kv_cache_memory_bytes=4 * GIB)},
    ),
    Case(
        "outside-budget",
        pins(gpu_memory_utilization=0.98, vllm_version="0.19.1"),
        pins(gpu_memory_utilization=0.88, vllm_version="0.19.1"),
        s.QWEN3,
        s.gpu(total=22.36, free=22.3),
    ),
    Case("graphs-outside-budget", pins(vllm_version="0.19.1"), pins(vllm_version="0.22.1")),
    Case("graph-estimate-hybrid", pins(), pins(vllm_version="0.22.1"), s.HYBRID, s.h100(4)),
    Case(
        "room-tight", {"weights_gib": 20.3, "concurrency": 1}, {"weights_gib": 14.0, "concurrency": 1}, device=s.gpu()
    ),
    Case("load-peak", {"weights_gib": 70.0}, {"weights_gib": 60.0}, s.LLAMA_70B),
    Case("sampler-warmup", pins(max_num_seqs=1024), pins(max_num_seqs=32)),
    Case("gpu-shared", {}, {}, s.LLAMA, s.gpu("H100", 79.18, 50, cap=(9, 0)), s.h100()),
    Case("memory-unified", {}, {}, s.LLAMA, s.gpu("GB10", 119, 110, cap=(12, 1), unified_memory=True), s.h100()),
    Case(
        "mamba-blocks",
        pins(tensor_parallel_size=4, max_num_seqs=1024, kv_cache_memory_bytes=3 * GIB),
        pins(tensor_parallel_size=4, max_num_seqs=64, kv_cache_memory_bytes=3 * GIB),
        s.HYBRID,
        s.h100(4),
    ),
    Case(
        "shared-prefix-not-cached",
        {"shared_prefix_tokens": 1000, **pins(enable_prefix_caching=False)},
        {"shared_prefix_tokens": 1000},
    ),
    Case("target-missed", {"concurrency": 5000}, {"concurrency": 50}),
    Case("queue-unbounded", {"requests_per_s": 2.0}, {}),
    Case("gpu-count", pins(tensor_parallel_size=2), pins(tensor_parallel_size=1)),
    Case("tp-kv-replicated", pins(tensor_parallel_size=16), pins(tensor_parallel_size=8), s.QWEN3, s.h100(16)),
    Case("mla-kv-replicated", pins(tensor_parallel_size=2), pins(tensor_parallel_size=1), s.MLA, s.h100(2)),
    Case("gpus-unused", {}, {}, s.LLAMA, s.h100(2), s.h100()),
    Case("container-shm", pins(tensor_parallel_size=2), pins(), device=s.h100(2)),
    Case("data-parallel-share", pins(data_parallel_size=2), pins(), device=s.h100(2)),
    Case("pipeline-stages", pins(pipeline_parallel_size=2), pins(), device=s.h100(2)),
    Case("dtype-replaced", {"concurrency": 1}, {"concurrency": 1}, "Qwen/Qwen3-0.6B", s.t4(), s.gpu()),
    Case("kv-fp8-fragile-family", pins(kv_cache_dtype="fp8"), pins(), s.QWEN),
    Case("kv-fp8-uncalibrated", pins(kv_cache_dtype="fp8"), pins()),
    Case("kv-fp8-mla", pins(kv_cache_dtype="fp8"), pins(), s.MLA),
    Case("kv-fp8-long-context", {"prompt": 20_000, **pins(kv_cache_dtype="fp8")}, pins(kv_cache_dtype="fp8")),
    Case("kv-fp8-speed", pins(kv_cache_dtype="fp8"), pins(kv_cache_dtype="auto")),
    Case("block-waste", {"prompt": 50, "output": 20}, {"prompt": 2000}, s.HYBRID, s.h100(4)),
    Case(
        "sliding-as-full",
        pins(disable_hybrid_kv_cache_manager=True),
        pins(disable_hybrid_kv_cache_manager=False),
        s.SLIDING,
    ),
)
BY_HAND = {  # met below, with facts of their own
    *("tp-quant-group", "tp-fp8-block", "kv-fp8-e5m2-checkpoint", "gguf", "weights-estimated", "catalogue-partial"),
    *("utilization-over-free", "kv-dtype-from-checkpoint", "lora-adapter-rank"),
}


@pytest.mark.parametrize("case", [c for c in CASES if c.code not in BY_HAND], ids=lambda c: c.code)
def test_a_rule_applies_where_it_should(case: Case) -> None:
    made = s.plan(case.model, case.device, **case.work)
    assert case.code in s.codes(made)
    other = s.plan(case.other_model or case.model, case.other_device or case.device, **case.without)
    assert case.code not in s.codes(other)


def test_every_rule_has_a_case() -> None:
    met = {case.code for case in CASES} | BY_HAND
    assert {rule.code for rule in RULES} == met


def test_codes_are_words_with_hyphens_and_rules_say_where_they_come_from() -> None:
    assert [rule.code for rule in RULES if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.code)] == []
    assert [rule.code for rule in RULES if not rule.source] == []
    assert all(rule.severity == "error" for rule in RULES if rule.consequence is not None)


def test_every_code_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (\w+)", text, flags=re.MULTILINE))
    assert {rule.code: rule.severity for rule in RULES}.items() <= listed.items()


def test_messages_end_without_a_full_stop_or_are_sentences() -> None:
    made = s.plan(s.QWEN, s.gpu("T4", 14.56, 14.4, cap=(7, 5), count=3), engine={"tensor_parallel_size": 3})
    assert all(finding.message and "\n" not in finding.message for finding in made.findings)


def test_what_weighs_most_decides() -> None:
    assert gravest(["does_not_fit", "invalid"]) == "invalid"
    assert gravest([None]) is None


def with_facts(facts: ModelFacts, device: Gpu | None = None, **work: Any) -> Plan:
    return make_plan(
        s.workload(facts.id, **work),
        facts,
        device or s.h100(),
        load_constants(),
        kvadvise_version="0",
        inputs_sha256="x",
    )


def quantised(model: str, **config: Any) -> ModelFacts:
    facts = s.facts_of(model)
    return msgspec.structs.replace(facts, config={**facts.config, "quantization_config": config})


def test_quantisation_groups_stay_whole() -> None:
    facts = quantised("Qwen/Qwen2.5-72B-Instruct", quant_method="awq", bits=4, group_size=128)
    made = with_facts(facts, s.h100(8), weights_gib=5.2, engine={"tensor_parallel_size": 8})
    assert made.outcome == "invalid"
    assert "29568" in str(made.findings) or "3696" in s.messages(made, "tp-quant-group")
    assert "tp-quant-group" not in s.codes(with_facts(facts, s.h100(8), weights_gib=20.0))


def test_blocks_of_fp8_experts_warn() -> None:
    facts = quantised("Qwen/Qwen3-235B-A22B", quant_method="fp8", weight_block_size=[128, 128])
    made = with_facts(facts, s.h100(8), weights_gib=28.0, engine={"tensor_parallel_size": 8})
    assert "tp-fp8-block" in s.codes(made)
    assert made.outcome != "invalid"
    spread = {"tensor_parallel_size": 8, "enable_expert_parallel": True}
    assert "tp-fp8-block" not in s.codes(with_facts(facts, s.h100(8), weights_gib=28.0, engine=spread))


@pytest.mark.parametrize(
    ("method", "version", "refused"),
    [
        (None, "0.32.0", False),
        ("fp8", "0.32.0", True),
        ("compressed-tensors", "0.23.0", True),
        ("compressed-tensors", "0.24.0", False),
        ("awq", "0.23.0", True),
        ("awq", "0.32.0", False),
        ("modelopt", "0.32.0", True),
    ],
)
def test_e5m2_and_quantised_checkpoints(method: str | None, version: str, refused: bool) -> None:
    facts = quantised(s.LLAMA, quant_method=method) if method else s.facts_of(s.LLAMA)
    pinned = {"kv_cache_dtype": "fp8_e5m2", "vllm_version": version}
    made = with_facts(facts, s.rtx_3090(), weights_gib=5.0, engine=pinned)
    assert ("kv-fp8-e5m2-checkpoint" in s.codes(made)) is refused


def test_experts_over_several_small_cards_are_tight() -> None:
    cards = s.gpu("A10", 22.2, cap=(8, 6), count=4)
    made = s.plan("Qwen/Qwen3-30B-A3B", cards, weights_gib=14.25, engine={"tensor_parallel_size": 4}, concurrency=1)
    assert "room-tight" in s.codes(made)
    eager = {"tensor_parallel_size": 4, "enforce_eager": True}
    assert "room-tight" not in s.codes(
        s.plan("Qwen/Qwen3-30B-A3B", cards, weights_gib=14.25, engine=eager, concurrency=1)
    )


def test_a_calibrated_checkpoint_needs_no_warning() -> None:
    scheme = {"kv_cache_scheme": {"type": "float", "num_bits": 8, "dynamic": False}}
    facts = quantised(s.LLAMA, quant_method="compressed-tensors", **scheme)
    made = with_facts(facts, weights_gib=8.5)
    assert "kv-dtype-from-checkpoint" in s.codes(made)
    assert "kv-fp8-uncalibrated" not in s.codes(made)
    assert made.outcome == "fits"
    assert made.steps[3].before == made.steps[3].after == "auto"


def test_weights_from_gguf_and_from_nothing() -> None:
    facts = s.facts_of(s.LLAMA)
    assert facts.weights is not None
    gguf = msgspec.structs.replace(facts.weights, basis="gguf")
    assert "gguf" in s.codes(with_facts(msgspec.structs.replace(facts, weights=gguf), weights_gib=8.0))
    unseen = msgspec.structs.replace(facts, weights=None)
    assert "weights-estimated" in s.codes(with_facts(unseen))
    assert "weights-estimated" not in s.codes(with_facts(unseen, weights_gib=15.0))


def test_an_adapter_above_the_rank_is_refused() -> None:
    facts = msgspec.structs.replace(s.facts_of(s.QWEN3), adapters=(AdapterFact(name="tall", rank=64),))
    low, fits = ({"enable_lora": True, "max_lora_rank": rank} for rank in (32, 64))
    made = with_facts(facts, engine=low)
    assert made.outcome == "invalid"
    assert "max_lora_rank: 64" in s.messages(made, "lora-adapter-rank")
    assert "lora-adapter-rank" not in s.codes(with_facts(facts, engine=fits))
    wide = with_facts(facts, engine=fits | {"max_lora_rank": 256})
    assert "max_lora_rank: 64 is enough" in s.messages(wide, "lora-buffers")


def test_a_partial_config_is_told() -> None:
    facts = msgspec.structs.replace(s.facts_of(s.LLAMA), notes=("partial config: some keys are not shown",))
    assert "catalogue-partial" in s.codes(with_facts(facts))
    complete = msgspec.structs.replace(facts, notes=())
    assert "catalogue-partial" not in s.codes(with_facts(complete))


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("deepseek-ai/DeepSeek-R1", True),
        ("Qwen/QwQ-32B", True),
        ("Qwen/Qwen3-8B", True),
        ("openai/gpt-oss-20b", True),
        ("Qwen/Qwen3-Next-80B-A3B-Thinking", True),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", False),
        ("Qwen/Qwen2.5-7B-Instruct", False),
        ("meta-llama/Llama-3.1-8B-Instruct", False),
        ("Qwen/Qwen3-Embedding-8B", False),
    ],
)
def test_which_names_reason(name: str, reasons: bool) -> None:
    assert may_reason(name) is reasons
