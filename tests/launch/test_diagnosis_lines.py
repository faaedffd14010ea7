"""One line for every cause that has no whole log of its own, and that no code is left untried."""

from __future__ import annotations

from typing import Any

import pytest

from launch.diagnosis import diagnose, read_case, without_secrets
from launch.diagnosis_rules import all_codes
from launch.diagnosis_types import Context, ExitState
from tests.launch.logs import log
from tests.launch.test_diagnosis import ANSWERS, findings

GIB = 1024**3
READY = "INFO:     Application startup complete."
PROFILING = "INFO 01-01 00:00:00 [a.py:1] Model loading took 14.99 GiB memory and 4.5 seconds"
PER_GPU = "Externally held weights on device cuda:0 (40.1/79.19 GiB) exceed the desired GPU memory utilization"

LINES: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    "architecture-inspection": (
        "ValueError: Model architectures ['Qwen3ForCausalLM'] failed to be inspected. Please check the logs.",
        "architecture-inspection",
        None,
    ),
    "an architecture that went": (
        "ValueError: Model architectures ['AquilaForCausalLM'] are not supported for now. Supported",
        "architecture-removed",
        None,
    ),
    "no backend for any reason of a setting": (
        "ValueError: No valid attention backend found for cuda with X(head_size=96). Reasons: {FLASH_ATTN: [head_size "
        "not supported]}.",
        "attention-backend-none",
        None,
    ),
    "an argument that is too new": (
        "vllm: error: unrecognized arguments: --watermark 0.05",
        "argument-too-new",
        {"watermark": None},
    ),
    "an argument nobody knows": (
        "vllm: error: unrecognized arguments: --max-modle-len 4096",
        "unknown-argument",
        {"max_modle_len": None},
    ),
    "a switch that went": (
        "vllm: error: unrecognized arguments: --no-use-v2-block-manager",
        "argument-removed",
        {"use_v2_block_manager": None},
    ),
    "something left over": ("vllm: error: unrecognized arguments: second-model", "unknown-argument", None),
    "a value of the wrong kind": (
        "vllm: error: argument --max-num-seqs: invalid int value: 'many'",
        "argument-value",
        None,
    ),
    "a value that is missing": (
        "vllm: error: argument --max-model-len: expected one argument",
        "argument-incomplete",
        None,
    ),
    "two arguments with one beginning": (
        "vllm: error: ambiguous option: --max-num could match --max-num-seqs, --max-num-batched-tokens",
        "argument-incomplete",
        None,
    ),
    "a batch below the length": (
        "Value error, max_num_batched_tokens (2048) is smaller than max_model_len (8192). This effectively limits",
        "batched-tokens-below-length",
        {"enable_chunked_prefill": True},
    ),
    "a batch below the drafts": (
        "ValueError: VllmConfig does not have enough slots to schedule a token and support the speculative decoding "
        "settings. Got max_num_batched_tokens=64 and scheduled_token_delta=128.",
        "batched-tokens-speculation",
        {"max_num_batched_tokens": None},
    ),
    "a broken compile cache": (
        "RuntimeError: vLLM failed to compile the model. The most likely reason for this is that a previous "
        "compilation failed",
        "compile-cache",
        None,
    ),
    "no compiler": ("RuntimeError: Failed to find C compiler. Please specify via CC", "compiler-missing", None),
    "a fork after CUDA": (
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing",
        "cuda-in-fork",
        None,
    ),
    "a full disk": ("OSError: [Errno 28] No space left on device", "disk-full", None),
    "full shared memory": (
        "OSError: [Errno 28] No space left on device: '/psm_a3ba4061'",
        "container-shm",
        None,
    ),
    "a bus error": ("Fatal Python error: Bus error", "container-shm", None),
    "an old driver": (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
        "driver-too-old",
        None,
    ),
    "no python with vLLM": ("ModuleNotFoundError: No module named 'vllm'", "engine-missing", None),
    "no GPU": ("RuntimeError: No CUDA GPUs are available", "gpu-absent", None),
    "a GPU that is held": (
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "gpu-busy",
        None,
    ),
    "no such GPU": ("torch.AcceleratorError: CUDA error: invalid device ordinal", "gpu-count", None),
    "a build for other GPUs": (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "kernel-missing",
        None,
    ),
    "no bfloat16 for the cache": (
        "ValueError: bfloat16 KV cache is not supported on Tesla T4 (compute capability 7.5); bfloat16 requires SM80+.",
        "kv-bf16-capability",
        {"kv_cache_dtype": "float16"},
    ),
    "no FP8 cache on this CPU": (
        "ValueError: FP8 KV cache on CPU requires x86 with AVX-512 or AMX.",
        "kv-dtype-cpu",
        {"kv_cache_dtype": "auto"},
    ),
    "no FP4 cache for MLA": (
        "Value error, nvfp4 KV cache is not supported with MLA (Multi-head Latent Attention) backends.",
        "kv-dtype-mla",
        {"kv_cache_dtype": "auto"},
    ),
    "the host's allocator": (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)",
        "oom-host",
        None,
    ),
    "the host's killer in the log": (
        "[ 812.1] Out of memory: Killed process 4711 (VLLM::EngineCor) total-vm:98304kB",
        "killed-by-host",
        None,
    ),
    "no peer access": (
        "RuntimeError: CUDA error: peer access is not supported between these two devices",
        "peer-access",
        {"disable_custom_all_reduce": True},
    ),
    "a pooler's warm-up": (
        "RuntimeError: CUDA out of memory occurred when warming up pooler (task='embed') with 256 dummy requests. "
        "Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.",
        "sampler-warmup",
        {"max_num_seqs": 64},
    ),
    "a port of the system": (
        "PermissionError: [Errno 13] error while attempting to bind on address ('0.0.0.0', 80): permission denied",
        "port-forbidden",
        None,
    ),
    "a dtype the weights do not run in": (
        "ValueError: torch.bfloat16 is not supported for quantization method awq. Supported dtypes: [torch.float16]",
        "quantization-dtype",
        None,
    ),
    "two quantisations": (
        "ValueError: Quantization method specified in the model config (gptq) does not match the quantization method "
        "specified in the `quantization` argument (awq).",
        "quantization-mismatch",
        {"quantization": None},
    ),
    "no tokenizer": (
        "OSError: Can't load tokenizer for 'model.gguf'. If you were trying to load it",
        "tokenizer-missing",
        None,
    ),
    "a width per rank": (
        "ValueError: Weight input_size_per_partition=1792 is not divisible by group_size=128. This happens when",
        "tp-quant-group",
        None,
    ),
    "weights held elsewhere": (f"ValueError: {PER_GPU} (0.4, 31.68 GiB). Increase it", "weights-outside-budget", None),
    "a broken pickle": ("_pickle.UnpicklingError: invalid load key, 'v'.", "weights-corrupt", None),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_gives_its_cause(name: str) -> None:
    line, code, change = LINES[name]
    version = {"argument-too-new": "0.20.0", "architecture-removed": "0.32.0"}.get(code)
    found = diagnose([PROFILING, line], ExitState(code=1), Context(version=version))
    assert [f.code for f in found] == [code]
    assert found[0].change == change


