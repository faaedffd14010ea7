"""Which attention backend vLLM picks, as far as the block size and refusals depend on it.

Source: vLLM 0.32 platforms/cuda.py (_get_backend_priorities), v1/attention/backends/* (supported kernel block sizes,
supported KV dtypes, capabilities), platforms/interface.py (_preferred_block_size_for_backends), platforms/cpu.py.
FlashInfer is taken as installed on NVIDIA GPUs of capability 10 and 12, where vLLM's images carry it; on older ones
nothing is promised that only FlashInfer would serve.
"""

from __future__ import annotations

from advisor.errors import EngineRefuses, NotUnderstood
from advisor.gpu import Gpu
from advisor.kv.backend_latent import latent, packed, sparse
from advisor.kv.dtypes import DS_MLA, FP8_DTYPES, NVFP4_DTYPES, PER_TOKEN_HEAD, TURBOQUANT, is_quantized
from advisor.kv.kernels import FP8_E4M3, HALVES, Ask, Backend, block_size_refused, first_that_serves
from advisor.kv_quantization import e5m2_runs
from advisor.model.spec import AttentionCache, ModelSpec
from advisor.versions import Version

_CPU_HEAD_SIZES = frozenset({32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512})
_CHECKS_KV_BF16 = (0, 24)
_SHARES_CONTEXT = (0, 11, 1)  # first release whose FlashAttention returns what decode context parallel needs
_PRIORITIES = "vLLM platforms/cuda.py: _get_backend_priorities"


def choose_backend(
    model: ModelSpec,
    gpu: Gpu,
    version: Version,
    cache_dtype: str,
    dtype: str,
    *,
    block_size: int | None = None,
    dcp: int = 1,
) -> Backend:
    """The backend of the model's attention layers; refuses what no backend of this GPU can do."""
    if not model.heeds_kv_cache_dtype and cache_dtype not in TURBOQUANT:
        cache_dtype = "auto"
    ask = Ask(
        model=model, gpu=gpu, version=version, cache_dtype=cache_dtype, dtype=dtype, block_size=block_size, dcp=dcp
    )
    if gpu.is_cpu:
        return _checked(ask, _cpu(model, version, cache_dtype))
    if gpu.vendor == "amd":
        return _checked(ask, Backend(name="TRITON_MLA" if model.uses_mla else "ROCM_ATTN"))
    if model.is_attention_free:
        return Backend(name="none", base=1)
    _check_dtype(ask)
    if model.packs_pages:
        return first_that_serves(ask, [packed(ask)], _PRIORITIES)
    if model.is_sparse_mla:
        return sparse(ask)
    return latent(ask) if model.uses_mla else _attention(ask)


def _checked(ask: Ask, backend: Backend) -> Backend:
    if ask.block_size is not None and not backend.takes(ask.block_size):
        raise block_size_refused(ask, [backend])
    return backend


def _check_dtype(ask: Ask) -> None:
    gpu, cap, cache_dtype = ask.gpu, ask.gpu.compute_capability, ask.cache_dtype
    if cap is None:
        return
    if cache_dtype == "bfloat16" and cap < (8, 0) and ask.version >= _CHECKS_KV_BF16:
        raise EngineRefuses(
            "kv-bf16-capability",
            f"{gpu.name} (compute capability {cap[0]}.{cap[1]}) has no bfloat16 for the KV cache; 8.0 is needed",
            hint="set kv_cache_dtype: float16 or auto",
            source="vLLM v1/attention/backends/triton_attn.py: TritonAttentionImpl",
        )
    e5m2_fits = cache_dtype == "fp8_e5m2" and e5m2_runs(cap, ask.version)
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


def _attention(ask: Ask) -> Backend:
    if ask.cache_dtype in DS_MLA:
        raise EngineRefuses(
            "kv-dtype-mla",
            f"{ask.cache_dtype} is a layout of sparse MLA models",
            hint="set kv_cache_dtype: auto or fp8",
        )
    if ask.cache_dtype in TURBOQUANT:
        return _turboquant(ask)
    candidates = [_two_sizes(ask)] if _differs(ask.model) else _candidates(ask)
    chosen = first_that_serves(ask, candidates, _PRIORITIES)
    if ask.model.uses_alibi and is_quantized(ask.cache_dtype) and chosen.name == "FLASH_ATTN":
        raise EngineRefuses(
            "kv-fp8-alibi",
            "models with ALiBi positions have no fp8 KV cache in FlashAttention",
            hint="set kv_cache_dtype: auto",
            source="vLLM v1/attention/backends/fa_utils.py: get_flash_attn_version",
        )
    return chosen


def _candidates(ask: Ask) -> list[Backend]:
    """The backends of this GPU in vLLM's order of preference."""
    flash, infer = _flash_attention(ask), _flashinfer(ask)
    found = [infer, flash] if ask.cap[0] == 10 else [flash, infer]
    triton = Backend(
        name="TRITON_ATTN",
        quantized=FP8_E4M3 | PER_TOKEN_HEAD | {"fp8_e5m2"},
        computes=HALVES | {"float32"},
        shards_context=False,
    )
    return [*(b for b in found if b is not None), triton]


