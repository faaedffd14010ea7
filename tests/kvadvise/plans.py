"""Plans made by hand for the printers, so that a page does not change when a sum does."""

from __future__ import annotations

import msgspec

from advisor.estimate import estimated, exact, measured
from advisor.plan_types import (
    Alternative,
    Change,
    Concurrency,
    Finding,
    Kv,
    KvGroup,
    Memory,
    Plan,
    Step,
    Subject,
)
from advisor.units import MIB

FLAGS = {
    "max_model_len": 8192,
    "gpu_memory_utilization": 0.92,
    "max_num_seqs": 64,
    "max_num_batched_tokens": 2048,
    "kv_cache_dtype": "auto",
    "block_size": 16,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
}


def argv(model: str, flags: dict[str, object]) -> tuple[str, ...]:
    words = [word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return ("vllm", "serve", model, *words)


def held(target: int = 20, at_p95: int = 27, promised: int = 21, replicas: int = 1) -> Concurrency:
    return Concurrency(
        target=target,
        at_p95=at_p95,
        promised=promised,
        bound_by="kv",
        replicas=replicas,
        at_p95_high=at_p95 + 3,
        blocks_per_request=206,
        shared_blocks=62,
    )


MEMORY = Memory(
    total_bytes=measured(24_084 * MIB, 24_084 * MIB, 24_217 * MIB),
    budget_bytes=measured(22_157 * MIB, 22_157 * MIB, 22_280 * MIB),
    weights_bytes=exact(14_540 * MIB),
    activation_bytes=estimated(1_150 * MIB, 980 * MIB, 1_420 * MIB),
    non_torch_bytes=estimated(230 * MIB, 150 * MIB, 420 * MIB),
    cuda_graph_bytes=estimated(540 * MIB, 400 * MIB, 700 * MIB),
    cuda_graphs_in_budget=True,
    kv_cache_bytes=estimated(5_697 * MIB, 5_077 * MIB, 6_210 * MIB),
    outside_budget_bytes=estimated(60 * MIB, 0, 120 * MIB),
)

KV = Kv(
    block_size=16,
    num_blocks=6_510,
    num_blocks_low=5_802,
    num_blocks_high=7_097,
    bytes_per_block=917_504,
    bytes_per_token=57_344,
    groups=(
        KvGroup(kind="FullAttentionSpec", layers=28, block_size=16, page_size_bytes=32_768, blocks_per_request=512),
    ),
    capacity_tokens=104_160,
    max_concurrency=12.71,
    bytes_per_request=469_762_048,
    estimated_max_model_len=104_144,
    needed_bytes=4_800_000_000,
    granted_bytes=5_973_671_936,
    attention_backend="FLASH_ATTN",
)

STEPS = (
    Step(
        priority=1,
        parameter="max_model_len",
        before=32_768,
        after=8_192,
        reason="The longest request is 7,168 + 1,024 tokens; a longer limit would only make the start check harder.",
        binding="kv",
        concurrency_at_p95_before=25,
        concurrency_at_p95_after=25,
        starts_before=True,
        starts_after=True,
    ),
    Step(
        priority=2,
        parameter="gpu_memory_utilization",
        before=0.9,
        after=0.92,
        reason="Every further percent of the card is about 260 blocks.",
        binding="kv",
        concurrency_at_p95_before=25,
        concurrency_at_p95_after=27,
        starts_before=True,
        starts_after=True,
    ),
    Step(
        priority=3,
        parameter="max_num_seqs",
        before=256,
        after=64,
        reason="More sequences than the pool holds would only be preempted.",
        binding="kv",
        concurrency_at_p95_before=27,
        concurrency_at_p95_after=27,
        starts_before=True,
        starts_after=True,
        also={"max_num_batched_tokens": Change(8_192, 2_048)},
    ),
    Step(
        priority=4,
        parameter="kv_cache_dtype",
        before="auto",
        after="auto",
        reason="Not needed: the target is met.",
        binding="none",
        concurrency_at_p95_before=27,
        concurrency_at_p95_after=27,
        starts_before=True,
        starts_after=True,
    ),
)

FITS = Plan(
    kvadvise_version="0.1.0",
    inputs_sha256="9f2c5e0b" * 8,
    outcome="fits",
    flags=FLAGS,
    argv=argv("Qwen/Qwen2.5-7B-Instruct", dict(FLAGS)),
    steps=STEPS,
    memory=MEMORY,
    kv=KV,
    concurrency=held(),
    starts=True,
    findings=(
        Finding(
            code="prompts-near-limit",
            severity="warning",
            message="The longest prompt leaves 1,024 tokens for the answer; a longer one is refused with HTTP 400.",
            remedy="Keep workload.prompt_tokens.max true to the traffic.",
            source="vLLM 0.32 entrypoints/serve",
        ),
        Finding(
            code="kv-dtype-follows-model",
            severity="note",
            message="kv_cache_dtype auto is bfloat16 here.",
            remedy="",
            source="vLLM 0.32 config/cache.py",
        ),
    ),
    alternatives=(
        Alternative(
            kind="tensor_parallel",
            description="Two GPUs, each with half of the weights",
            outcome="fits",
            starts=True,
            model="Qwen/Qwen2.5-7B-Instruct",
            gpu="RTX 4090",
            gpus=2,
            flags={**FLAGS, "tensor_parallel_size": 2, "max_num_seqs": 128},
            concurrency=held(at_p95=103, promised=82),
        ),
    ),
    assumptions=("vLLM 0.32.0", "Nothing else uses the GPU."),
    subject=Subject(
        model="Qwen/Qwen2.5-7B-Instruct",
        revision=None,
        resolved_from="catalogue",
        architecture="Qwen2ForCausalLM",
        gpu="RTX 4090",
        gpu_count=1,
        vllm_version="0.32.0",
    ),
    workload={
        "workload": {
            "prompt_tokens": {"p50": 1200, "p95": 3000, "max": 7168},
            "output_tokens": {"p50": 250, "p95": 900, "max": 1024},
            "concurrency": 20,
            "chat_template_tokens": 0,
        },
        "policy": {"kv_cache_quantization": "ask", "headroom": 0.8},
        "engine": {},
    },
)

DOES_NOT_FIT = msgspec.structs.replace(
    FITS,
    outcome="does_not_fit",
    starts=None,
    concurrency=held(target=64),
    memory=msgspec.structs.replace(MEMORY, cuda_graphs_in_budget=False, stage=1),
    findings=(
        Finding(
            code="target-not-met",
            severity="error",
            message="64 requests are wanted, 21 can be promised.",
            remedy="Take two GPUs, or a quantised checkpoint.",
            source="",
        ),
        *FITS.findings,
    ),
)

FITS_WITH_LOSS = msgspec.structs.replace(
    FITS,
    outcome="fits_with_loss",
    flags={**FLAGS, "kv_cache_dtype": "fp8", "enable_prefix_caching": False, "enforce_eager": True},
    concurrency=held(target=40, at_p95=54, promised=43, replicas=2),
)

INVALID = Plan(
    kvadvise_version="0.1.0",
    inputs_sha256="0" * 64,
    outcome="invalid",
    starts=False,
    findings=(
        Finding(
            code="workload-invalid",
            severity="error",
            message="bad.yaml:4: workload.prompt_tokens.p95: falls below p50 (1200)",
            remedy="percentiles do not fall",
            source="",
        ),
        Finding(
            code="workload-invalid",
            severity="error",
            message="bad.yaml:9: engine.max_model_length: unknown key",
            remedy="did you mean max_model_len?",
            source="",
        ),
    ),
)

NOT_UNDERSTOOD = Plan(
    kvadvise_version="0.1.0",
    inputs_sha256="1" * 64,
    outcome="not_understood",
    findings=(
        Finding(
            code="model-not-understood",
            severity="error",
            message="config.json: architecture FancyForCausalLM is not known",
            remedy="No number is made up for it.",
            source="",
        ),
    ),
    subject=Subject(
        model="org/fancy",
        revision=None,
        resolved_from="directory",
        architecture="FancyForCausalLM",
        gpu="H100 80GB",
        gpu_count=2,
        vllm_version="0.32.0",
    ),
)

ALL = {
    "fits": FITS,
    "fits_with_loss": FITS_WITH_LOSS,
    "does_not_fit": DOES_NOT_FIT,
    "invalid": INVALID,
    "not_understood": NOT_UNDERSTOOD,
}
