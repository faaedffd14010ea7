"""Which 8-bit KV cache dtype a model, GPU and vLLM version allow, or why none.

Field experience behind each refusal: below compute capability 8.0 nothing runs, 8.0 to 8.8 run e5m2 only
(vllm#26431) and from 0.24 nothing either (vllm#47549, v1/attention/backends/triton_attn.py), e5m2 is refused for
checkpoints that are fp8 themselves and, until vllm#45040, for every quantised one. What lay_out refuses beyond
that (a backend without the dtype) is found by trying.
"""

from __future__ import annotations

import msgspec

from advisor.gpu import Gpu
from advisor.kv.dtypes import is_quantized
from advisor.model.spec import ModelSpec
from advisor.versions import Version

NATIVE_FP8 = (8, 9)
OLDEST_E5M2 = (8, 0)
_E5M2_NEEDS_FP8 = (0, 24)  # from here the Triton kernels refuse e5m2 where they have no e4m3
_E5M2_BESIDE_QUANTISED = (0, 24)  # first release with vllm#45040; 0.23 still refuses every quantised checkpoint
_KEEPS_KV_SCALES = ("fp8", "fbgemm_fp8", "modelopt")  # methods with a KV cache part of their own
_AMD_FP8 = ("gfx94", "gfx95")


class KvChoice(msgspec.Struct, frozen=True):
    """A dtype to pass as kv_cache_dtype, or None with the reason."""

    dtype: str | None
    reason: str


def eight_bit_kv(model: ModelSpec, gpu: Gpu, version: Version, cache_dtype: str) -> KvChoice:
    """The 8-bit dtype to try for a cache that is now `cache_dtype`."""
    if is_quantized(cache_dtype):
        return KvChoice(None, f"the cache is {cache_dtype} already")
    if model.is_attention_free:
        return KvChoice(None, "the model keeps states, not keys and values")
    if gpu.is_cpu:
        return KvChoice(None, "on a CPU it needs AVX-512 or AMX, which is not known here")
    if gpu.vendor == "amd":
        if gpu.arch.lower().startswith(_AMD_FP8) or any(a in gpu.name.lower() for a in ("mi3",)):
            return KvChoice("fp8", f"{gpu.name} has 8-bit floats")
        return KvChoice(None, f"{gpu.name} is not known to have 8-bit floats")
    if gpu.compute_capability is None:
        return KvChoice(None, f"the compute capability of {gpu.name} is not known")
    if gpu.compute_capability >= NATIVE_FP8:
        return KvChoice("fp8", "compute capability 8.9 or newer keeps fp8 (e4m3)")
    return _before_ada(model, gpu.compute_capability, version)


def _before_ada(model: ModelSpec, capability: tuple[int, int], version: Version) -> KvChoice:
    cap = f"compute capability {capability[0]}.{capability[1]}"
    if capability < OLDEST_E5M2:
        return KvChoice(None, f"{cap} has no 8-bit float for the KV cache; 8.0 is the least (vllm#47549)")
    if not e5m2_runs(capability, version):
        return KvChoice(None, f"{cap} has no 8-bit float for the KV cache; vLLM {version} needs 8.9 (vllm#47549)")
    if model.uses_mla:
        return KvChoice(None, f"{cap} has no fp8 e4m3, and MLA backends keep no e5m2")
    refused = e5m2_refused(model, version)
    if refused:
        return KvChoice(None, f"{cap} has no fp8 e4m3 (vllm#26431), and {refused}")
    return KvChoice("fp8_e5m2", f"{cap} has no fp8 e4m3 (vllm#26431); fp8_e5m2 runs")


def e5m2_runs(capability: tuple[int, int], version: Version) -> bool:
    """Whether the kernels keep an fp8_e5m2 cache at this compute capability."""
    return capability >= NATIVE_FP8 or (capability >= OLDEST_E5M2 and version < _E5M2_NEEDS_FP8)


def e5m2_refused(model: ModelSpec, version: Version) -> str:
    """Why vLLM refuses fp8_e5m2 for this checkpoint; empty where it does not."""
    method, kv = model.quantization.method, model.quantization.kv
    if method is None:
        return ""
    refused = method.startswith(_KEEPS_KV_SCALES) or kv.dtype is not None or version < _E5M2_BESIDE_QUANTISED
    return f"fp8_e5m2 is refused for {method} checkpoints (vLLM layers/attention/attention.py)" if refused else ""
