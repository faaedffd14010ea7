"""Which attention backend vLLM picks, as far as the block size and refusals depend on it.

Source: vLLM 0.32 platforms/cuda.py (_get_backend_priorities), v1/attention/backends/* (supported kernel block sizes,
supported KV dtypes, capabilities), platforms/interface.py (_preferred_block_size_for_backends), platforms/cpu.py.
FlashInfer is taken as installed on NVIDIA GPUs of capability 10 and 12, where vLLM's images carry it.
"""

from __future__ import annotations

import msgspec

from advisor.errors import EngineRefuses
from advisor.gpu import Gpu
from advisor.kv.dtypes import DS_MLA, FP8_DTYPES, NVFP4_DTYPES, PER_TOKEN_HEAD, TURBOQUANT, is_quantized
from advisor.model.spec import AttentionCache, ModelSpec
from advisor.versions import Version

_CPU_HEAD_SIZES = frozenset({32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512})


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """A backend's name and the block sizes its kernels take: whole multiples of `base`, or exactly `sizes`."""

    name: str
    base: int
    sizes: tuple[int, ...] = ()
    default_block: int = 16

    def takes(self, block_size: int) -> bool:
        """Whether a block of so many tokens can be served."""
        if self.sizes:
            return any(block_size % size == 0 for size in self.sizes)
        return block_size % self.base == 0


def choose_backend(model: ModelSpec, gpu: Gpu, version: Version, cache_dtype: str, dtype: str) -> Backend:
    """The backend of the model's attention layers; refuses KV dtypes that this GPU cannot do."""
    if gpu.is_cpu:
        return _cpu(model, version, cache_dtype)
    if gpu.vendor == "amd":
        return Backend(name="TRITON_MLA" if model.uses_mla else "ROCM_ATTN", base=16)
    _check_dtype(gpu, cache_dtype)
    cap = gpu.compute_capability or (0, 0)
    if model.packs_pages:
        return _packed(cap, version, cache_dtype)
    if model.is_sparse_mla:
        return _sparse_mla(cap, cache_dtype)
    if model.uses_mla:
        return _mla(cap, version, cache_dtype)
    return _attention(model, cap, version, cache_dtype, dtype)


def _check_dtype(gpu: Gpu, cache_dtype: str) -> None:
    cap = gpu.compute_capability
    if cap is None or not is_quantized(cache_dtype):
        return
    e5m2_fits = cache_dtype == "fp8_e5m2" and cap >= (8, 0)
    if cache_dtype in FP8_DTYPES | {"fp8_per_token_head"} and cap < (8, 9) and not e5m2_fits:
        other = "bfloat16" if cap >= (8, 0) else "float16"
        raise EngineRefuses(
            "kv-fp8-capability",
            f"{gpu.name} (compute capability {cap[0]}.{cap[1]}) has no 8-bit float for the KV cache; 8.9 is needed",
            hint=f"set kv_cache_dtype: {other}",
            source="vLLM v1/attention/backends/triton_attn.py: TritonAttentionImpl",
        )
    if cache_dtype in NVFP4_DTYPES | {"nvfp4_ds_mla"} and cap[0] not in (10, 12):
        raise EngineRefuses(
            "kv-nvfp4-capability",
            f"{gpu.name} (compute capability {cap[0]}.{cap[1]}) cannot keep a 4-bit float KV cache",
            hint="set kv_cache_dtype: fp8 or auto",
            source="vLLM v1/attention/backends/flashinfer.py",
        )


def _attention(model: ModelSpec, cap: tuple[int, int], version: Version, cache_dtype: str, dtype: str) -> Backend:
    if cache_dtype in TURBOQUANT:
        return Backend(name="TURBOQUANT", base=16)
    if cache_dtype in DS_MLA:
        raise EngineRefuses(
            "kv-dtype-mla",
            f"{cache_dtype} is a layout of sparse MLA models",
            hint="set kv_cache_dtype: auto or fp8",
        )
    if model.uses_alibi and cache_dtype in ("fp8", "fp8_e4m3"):
        raise EngineRefuses(
            "kv-fp8-alibi",
            "models with ALiBi positions have no fp8 KV cache in FlashAttention",
            hint="set kv_cache_dtype: auto",
            source="vLLM v1/attention/backends/fa_utils.py: get_flash_attn_version",
        )
    if cache_dtype in PER_TOKEN_HEAD or cache_dtype == "fp8_e5m2" or cap < (8, 0) or dtype == "float32":
        return Backend(name="TRITON_ATTN", base=16)
    if cap[0] == 9 and version >= (0, 30) and cache_dtype in ("fp8", "fp8_e4m3") and _has_head(model, 512):
        # FA4 reads fp8 pages of 64 tokens where a head is 512 wide
        name = "TRITON_FLASH_ATTN" if model.is_mm_prefix else "FLASH_ATTN"
        return Backend(name=name, base=64, default_block=64)
    if is_quantized(cache_dtype) and cap < (9, 0):
        return Backend(name="TRITON_ATTN", base=16)
    if cap[0] == 10:
        return Backend(name="FLASHINFER", base=16, sizes=(16, 32, 64))
    if model.has_sinks and cap < (9, 0):
        return Backend(name="TRITON_ATTN", base=16)
    return Backend(name="FLASH_ATTN", base=16)


