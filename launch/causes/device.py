"""The device: absent, busy, too old for a dtype or kernel, named in a way that a release cannot read."""

from __future__ import annotations

import re

from launch.diagnosis_types import Advice, Rule, Seen, fixed


def _fp8_kv(seen: Seen) -> Advice:
    """Native fp8 needs 8.9; the 16-bit cache always runs."""
    asked = seen.case.flag("kv_cache_dtype")
    named = f"kv_cache_dtype {asked}" if isinstance(asked, str) and asked != "auto" else "an FP8 KV cache"
    return Advice(
        message=f"this GPU's kernels do not have {named}: native FP8 needs compute capability 8.9",
        remedy="set kv_cache_dtype to auto: the cache then holds half as many tokens as planned with FP8",
        change={"kv_cache_dtype": "auto"},
        signals=("the kernel's error",),
    )


def _weights_capability(seen: Seen) -> Advice:
    least, has = (_dotted(text) for text in (seen.match[2], seen.match[3]))
    return Advice(
        message=f"{seen.match[1]} weights need compute capability {least}, and this GPU has {has}",
        remedy="use another quantisation of the model (AWQ, GPTQ), or a newer GPU",
        signals=("both capabilities of the error",),
    )


def _dotted(capability: str) -> str:
    """vLLM prints 7.5 as 75."""
    return f"{capability[:-1]}.{capability[-1]}" if capability.isdigit() and len(capability) > 1 else capability


def _no_backend(seen: Seen) -> Advice | None:
    """vLLM lists why each backend was refused; the reason they share decides."""
    reasons, case = seen.match[2].lower(), seen.case
    ways: tuple[tuple[str, str, object], ...] = (
        ("kv_cache_dtype not supported", "kv_cache_dtype", "auto"),
        ("block_size not supported", "block_size", None),
        ("block size not supported", "block_size", None),
    )
    for reason, flag, value in ways:
        if reason in reasons and case.flag(flag) not in (None, "auto"):
            return Advice(
                code="kv-dtype-backend" if flag == "kv_cache_dtype" else "block-size",
                message=f"no attention backend of {seen.match[1]} takes {flag} {case.flag(flag)} with this model",
                remedy=f"set {flag} to {value}" if value else f"leave {flag} out",
                change={flag: value},
                signals=("the reasons listed per backend",),
            )
    return Advice(
        message=f"no attention backend of {seen.match[1]} serves this model: {seen.match[2][:160]}",
        remedy="take away the setting that the reasons name (attention_backend, dtype, block_size), or use a newer "
        "vLLM",
        confidence="medium",
        signals=("the reasons listed per backend",),
    )