def test_a_dimension_that_does_not_divide() -> None:
    context = Context(flags={"tensor_parallel_size": 8})
    found = diagnose(["AssertionError: 18948 is not divisible by 8"], ExitState(code=1), context)
    assert [(f.code, f.change) for f in found] == [("tp-width", {"tensor_parallel_size": 4})]
    assert diagnose(["AssertionError: 18948 is not divisible by 8"], ExitState(code=1))[0].code == "unexplained"


@pytest.mark.parametrize(
    ("flags", "change"),
    [
        ({"num_gpu_blocks_override": 90000}, {"num_gpu_blocks_override": None}),
        ({"kv_cache_memory_bytes": 20 * GIB}, {"kv_cache_memory_bytes": 18 * GIB}),
        ({"gpu_memory_utilization": 0.95}, {"gpu_memory_utilization": 0.94}),
    ],
)
def test_a_pool_that_cannot_be_allocated(flags: dict[str, Any], change: dict[str, Any]) -> None:
    lines = [
        PROFILING,
        "INFO 01-01 00:00:00 [kv_cache_utils.py:1] GPU KV cache size: 100,000 tokens",
        "ERROR 01-01 00:00:01 [core.py:1] Traceback (most recent call last):",
        'ERROR 01-01 00:00:01 [core.py:1]   File "/a.py", line 1, in _allocate_kv_cache_tensors',
        "ERROR 01-01 00:00:01 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. "
        "GPU 0 has a total capacity of 23.64 GiB of which 402.00 MiB is free.",
    ]
    found = diagnose(lines, ExitState(code=1), Context(flags=flags))
    assert [(f.code, f.change) for f in found] == [("oom-kv-cache", change)]


SILENT = (
    "(EngineCore_DP0 pid=271) ERROR 06-01 10:12:00 [multiproc_executor.py:135] Worker proc VllmWorker-1 died "
    "unexpectedly, shutting down executor."
)


def test_a_worker_that_ends_without_a_word_was_killed() -> None:
    """Releases before the exit code was printed."""
    [found] = diagnose([PROFILING, SILENT], ExitState(code=1))
    assert (found.code, found.confidence) == ("killed-by-host", "low")
    assert any("exit code" in gap for gap in found.not_seen)