def _has_head(model: ModelSpec, size: int) -> bool:
    return any(isinstance(c, AttentionCache) and c.head_size == size for layer in model.layers for c in layer.caches)


def _mla(cap: tuple[int, int], version: Version, cache_dtype: str) -> Backend:
    if cache_dtype in NVFP4_DTYPES:
        raise EngineRefuses(
            "kv-nvfp4-mla", "an nvfp4 KV cache is not supported with MLA", hint="set kv_cache_dtype: fp8"
        )
    if cache_dtype in PER_TOKEN_HEAD or cache_dtype in TURBOQUANT or cache_dtype in ("fp8_e5m2", "fp8_inc", *DS_MLA):
        raise EngineRefuses(
            "kv-dtype-mla-backend",
            f"no MLA backend keeps its cache in {cache_dtype}",
            hint="set kv_cache_dtype: auto or fp8",
            source="vLLM v1/attention/backends/mla",
        )
    if cap[0] == 9:
        if is_quantized(cache_dtype):
            return Backend(name="FLASHMLA", base=64, sizes=(64,), default_block=64)
        default = 16 if version >= (0, 18) else 64
        return Backend(name="FLASH_ATTN_MLA", base=16, default_block=default)
    if cap[0] == 10:
        if version < (0, 18):
            return Backend(name="CUTLASS_MLA", base=128, sizes=(128,), default_block=128)
        return Backend(name="FLASHINFER_MLA", base=32, sizes=(32, 64), default_block=32)
    return Backend(name="TRITON_MLA", base=16)


def _packed(cap: tuple[int, int], version: Version, cache_dtype: str) -> Backend:
    if version < (0, 29):
        raise EngineRefuses(
            "packed-layout-unknown",
            f"kvadvise does not know how vLLM {version} lays out DeepSeek-V4",
            hint="plan with vLLM 0.29 or newer",
        )
    if cache_dtype != "fp8_ds_mla" or cap[0] not in (9, 10):
        raise EngineRefuses(
            "packed-layout-dtype",
            "DeepSeek-V4 keeps its cache in the fp8_ds_mla layout, on compute capability 9 or 10",
            hint="set kv_cache_dtype: auto",
            source="vLLM models/deepseek_v4/attention.py",
        )
    return Backend(name="FLASHMLA_SPARSE_DSV4", base=256, default_block=256)


def _sparse_mla(cap: tuple[int, int], cache_dtype: str) -> Backend:
    if cap[0] < 9:
        raise EngineRefuses(
            "sparse-mla-capability",
            "sparse MLA models need compute capability 9.0 or newer",
            hint="choose an H100-class GPU or newer",
            source="vLLM v1/attention/backends/mla: supports_compute_capability",
        )
    name = "FLASHMLA_SPARSE" if is_quantized(cache_dtype) else "FLASH_ATTN_MLA_SPARSE"
    return Backend(name=name, base=64, default_block=64)


def _cpu(model: ModelSpec, version: Version, cache_dtype: str) -> Backend:
    if model.uses_mla:
        if is_quantized(cache_dtype):
            raise EngineRefuses(
                "kv-dtype-cpu-mla",
                "the CPU's MLA backend keeps no quantised KV cache",
                hint="set kv_cache_dtype: auto",
            )
        return Backend(name="CPU_MLA", base=16, sizes=(16,), default_block=16)
    if is_quantized(cache_dtype) and cache_dtype not in ("fp8", "fp8_e4m3", "fp8_e5m2"):
        raise EngineRefuses(
            "kv-dtype-cpu",
            f"the CPU backend does not keep its KV cache in {cache_dtype}",
            hint="set kv_cache_dtype: auto",
        )
    if model.head_size and model.head_size not in _CPU_HEAD_SIZES and version >= (0, 10):
        raise EngineRefuses(
            "cpu-head-size",
            f"the CPU backend has no kernel for heads of {model.head_size}",
            source="vLLM v1/attention/backends/cpu_attn.py",
        )
    return Backend(name="CPU_ATTN", base=32, default_block=128)
