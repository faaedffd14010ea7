"""Every log shape of the reports, and every real failing start, with its code and the change that helps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launch.causes.ended import phase_words
from launch.diagnosis import diagnose, read_case
from launch.diagnosis_rules import RULES, STATE_RULES, all_codes
from launch.diagnosis_types import Context, Diagnosis, ExitState, Holder
from tests.launch.logs import HEALTHY, NAMES, log

GIB = 1024**3
NO_GRAPH_ESTIMATE: dict[str, str | None] = {"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The first finding that a log must give; `change` and `environment` exactly, `says` in message and remedy."""

    code: str
    change: dict[str, Any] | None = None
    environment: dict[str, str | None] | None = None
    retry: bool = False
    severity: str = "error"
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    evidence: str = ""
    also: tuple[str, ...] = ()
    exit: ExitState = ExitState(code=1)
    context: Context = Context()


STARTED = ExitState()


def pool(length: int, **more: Any) -> Answer:
    return Answer(code="kv-pool-too-small", change={"max_model_len": length}, **more)


def tp(ranks: int, **more: Any) -> Answer:
    return Answer(code="tp-heads", change={"tensor_parallel_size": ranks}, **more)


def share(value: float, code: str, **more: Any) -> Answer:
    return Answer(code=code, change={"gpu_memory_utilization": value}, **more)


def seqs(value: int, code: str, **more: Any) -> Answer:
    return Answer(code=code, change={"max_num_seqs": value}, **more)