RULES: tuple[Rule, ...] = (
    Rule(
        codes=("dtype-bf16-capability",),
        hint="bfloat16 is only supported",
        pattern=re.compile(r"Bfloat16 is only supported on (?:GPUs|XPUs?|devices?)[^.]{0,60}at least (\d\.\d)"),
        explain=fixed(
            "this GPU has no bfloat16: it needs compute capability {1}",
            "set dtype to half; watch for values beyond 65,504",
            change={"dtype": "half"},
        ),
        source="vLLM platforms/cuda.py: check_if_supports_dtype; vllm#1157",
        rank=6,
    ),
    Rule(
        codes=("kv-bf16-capability",),
        hint="bfloat16 kv cache is not supported",
        pattern=re.compile(r"bfloat16 KV cache is not supported"),
        explain=fixed(
            "this GPU has no bfloat16 for the KV cache",
            "set kv_cache_dtype to float16",
            change={"kv_cache_dtype": "float16"},
        ),
        source="vLLM v1/attention/backends/triton_attn.py",
        rank=6,
    ),
    Rule(
        codes=("kv-fp8-capability",),
        hint=("fp8 kv cache is not supported", "fp8e4nv not supported"),
        pattern=re.compile(
            r"FP8 KV cache is not supported by the Triton|type fp8e4nv not supported in this architecture"
        ),
        explain=_fp8_kv,
        source="vLLM v1/attention/backends/triton_attn.py; vllm#47549, vllm#26431",
        rank=6,
    ),
    Rule(
        codes=("kv-dtype-cpu",),
        hint="fp8 kv cache on cpu",
        pattern=re.compile(r"FP8 KV cache on CPU requires x86 with AVX-512 or AMX"),
        explain=fixed(
            "this CPU has neither AVX-512 nor AMX, which the FP8 KV cache needs",
            "set kv_cache_dtype to auto",
            change={"kv_cache_dtype": "auto"},
        ),
        source="vLLM v1/attention/backends/cpu_attn.py",
        rank=6,
    ),
    Rule(
        codes=("kv-fp8-e5m2-checkpoint",),
        hint="fp8_e5m2 kv",
        pattern=re.compile(r"fp8_e5m2 kv-?cache is not supported with fp8 checkpoints"),
        explain=fixed(
            "this vLLM refuses fp8_e5m2 for the KV cache of a quantised checkpoint",
            "set kv_cache_dtype to auto, or fp8 where the GPU has it",
            change={"kv_cache_dtype": "auto"},
        ),
        source="vLLM model_executor/layers/attention; vllm#39137, vllm#45040",
        rank=6,
    ),
    Rule(
        codes=("kv-dtype-mla",),
        hint="kv cache is not supported with mla",
        pattern=re.compile(r"(\w+) KV cache is not supported with MLA"),
        explain=fixed(
            "an MLA model has no {1} KV cache", "set kv_cache_dtype to auto or fp8", change={"kv_cache_dtype": "auto"}
        ),
        source="vLLM config/vllm.py",
        rank=6,
    ),
    Rule(
        codes=("quantization-capability",),
        hint="is not supported for the current gpu",
        pattern=re.compile(
            r"quantization method (\S+) is not supported for the current GPU\. Minimum capability: (\d+)\. Current "
            r"capability: (\S+?)\.?(?:\s|$)"
        ),
        explain=_weights_capability,
        source="vLLM config/vllm.py: _get_quantization_config",
        rank=6,
    ),
    Rule(
        codes=("quantization-dtype",),
        hint="is not supported for quantization method",
        pattern=re.compile(
            r"(\S+) is not supported for quantization method (\S+?)\. Supported dtypes: \[?([^\]]{0,120})"
        ),
        explain=fixed("{2} weights do not run in {1}", "set dtype to one of {3}"),
        source="vLLM config/vllm.py: _get_quantization_config",
        rank=6,
    ),
    Rule(
        codes=("attention-backend-none", "kv-dtype-backend", "block-size"),
        hint="no valid attention backend found",
        pattern=re.compile(r"No valid attention backend found for (\S+) with .*?Reasons: (.*)$"),
        explain=_no_backend,
        source="vLLM platforms/cuda.py: get_attn_backend_cls",
        rank=7,
    ),
    Rule(
        codes=("mig-slice",),
        hint="mig-",
        pattern=re.compile(r"invalid literal for int\(\) with base 10: '?(?:b')?(MIG-[\w-]*|GPU-[\w-]*)"),
        explain=fixed(
            "this release cannot read the slice's name {1} in CUDA_VISIBLE_DEVICES",
            "select the slice through the container runtime, or by index: CUDA_VISIBLE_DEVICES=0",
            environment={"CUDA_VISIBLE_DEVICES": "0"},
        ),
        source="vLLM platforms/cuda.py; vllm#41848, vllm#41776",
        hides=("architecture-inspection",),
        rank=4,
    ),
    Rule(
        codes=("gpu-absent",),
        hint=(
            "no cuda gpus",
            "failed to infer device type",
            "found no nvidia driver",
            "no nvidia driver",
            "libcuda.so",
        ),
        pattern=re.compile(
            r"No CUDA GPUs are available|Failed to infer device type|Found no NVIDIA driver|libcuda\.so\.1: cannot open"
        ),
        explain=fixed(
            "vLLM sees no GPU: {0}",
            "check the driver (nvidia-smi), the container's --gpus, and CUDA_VISIBLE_DEVICES",
        ),
        source="torch, vLLM platforms",
        rank=4,
    ),
    Rule(
        codes=("driver-too-old",),
        hint=("driver on your system is too old", "driver version is insufficient", "forward compatibility"),
        pattern=re.compile(
            r"NVIDIA driver on your system is too old|CUDA driver version is insufficient"
            r"|forward compatibility was attempted"
        ),
        explain=fixed(
            "the NVIDIA driver is older than this build's CUDA", "update the driver, or use an image for its CUDA"
        ),
        source="CUDA",
        rank=4,
    ),
    Rule(
        codes=("kernel-missing",),
        hint="no kernel image is available",
        pattern=re.compile(r"no kernel image is available for execution on the device"),
        explain=fixed(
            "this build has no kernels for this GPU's architecture", "use a vLLM built for this GPU (newer CUDA image)"
        ),
        source="CUDA",
        rank=6,
    ),
    Rule(
        codes=("gpu-busy",),
        hint="busy or unavailable",
        pattern=re.compile(r"CUDA-capable device\(s\) is/are busy or unavailable"),
        explain=fixed(
            "the GPU is held exclusively by another process, or in a state that needs a reset",
            "end the other process, or set its compute mode to default",
            retry=True,
        ),
        source="CUDA",
        rank=6,
    ),
    Rule(
        codes=("cuda-in-fork",),
        hint="in forked subprocess",
        pattern=re.compile(r"Cannot re-initialize CUDA in forked subprocess"),
        explain=fixed(
            "CUDA was used before the workers were forked",
            "set VLLM_WORKER_MULTIPROC_METHOD=spawn",
            environment={"VLLM_WORKER_MULTIPROC_METHOD": "spawn"},
        ),
        source="torch; vLLM envs.py",
        rank=6,
    ),
    Rule(
        codes=("compiler-missing",),
        hint=("failed to find c compiler", "python.h: no such file", "could not find nvcc"),
        pattern=re.compile(r"Failed to find C compiler|Python\.h: No such file|[Cc]ould not find nvcc"),
        explain=fixed(
            "a kernel has to be compiled, and this machine lacks what that takes: {0}",
            "install a C compiler and the Python headers (nvcc for FlashInfer), or use the official image",
        ),
        source="triton, FlashInfer",
        rank=12,
    ),
    Rule(
        codes=("illegal-memory-access",),
        hint="illegal memory access",
        pattern=re.compile(r"(?:CUDA|HIP) error: an illegal memory access was encountered|illegal memory access"),
        explain=fixed(
            "a kernel read or wrote outside its memory",
            "take back what is unusual: a length beyond the model's (VLLM_ALLOW_LONG_MAX_MODEL_LEN), an emulated "
            "dtype, graphs (enforce_eager tells them apart); then another vLLM release",
            confidence="low",
        ),
        source="CUDA; vllm#44286, vllm#49070",
        rank=30,
    ),
)