def _turboquant(ask: Ask) -> Backend:
    """TurboQuant: full attention only; in models without states the outer layers stay in 16 bits.

    Source: vLLM 0.32 model_executor/layers/quantization/turboquant/config.py (get_boundary_skip_layers).
    """
    model, packs = ask.model, Backend(name="TURBOQUANT", quantized=frozenset(TURBOQUANT), shards_context=False)
    caches = [c for layer in model.layers for c in layer.caches if isinstance(c, AttentionCache)]
    plain = not model.has_sinks and not _differs(model) and all(cache.kind == "full" for cache in caches)
    if not plain or (model.is_hybrid and all(len(layer.caches) != 1 for layer in model.layers)):
        raise EngineRefuses(
            "kv-dtype-turboquant",
            f"{ask.cache_dtype} is for layers of full attention, without sinks, windows or states beside them",
            hint="set kv_cache_dtype: auto or fp8",
            source="vLLM v1/attention/backends/turboquant_attn.py",
        )
    if not model.is_hybrid:
        raise NotUnderstood(
            f"{ask.cache_dtype} keeps the first and last layers in 16 bits, a layout that kvadvise does not make",
            where="engine.kv_cache_dtype",
            hint="set kv_cache_dtype: auto or fp8",
        )
    return first_that_serves(ask, [packs], _PRIORITIES)


def _differs(model: ModelSpec) -> bool:
    """Whether keys and values have sizes of their own (MiMo-V2)."""
    caches = [c for layer in model.layers for c in layer.caches if isinstance(c, AttentionCache)]
    return any(cache.head_size != cache.head_size_v for cache in caches)


def _two_sizes(ask: Ask) -> Backend:
    """The kernels for keys and values of different sizes: FlashAttention's on capability 9, else Triton's."""
    flash = ask.cap[0] == 9
    return Backend(
        name="FLASH_ATTN_DIFFKV" if flash else "TRITON_ATTN_DIFFKV", quantized=FP8_E4M3, shards_context=flash
    )


def _flash_attention(ask: Ask) -> Backend | None:
    cap, model = ask.cap, ask.model
    if cap < (8, 0) or (model.has_sinks and cap[0] not in (9, 10)):
        return None
    quantized = FP8_E4M3 if cap[0] in (9, 10) else frozenset()
    shards = ask.version >= _SHARES_CONTEXT
    if cap[0] == 9 and ask.version >= (0, 30) and ask.cache_dtype in FP8_E4M3 and _has_head(model, 512):
        # FA4 reads fp8 pages of 64 tokens where a head is 512 wide
        name = "TRITON_FLASH_ATTN" if model.is_mm_prefix else "FLASH_ATTN"
        return Backend(name=name, base=64, default_block=64, quantized=quantized, shards_context=shards)
    return Backend(name="FLASH_ATTN", quantized=quantized, shards_context=shards)


def _flashinfer(ask: Ask) -> Backend | None:
    if ask.cap[0] not in (10, 12) or (ask.cap[0] == 12 and ask.model.has_sinks):
        return None
    return Backend(
        name="FLASHINFER",
        sizes=(16, 32, 64),
        quantized=FP8_E4M3 | NVFP4_DTYPES | {"fp8_e5m2"},
        shards_context=ask.version >= _SHARES_CONTEXT,
    )


def _has_head(model: ModelSpec, size: int) -> bool:
    return any(isinstance(c, AttentionCache) and c.head_size == size for layer in model.layers for c in layer.caches)


def _cpu(model: ModelSpec, version: Version, cache_dtype: str) -> Backend:
    _check_cpu_layers(model)
    if model.uses_mla:
        if is_quantized(cache_dtype):
            raise EngineRefuses(
                "kv-dtype-cpu-mla",
                "the CPU's MLA backend keeps no quantised KV cache",
                hint="set kv_cache_dtype: auto",
            )
        return Backend(name="CPU_MLA", sizes=(16,), forced_multiple=16)
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


def _check_cpu_layers(model: ModelSpec) -> None:
    if model.uses_mla and model.is_hybrid:
        raise EngineRefuses(
            "cpu-latent-states",
            "the CPU backend does not serve MLA layers among recurrent states",
            hint="choose a GPU or another model",
            source="vLLM platforms/cpu.py; config/vllm.py: validate_mamba_block_size",
        )
    if model.expert_layers is not None and model.architecture.startswith("NemotronH"):
        raise EngineRefuses(
            "cpu-experts",
            f"the CPU backend has no kernel for the experts of {model.architecture}",
            hint="choose a GPU or another model",
            source="vLLM model_executor/layers/fused_moe: is_act_and_mul",
        )