def test_a_worker_that_said_why_was_not() -> None:
    said = "(Worker_TP1 pid=300) ERROR 06-01 10:11:59 [a.py:1] ValueError: something nobody knows"
    assert [f.code for f in diagnose([PROFILING, said, SILENT], ExitState(code=1))] == ["unexplained"]


def test_deep_gemm_s_warm_up_is_no_matter_of_the_share() -> None:
    """vllm#29360: kernels are tried out after loading, with the largest batch."""
    lines = [
        PROFILING,
        "INFO 01-01 00:00:00 [deep_gemm_warmup.py:1] DeepGEMM warmup:  10%|#",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 960.00 MiB. GPU 0 has a total capacity of 79.19 "
        "GiB of which 712.00 MiB is free.",
    ]
    [found] = diagnose(lines, ExitState(code=1))
    assert found.code == "oom-profiling"
    assert "max_num_batched_tokens" in found.remedy
    assert "gpu_memory_utilization" not in found.remedy


def test_an_architecture_that_a_mig_uuid_hides() -> None:
    """vllm#41848: the text blames the architecture, the environment tells the cause."""
    line = "ValueError: Model architectures ['Qwen3ForCausalLM'] failed to be inspected. Please check the logs."
    context = Context(environment={"CUDA_VISIBLE_DEVICES": "MIG-6d2bb01e-3a0c-5a5c-9f0e-8f4f3d1c2b7a"})
    assert [f.code for f in diagnose([line], ExitState(code=1), context)] == ["mig-slice"]


def test_a_graph_estimate_tells_the_card_s_size() -> None:
    """0.36 GiB of graphs make 0.0152 of the share (gpustack/runner#251): the parser has read both right."""
    total = read_case(log("healthy-0.22.1")).total_bytes
    assert total is not None
    assert total / GIB == pytest.approx(23.7, abs=0.3)


def test_every_finding_says_what_it_used() -> None:
    found = [f for name, answer in ANSWERS.items() for f in findings(name, answer)]
    assert [f.code for f in found if not f.signals] == []


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("args: {'api_key': ['sk-1234'], 'seed': 3}", "args: {'api_key': ***, 'seed': 3}"),
        ("unrecognized arguments: --foo --api-key sk-1234 --bar", "unrecognized arguments: --foo --api-key *** --bar"),
        ("hf_token='hf_abcdefghijklmnop', x=1", "hf_token=***, x=1"),
        ("with hf_abcdefghijklmnop", "with hf_***"),
        ("Authorization: Bearer sk-abcdefghijkl", "Authorization: Bearer ***"),
        ("api_key=None, seed=3", "api_key=None, seed=3"),
        ("hf_overrides={'a': 1}, hf_config_path=None", "hf_overrides={'a': 1}, hf_config_path=None"),
    ],
)
def test_a_key_is_not_in_the_evidence(said: str, shown: str) -> None:
    assert without_secrets(said) == shown


def test_an_argument_error_does_not_quote_the_key() -> None:
    line = "vllm serve: error: unrecognized arguments: --swap-space 4 --api-key sk-1234"
    assert all("sk-1234" not in f.evidence for f in diagnose([line], ExitState(code=2), Context(version="0.32.0")))


def test_a_stop_from_outside_while_serving() -> None:
    found = diagnose([READY], ExitState(code=-15))
    assert [(f.code, f.retry) for f in found] == [("stopped", True)]


def test_every_code_is_met_by_a_log_or_a_line() -> None:
    met = {finding.code for name, answer in ANSWERS.items() for finding in findings(name, answer)}
    met |= {code for _, code, _ in LINES.values()}
    elsewhere = {  # test_diagnosis.py: exit states; this module: whole cases
        *("engine-died", "illegal-instruction", "killed-by-signal", "stopped", "tp-width", "oom-kv-cache", "hang"),
    }
    assert set(all_codes()) - met - elsewhere == set()


@pytest.mark.parametrize(
    ("device", "change"), [("cpu", {"kv_cache_memory_bytes": 1 << 29}), ("cuda", None)], ids=["cpu", "gpu"]
)
def test_on_the_cpu_a_smaller_pool_helps_also_before_there_is_one(device: str, change: dict[str, Any] | None) -> None:
    config = f"Initializing a V1 LLM engine (v0.32.0) with config: model='m', device_config={device}, seed=0"
    lines = [f"(EngineCore pid=2) INFO 01-01 00:00:00 [core.py:1] {config}"]
    [found] = diagnose(lines, ExitState(code=-9), Context(flags={"kv_cache_memory_bytes": 1 << 30}))
    assert (found.code, found.change) == ("killed-by-host", change)
