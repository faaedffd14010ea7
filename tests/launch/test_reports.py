"""Every report of the field that shows a log or a symptom has a fixture here, or the server symptom that answers it."""

from __future__ import annotations

import pytest

from launch.server_symptoms import SERVER_CODES
from tests.launch.logs import HEALTHY
from tests.launch.test_diagnosis import ANSWERS

# By the report's own repository and number: what people met, and the logs that stand for it.
LOGS: dict[str, tuple[str, ...]] = {
    "vllm#10517 20k works, 29k fails": ("p01-v0-29000",),
    "vllm#29233, LMCache#1372, aiconfigurator#238 estimated maximum length": (
        *("p02-cpu-37376", "p02-lmcache-26032", "p02-aiconfigurator-16320"),
    ),
    "vllm#19407 the model's own maximum": ("p03-scout-3861424",),
    "vllm#7028 a lower share against no cache blocks": ("p05-t4-0.1",),
    "vllm#7721 the same OOM at every share": ("p06-same-oom-0.8", "p06-same-oom-0.5"),
    "worker-vllm#35, bonito#7 images with defaults of their own": (
        *("p08-worker-image", "p08-bonito-16816", "p08-other-arguments"),
    ),
    "vllm#3676, vllm#44286 longer than made for": ("p09-131072", "p09-illegal-access"),
    "cognithor#318, pytorch#175666 short by little": ("p10-wsl-5090", "p10-l4"),
    "vllm#20305 the busy GPU": ("p11-busy-gpu",),
    "vllm#55827, vllm#18974 started together": ("p12-neighbour", "p12-started-small", "p12-memory-given-back"),
    "vllm#41848 MIG": ("p17-mig-uuid",),
    "vllm#33920, vllm#29049, vllm#15105, vllm#24436 sampler warm-up": (
        *("p19-glm-256", "p19-lora-1024", "p19-0.8.0-1024", "p19-qwen3-256"),
    ),
    "vllm#57475, vllm#7553 capture": ("p20-5090-laptop", "p20-0.5.4-4090"),
    "vllm#53013, vllm#45178, vllm#49224 the graph estimate": (
        *("p21-graphs-118", "p21-overestimated", "p21-estimate-zero"),
    ),
    "vllm#17327 only eager starts": ("p22-only-eager",),
    "local-inference-lab/vllm#257 prompt_logprobs": ("p26-prompt-logprobs",),
    "vllm#47549, vllm#1157 Turing": ("p27-t4-fp8", "p27-t4-bf16"),
    "vllm#26431, vllm#45040 Ampere": ("p28-fp8e4nv-3090", "p28-e5m2-quantised"),
    "hf-mem#70 the hybrid manager is off": ("p34-connector",),
    "recipes#551, kaito#2319, vllm#55148 Mamba blocks": ("p37-856", "p37-614", "p37-161"),
    "vllm#54458 huge blocks": ("p39-block-7808",),
    "gpustack#2259, vllm#2652, vllm#52535, AdaptThink#1 heads": (
        *("p42-gemma3-tp3", "p42-52-heads-tp8", "p42-64-heads-tp3", "p42-28-heads-tp8"),
    ),
    "vllm#40291 NVFP4 is larger than its name": ("p47-nvfp4-5090",),
    "vllm#50925 Marlin": ("p48-marlin",),
    "vllm#12716, vllm#47851 the peak of loading": ("p50-scout-nvl", "p50-failed-to-load"),
    "vllm#18550, GLM-OCR#67 images": ("p52-vl-encoder", "p52-image-4641"),
    "vllm#15039, vllm#2847 LoRA": ("p53-lora-long", "p53-lora-rank"),
    "vllm#35191, vllm#16916 the host's memory": ("p56-host-kill", "cpu-killed"),
    "vllm#18115 V0's preemptions": ("p57-v0-preempted",),
    "vllm#25538 full with long prompts": ("p58-kv-full",),
    "vllm#27466 after hours": ("p59-fragmented",),
    "vllm#20409, llxprt-code#310 too long": ("p61-122946", "p61-202812"),
    "kserve#5062 the probe": ("p64-probe",),
    "vllm#35616, vllm#48031 600 s": ("p65-163-shards", "p65-empty-599s"),
    "vllm#55510 an orphan": ("p68-orphan",),
    "production-stack#276 shared memory": ("p70-shm",),
    "vllm#7514, vllm#34199 ports": ("p71-port-8000", "p71-vllm-port", "cpu-port", "cpu-vllm-port"),
    "vllm#9255, vllm#23684 offline and gated": ("p72-gated", "p72-offline", "cpu-missing-hub"),
    "unsloth-zoo#1210, kserve#6037 flags that went": ("p73-swap-space", "cpu-unknown-flag"),
    "vllm#43009 compiled while serving": ("p82-jit",),
}

# The same for what only a running server's figures show.
SYMPTOMS: dict[str, str] = {
    "vllm#42827 V1 preempts silently": "preemptions",
    "vllm#37307 thrash near full": "kv-thrash",
    "vllm#18826 the unbounded queue": "queue-unbounded",
    "vllm#49445 requests turned away": "admission-rejected",
    "vllm#39863 frozen behind /health": "engine-frozen",
    "vllm#23517 little memory after hours": "gpu-memory-thin",
    "vllm#35191 host memory that grows": "host-memory-grows",
    "vllm#23813 worse on long contexts": "quality-long-context",
    "vllm#52884 the second run measures the cache": "prefix-cache-warm",
    "vllm#39963 the client is the bottleneck": "client-limited",
    "fast alone and slow together": "alone-fast-together-slow",
    "memory free and throughput flat": "memory-free-throughput-flat",
}


@pytest.mark.parametrize("report", LOGS)
def test_a_reported_log_has_its_answer(report: str) -> None:
    assert [name for name in LOGS[report] if name not in ANSWERS] == []


@pytest.mark.parametrize("report", SYMPTOMS)
def test_a_reported_symptom_has_its_code(report: str) -> None:
    assert SYMPTOMS[report] in SERVER_CODES


def test_healthy_starts_of_every_generation_are_there() -> None:
    """That they give no finding is test_diagnosis.py's."""
    releases = {name.removeprefix("healthy-").split("-")[0] for name in HEALTHY}
    assert releases >= {
        "0.6",
        "0.8.5",
        "0.10.2",
        "0.11.0",
        "0.13.0",
        "0.16.0",
        "0.19.0",
        "0.22.1",
        "0.26.0",
        "0.29.0",
        "0.32.0",
    }
    assert {"healthy-0.32.0-cpu", "healthy-0.32.0-cpu-autofit", "healthy-0.32.0-cpu-debug"} <= set(HEALTHY)