ANSWERS: dict[str, Answer] = {
    # the KV pool (P01 to P09)
    "p01-v0-29000": pool(23648, says=("29000",), evidence="stored in KV cache (23648)"),
    "p02-cpu-37376": pool(37376, says=("4.38 GiB", "4.00 GiB")),
    "p02-lmcache-26032": pool(26032, says=("4.50 GiB", "3.58 GiB")),
    "p02-aiconfigurator-16320": pool(16320, says=("3.67 GiB", "1.46 GiB")),
    "p03-scout-3861424": pool(3861424, says=("240.00 GiB",)),
    "p08-worker-image": pool(29568),
    "p08-bonito-16816": pool(16816),
    "pool-5080-35600": pool(35600),
    "pool-hetero-pp-34736": pool(34736),
    "pool-mla-810208": pool(810208),
    "pool-10-mib-short": pool(99776, says=("4.26 GiB", "4.25 GiB")),
    "pool-no-estimate-0.8.2": pool(82112, says=("4.43 GiB", "3.48 GiB")),  # 116,160 x 3.48/4.43 less a tenth
    "pool-l4-131k": pool(105648),
    "restarted-twice": pool(26032, never=("port",)),
    "cpu-pool": pool(3968, says=("kv_cache_memory_bytes 4194304", "kv_cache_memory_bytes to 28311552")),
    # nothing left (P05, P12, P21)
    "p05-t4-0.1": share(
        0.41,  # P05: refuse below 0.27
        "kv-no-memory",
        context=Context(total_bytes=round(14.6 * GIB), weights_bytes=round(3.8814 * GIB)),
        says=("lowering it leaves still less",),
    ),
    "nvfp4-wsl-minus-3.31": share(0.84, "kv-no-memory", says=("-3.31 GiB", "0.7")),
    "a800-0.4-shared": Answer(code="kv-no-memory", says=("raise gpu_memory_utilization from 0.4", "start again alone")),
    "p12-neighbour": Answer(
        code="neighbour-loading",
        retry=True,
        context=Context(others_grew_bytes=6 * GIB),
        says=("-3.21 GiB", "6.00 GiB", "start again alone"),
        never=("raise gpu_memory_utilization", "set gpu_memory_utilization"),
    ),
    "p12-started-small": Answer(
        code="neighbour-loading",
        retry=True,
        severity="warning",
        exit=STARTED,
        context=Context(others_grew_bytes=3 * GIB, planned_kv_bytes=round(4.72 * GIB)),
        says=("1.84 GiB", "4.72 GiB"),
    ),
    "p12-memory-given-back": Answer(code="neighbour-changed", retry=True, says=("18.91", "21.40")),
    "p21-graphs-118": Answer(
        code="graph-estimate-fault",
        change={"gpu_memory_utilization": 0.85},
        environment=NO_GRAPH_ESTIMATE,
        says=("118.65 GiB",),
    ),
    "p21-overestimated": Answer(
        code="graph-estimate-fault", severity="warning", environment=NO_GRAPH_ESTIMATE, exit=STARTED, says=("12.69",)
    ),
    # free memory at the start (P10, P11, P68)
    "p10-wsl-5090": share(0.93, "utilization-over-free", says=("30.12 GiB of 31.84 GiB", "do not raise it")),
    "p10-l4": share(0.88, "utilization-over-free", says=("19.77 GiB of 22.05 GiB",)),
    "p10-5080-reap": share(0.9, "utilization-over-free"),
    "p11-busy-gpu": Answer(
        code="utilization-over-free",
        environment={"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        context=Context(all_free_bytes=(2 * GIB, 23 * GIB, 23 * GIB, 23 * GIB)),
        says=("GPU 1", "23.00 GiB"),
    ),
    "p68-orphan": Answer(
        code="engine-on-gpu",
        context=Context(others=(Holder(4711, "VLLM::EngineCor", 73 * GIB),)),
        says=("pid 4711", "73.00 GiB", "orphan"),
    ),
    # Mamba (P37, P39)
    "p37-856": seqs(684, "mamba-blocks", says=("1024", "856")),
    "p37-614": seqs(491, "mamba-blocks"),
    "p37-161": seqs(32, "mamba-blocks", context=Context(target_concurrency=24)),
    "p39-block-7808": Answer(
        code="block-waste",
        severity="note",
        exit=STARTED,
        context=Context(p95_request_tokens=300),
        says=("7808", "300", "4%"),
    ),
    # sampler warm-up (P19)
    "p19-glm-256": seqs(64, "sampler-warmup", says=("256", "0.30 GiB wanted", "1216 KiB a row")),
    "p19-lora-1024": seqs(64, "sampler-warmup", context=Context(target_concurrency=40), says=("1.47 GiB wanted",)),
    "p19-0.8.0-1024": seqs(256, "sampler-warmup", says=("1.74 GiB wanted", "1.02 GiB free")),
    "p19-qwen3-256": seqs(64, "sampler-warmup"),
    "sampler-gpt-oss-tp2": seqs(256, "sampler-warmup", says=("0.77 GiB wanted",)),
    # loading and profiling: no share cures it (P06, P47, P50, P52)
    "p47-nvfp4-5090": Answer(code="oom-loading", never=("gpu_memory_utilization",), says=("31.36 GiB",)),
    "p50-scout-nvl": Answer(
        code="oom-loading",
        change={"tensor_parallel_size": 4},
        context=Context(allowed_tp=(1, 2, 4, 8), gpu_count=4),
        never=("gpu_memory_utilization",),
        says=("1.25 GiB wanted, 1.18 GiB free of 93.02 GiB",),
    ),
    "load-other-process": Answer(code="oom-loading", says=("process 4711 with 4.10 GiB",)),
    "p50-failed-to-load": Answer(code="oom-loading", never=("gpu_memory_utilization",)),
    "p06-same-oom-0.8": Answer(code="oom-profiling", never=("gpu_memory_utilization",), says=("16.00 GiB wanted",)),
    "p06-same-oom-0.5": Answer(
        code="oom-profiling",
        never=("gpu_memory_utilization",),
        context=Context(earlier=(tuple(log("p06-same-oom-0.8")),)),
    ),
    "p52-vl-encoder": Answer(code="oom-encoder", says=("limit_mm_per_prompt", "max_pixels")),
    "hip-profile-mi325x": Answer(code="oom-profiling", change={"max_num_batched_tokens": 4096}, says=("13.54 GiB",)),
    # graph capture (P20, P22)
    "p20-5090-laptop": share(0.97, "oom-graphs", says=("0.13 GiB wanted, 0.12 GiB free of 22.36 GiB",)),
    "p20-0.5.4-4090": share(0.93, "oom-graphs"),
    "graphs-qwen3-32b-0.8.5": share(0.88, "oom-graphs"),
    "graphs-qwen3.8-5090": Answer(
        code="oom-graphs",
        change={"max_cudagraph_capture_size": 256},
        context=Context(earlier=(tuple(log("graphs-qwen3.8-5090")),)),
        says=("as with another gpu_memory_utilization before", "eager mode"),
    ),
    "p22-only-eager": Answer(code="oom-graphs", change={"enforce_eager": True}),
    "p21-estimate-zero": share(0.87, "oom-graphs", also=("graph-estimate-zero",)),
    # under load (P26, P53, P59)
    "p59-fragmented": Answer(
        code="oom-fragmented",
        change={"gpu_memory_utilization": 0.93},
        environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        says=("2.22 GiB",),
    ),
    "p26-prompt-logprobs": share(0.94, "oom-prompt-logprobs", says=("0.30 GiB wanted, 0.21 GiB free",)),
    "runtime-glm5": share(0.86, "oom-running", says=("9.89 GiB wanted, 5.56 GiB free",)),
    "p53-lora-long": share(0.93, "oom-running", says=("LoRA",)),
    # arguments (P09, P61, P73)
    "p09-131072": Answer(
        code="max-model-len-beyond-model", change={"max_model_len": 8192}, never=("VLLM_ALLOW_LONG_MAX_MODEL_LEN",)
    ),
    "p09-illegal-access": Answer(code="illegal-memory-access", says=("VLLM_ALLOW_LONG_MAX_MODEL_LEN",)),
    "p73-swap-space": Answer(code="argument-removed", change={"swap_space": None}, also=("argument-removed",)),
    "p61-122946": Answer(
        code="request-too-long",
        change={"max_model_len": 122960},
        severity="note",
        exit=STARTED,
        context=Context(model_max_len=131072),
        says=("122946", "16384", "not at fault"),
    ),
    "p61-202812": Answer(
        code="request-too-long",
        severity="note",
        exit=STARTED,
        context=Context(model_max_len=202752),
        says=("202812", "202752"),
    ),
    "p53-lora-rank": Answer(
        code="lora-rank", change={"max_lora_rank": 64}, severity="warning", exit=STARTED, says=("64", "16")
    ),
    "p52-image-4641": Answer(
        code="image-over-budget",
        change={"max_num_batched_tokens": 4864},
        severity="warning",
        exit=STARTED,
        says=("4641", "3721"),
    ),
    "swap-too-large": Answer(code="swap-space", change={"swap_space": 0}, says=("16.00", "15.84")),
    # ranks (P42, P70)
    "p42-28-heads-tp8": tp(4, context=Context(allowed_tp=(1, 2, 4)), says=("28", "8")),
    "p42-52-heads-tp8": tp(4),
    "p42-64-heads-tp3": tp(2, says=("pipeline",)),
    "p42-gemma3-tp3": tp(2),
    "cpu-tp3": tp(2),
    "gpu-count-4-of-2": Answer(code="gpu-count", change={"tensor_parallel_size": 2}, says=("4 GPUs", "2")),
    "tp-fp8-block": Answer(
        code="tp-fp8-block",
        change={"enable_expert_parallel": True},
        context=Context(is_moe=True),
        says=("192", "128"),
    ),
    "p70-shm": Answer(
        code="container-shm", says=("--ipc=host", "--shm-size", "not the network"), never=("NCCL_DEBUG",)
    ),
    "nccl-system-error": Answer(code="nccl", says=("NCCL_DEBUG",)),
    # devices and dtypes (P17, P27, P28, P48)
    "p27-t4-fp8": Answer(code="kv-fp8-capability", change={"kv_cache_dtype": "auto"}, says=("8.9",)),
    "p27-t4-bf16": Answer(code="dtype-bf16-capability", change={"dtype": "half"}),
    "p28-fp8e4nv-3090": Answer(code="kv-fp8-capability", change={"kv_cache_dtype": "auto"}),
    "p28-e5m2-quantised": Answer(code="kv-fp8-e5m2-checkpoint", change={"kv_cache_dtype": "auto"}),
    "quantization-capability": Answer(code="quantization-capability", says=("7.5", "7.0")),
    "attention-backend-none": Answer(code="kv-dtype-backend", change={"kv_cache_dtype": "auto"}, says=("nvfp4",)),
    "p17-mig-uuid": Answer(
        code="mig-slice", environment={"CUDA_VISIBLE_DEVICES": "0"}, says=("MIG-6d2bb01e", "container runtime")
    ),
    "p48-marlin": Answer(code="nvfp4-fallback", severity="warning", exit=STARTED),
    "p34-connector": Answer(code="sliding-as-full", severity="warning", exit=STARTED, says=("connector",)),
    # the model (P51, P72)
    "architecture-too-new": Answer(code="architecture-too-new", says=("GptOssForCausalLM", "0.10.1")),
    "p72-gated": Answer(code="model-gated", says=("HF_TOKEN",)),
    "p72-offline": Answer(code="hub-unreachable", retry=True),
    "weights-mismatch": Answer(code="weights-mismatch"),
    "remote-code": Answer(code="remote-code", says=("decide",)),
    # the process (P56, P64, P65, P67, P71)
    "p65-empty-599s": Answer(
        code="ready-timeout",
        environment={"VLLM_ENGINE_READY_TIMEOUT_S": "1800"},
        retry=True,
        exit=ExitState(code=1, seconds=599.4),
        says=("nothing crashed",),
    ),
    "p65-163-shards": Answer(
        code="ready-timeout", environment={"VLLM_ENGINE_READY_TIMEOUT_S": "1800"}, retry=True, says=("600 s",)
    ),
    "p56-host-kill": Answer(
        code="killed-by-host",
        context=Context(memory_limit_bytes=64 * GIB, weights_bytes=27 * GIB),
        says=("64.00 GiB", "27.00 GiB"),
    ),
    "p64-probe": Answer(code="stopped-while-loading", retry=True, exit=ExitState(code=143), says=("failureThreshold",)),
    "p71-port-8000": Answer(code="port-in-use", says=("8000",)),
    "p71-vllm-port": Answer(code="port-is-uri", environment={"VLLM_PORT": None}, says=("enableServiceLinks",)),
    "entry-point-broken": Answer(code="entry-point-broken", says=("python -m",)),
    "rpc-timeout": Answer(
        code="execute-timeout",
        environment={"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "900"},
        retry=True,
        also=("hang",),
        says=("sample_tokens",),
    ),
    "unexplained-cut": Answer(code="unexplained", says=("profiling",)),
    "unexplained-notimplemented": Answer(code="unexplained", evidence="Unsupported head dimensions"),
    # a server that runs (P08, P57, P58, P82)
    "p57-v0-preempted": Answer(code="preemptions", severity="warning", exit=STARTED, says=("101",)),
    "p58-kv-full": Answer(code="kv-full", severity="warning", exit=STARTED, says=("3 statistics lines",)),
    "p82-jit": Answer(code="jit-during-inference", severity="note", exit=STARTED, says=("_bgmv_shrink_kernel",)),
    "p08-other-arguments": Answer(
        code="plan-not-applied",
        severity="warning",
        exit=STARTED,
        context=Context(flags={"max_model_len": 16384, "gpu_memory_utilization": 0.9}),
        says=("max_model_len 8192 instead of 16384", "gpu_memory_utilization 0.98 instead of 0.9"),
    ),
    # real failing starts of 0.32 on the CPU
    "cpu-too-long": Answer(code="max-model-len-beyond-model", change={"max_model_len": 8192}, says=("16384",)),
    "cpu-unknown-flag": Answer(
        code="argument-removed", change={"swap_space": None}, exit=ExitState(code=2), context=Context(version="0.32.0")
    ),
    "cpu-kv-dtype": Answer(
        code="kv-dtype-unknown", change={"kv_cache_dtype": "auto"}, exit=ExitState(code=2), says=("fp7",)
    ),
    "cpu-missing-model": Answer(code="model-missing", says=("/models/nothere",)),
    "cpu-missing-hub": Answer(code="hub-offline", says=("HF_HUB_OFFLINE",)),
    "cpu-corrupt": Answer(code="weights-corrupt", says=("incomplete metadata",)),
    "cpu-no-weights": Answer(code="weights-missing", says=("/models/noweights",)),
    "cpu-unknown-architecture": Answer(code="architecture-unknown", says=("FooBarForCausalLM",)),
    "cpu-unknown-type": Answer(code="architecture-unknown", says=("foobar",)),
    "cpu-utilization": share(0.68, "cpu-memory-utilization", says=("8.62 of 11.09 GiB",)),
    "cpu-block-16": Answer(code="block-size", change={"block_size": None}, says=("16", "MultipleOf(32)")),
    "cpu-port": Answer(code="port-in-use", says=("18432",)),
    "cpu-vllm-port": Answer(code="port-is-uri", environment={"VLLM_PORT": None}),
    "cpu-huge-pool": Answer(
        code="cpu-kv-memory", change={"kv_cache_memory_bytes": 7614758912}, says=("200.00 GiB", "7.88 GiB")
    ),
    "cpu-killed": Answer(
        code="killed-by-host",
        change={"kv_cache_memory_bytes": 11037310976},  # half of 20.56 GiB, in whole MiB
        says=("setting up the KV cache", "11037310976"),
    ),
    "cpu-tp2-numa": Answer(code="cpu-numa-nodes", change={"tensor_parallel_size": 1}, says=("2 ranks",)),
    "cpu-batched": seqs(64, "batched-tokens-below-seqs", says=("64", "128")),
}


def findings(name: str, answer: Answer) -> list[Diagnosis]:
    return diagnose(log(name), answer.exit, answer.context)


def test_every_log_has_an_answer() -> None:
    assert set(ANSWERS) == set(NAMES) - set(HEALTHY)
    assert len(NAMES) >= 55


@pytest.mark.parametrize("name", ANSWERS)
def test_a_failing_start_is_named_with_the_change_that_helps(name: str) -> None:
    answer = ANSWERS[name]
    found = findings(name, answer)
    first = found[0]
    assert (first.code, first.severity) == (answer.code, answer.severity)
    assert first.change == answer.change
    assert first.environment == answer.environment
    assert first.retry is answer.retry
    assert [f.code for f in found[1:]] == list(answer.also)
    text = f"{first.message} | {first.remedy}"
    assert [part for part in answer.says if part not in text] == []
    assert [part for part in answer.never if part in text] == []
    assert answer.evidence in first.evidence


@pytest.mark.parametrize("name", ANSWERS)
def test_the_evidence_is_a_line_of_the_log(name: str) -> None:
    lines = log(name)
    for finding in findings(name, ANSWERS[name]):
        assert finding.source or finding.code in ("unexplained", "engine-died")
        if finding.line is not None:
            assert finding.evidence[:80] in lines[finding.line - 1]


@pytest.mark.parametrize("name", ANSWERS)
def test_a_finding_is_one_sentence_and_its_remedy(name: str) -> None:
    for finding in findings(name, ANSWERS[name]):
        assert finding.message
        assert finding.remedy
        assert not finding.message.endswith(".")
        assert "  " not in finding.message
        assert "{" not in finding.message.replace("{}", "")
        assert len(finding.message) < 420


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("state", [ExitState(), ExitState(code=0), ExitState(code=-15, asked=True)], ids=str)
def test_a_healthy_start_gives_no_finding(name: str, state: ExitState) -> None:
    assert diagnose(log(name), state) == []


def test_the_same_sizes_before_are_a_signal() -> None:
    answer = ANSWERS["p06-same-oom-0.5"]
    assert "an earlier attempt failed with the same sizes" in findings("p06-same-oom-0.5", answer)[0].signals


def test_deterministic_errors_are_not_retried() -> None:
    may = {
        *("neighbour-loading", "neighbour-changed", "hub-unreachable", "ready-timeout", "stopped-while-loading"),
        *("execute-timeout", "engine-died"),
    }
    retried = {f.code for name, answer in ANSWERS.items() for f in findings(name, answer) if f.retry}
    assert retried <= may


@pytest.mark.parametrize(
    ("name", "flag", "failed"),
    [
        ("p37-856", "max_num_seqs", 856),
        ("p37-614", "max_num_seqs", 614),
        ("p19-glm-256", "max_num_seqs", 256),
        ("p19-lora-1024", "max_num_seqs", 1024),
        ("hip-profile-mi325x", "max_num_batched_tokens", 8192),
        ("cpu-huge-pool", "kv_cache_memory_bytes", 7.88 * GIB),
        ("cpu-utilization", "gpu_memory_utilization", 8.62 / 11.09),
    ],
)
def test_a_tenth_is_kept_from_a_limit_that_failed(name: str, flag: str, failed: float) -> None:
    """P24; max_model_len is another matter, because vLLM's own estimate is exact."""
    assert (findings(name, ANSWERS[name])[0].change or {})[flag] <= 0.9 * failed


@pytest.mark.parametrize(("name", "failed"), [("p10-wsl-5090", 30.12 / 31.84), ("p10-l4", 19.77 / 22.05)])
def test_a_step_is_kept_from_what_was_free(name: str, failed: float) -> None:
    assert (findings(name, ANSWERS[name])[0].change or {})["gpu_memory_utilization"] <= failed - 0.01


@pytest.mark.parametrize("seconds", [None, 12.0, 400.0, 900.0])
def test_an_empty_list_of_processes_is_no_timeout_elsewhere(seconds: float | None) -> None:
    found = diagnose(log("p65-empty-599s"), ExitState(code=1, seconds=seconds))
    assert [f.code for f in found] == ["unexplained"]


def test_a_cause_above_an_empty_list_of_processes_wins_near_the_timeout_too() -> None:
    found = diagnose(log("cpu-vllm-port"), ExitState(code=1, seconds=600.0))
    assert found[0].code == "port-is-uri"


def test_the_ready_timeout_follows_the_one_that_was_set() -> None:
    context = Context(environment={"VLLM_ENGINE_READY_TIMEOUT_S": "1200"})
    found = diagnose(log("p65-empty-599s"), ExitState(code=1, seconds=1199.0), context)
    assert found[0].environment == {"VLLM_ENGINE_READY_TIMEOUT_S": "3600"}


@pytest.mark.parametrize(
    ("code", "finding"),
    [
        (-9, "killed-by-host"),
        (137, "killed-by-host"),
        (-7, "container-shm"),
        (-4, "illegal-instruction"),
        (132, "illegal-instruction"),
        (-11, "killed-by-signal"),
        (-15, "stopped-while-loading"),
        (127, "engine-missing"),
        (1, "unexplained"),
    ],
)
def test_an_exit_status_says_what_the_log_does_not(code: int, finding: str) -> None:
    lines = ["Loading safetensors checkpoint shards:  58% Completed | 18/31 [01:58<01:22,  6.40s/it]"]
    assert [f.code for f in diagnose(lines, ExitState(code=code))] == [finding]
    assert diagnose(lines, ExitState(code=code, asked=True)) == []


def test_a_killed_process_with_out_of_memory_of_the_gpu_is_the_gpus() -> None:
    found = diagnose(log("p20-5090-laptop"), ExitState(code=-9))
    assert found[0].code == "oom-graphs"


def test_a_stop_that_was_asked_for_is_no_finding() -> None:
    lines = [*log("healthy-0.32.0-cpu"), "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."]
    assert diagnose(lines) == []


def test_an_engine_that_died_under_load_says_so() -> None:
    lines = [*log("healthy-0.8.5"), "ERROR 04-25 11:00:00 [core.py:1] EngineCore encountered a fatal error."]
    found = diagnose(lines)
    assert [(f.code, f.retry) for f in found] == [("engine-died", True)]


def test_an_empty_log_of_a_failed_start_is_said() -> None:
    found = diagnose([], ExitState(code=1))
    assert [(f.code, f.evidence) for f in found] == [("unexplained", "the log is empty")]
    assert diagnose([]) == []


def test_a_long_request_that_the_load_needs_asks_for_more_room() -> None:
    context = Context(total_bytes=24 * GIB, longest_request_tokens=30000, flags={"gpu_memory_utilization": 0.85})
    found = diagnose(log("p02-lmcache-26032"), ExitState(code=1), context)
    assert found[0].change == {"gpu_memory_utilization": 0.89}
    assert "30000 tokens and only 26032 fit" in found[0].message


def test_a_load_that_fits_nowhere_gets_no_change() -> None:
    context = Context(total_bytes=24 * GIB, longest_request_tokens=30000, flags={"gpu_memory_utilization": 0.95})
    found = diagnose(log("p02-lmcache-26032"), ExitState(code=1), context)
    assert found[0].change is None
    assert "more GPUs" in found[0].remedy


def test_a_traceback_s_source_text_is_no_error() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/opt/vllm/engine.py", line 10, in start',
        '    raise ValueError("No available memory for the cache blocks.")',
        "KeyError: 'something else'",
    ]
    assert [f.code for f in diagnose(lines, ExitState(code=1))] == ["unexplained"]


def test_a_rule_s_hint_stands_in_what_it_matches() -> None:
    for rule in RULES:
        hints = (rule.hint,) if isinstance(rule.hint, str) else rule.hint
        assert hints
        assert all(hint and hint == hint.lower() for hint in hints)
        assert rule.source
        assert rule.codes


def test_phases_have_words() -> None:
    assert phase_words(read_case(log("p64-probe"))) == "loading weights"


SHARED = {
    *("kv-pool-too-small", "utilization-over-free", "mamba-blocks", "sampler-warmup", "max-model-len-beyond-model"),
    *("unknown-argument", "argument-removed", "argument-too-new", "argument-value", "kv-dtype-unknown", "tp-heads"),
    *("tp-fp8-block", "tp-quant-group", "gpu-count", "container-shm", "dtype-bf16-capability", "kv-fp8-capability"),
    *("kv-fp8-e5m2-checkpoint", "kv-dtype-mla", "kv-dtype-cpu", "quantization-capability", "nvfp4-fallback"),
    *("mig-slice", "block-size", "block-waste", "sliding-as-full", "batched-tokens-below-seqs", "architecture-too-new"),
    *("batched-tokens-below-length", "architecture-removed"),
}


def test_what_a_plan_finds_too_has_the_plan_s_code() -> None:
    advisor = Path(__file__).resolve().parents[2] / "advisor"
    source = "".join(path.read_text(encoding="utf-8") for path in advisor.rglob("*.py"))
    assert set(all_codes()) >= SHARED
    assert [code for code in sorted(SHARED) if f'"{code}"' not in source] == []


def test_codes_are_stable_words() -> None:
    codes = all_codes()
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", code) for code in codes)
    assert len(codes) == len(set(codes)) >= 70
    assert {rule.severity for rule in STATE_RULES} <= {"error", "warning", "note"}
