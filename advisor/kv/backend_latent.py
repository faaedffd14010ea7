"""The backends of MLA models: plain, sparse (with an indexer), and DeepSeek-V4's packed pages.

Source: vLLM 0.8.5 to 0.32 v1/attention/backends/mla/*.py, platforms/cuda.py; what each release forces on block_size in
0.10 to 0.17 platforms/cuda.py: check_and_update_config. Left out: FlashInfer's sparse kernel for capability 9 (from
0.30, where FlashInfer is 0.6.18 or newer), which alone would keep fp8_e4m3 there.
"""

from __future__ import annotations

import msgspec

from advisor.errors import EngineRefuses
from advisor.kv.dtypes import DS_MLA, NVFP4_DTYPES, PER_TOKEN_HEAD, TURBOQUANT, is_quantized
from advisor.kv.kernels import FP8_E4M3, HALVES, Ask, Backend, first_that_serves

_CHOOSES_BLOCK = (0, 18)  # from here a backend is chosen that takes the block size; before, the size was forced
_TRITON_FP8 = (0, 18)
_FLASHINFER_FORCED = (0, 15)
_SPARSE_SM120 = (0, 24)
_SPARSE_FLASHINFER = (0, 17)
_SPARSE_FA = (0, 25)
_SPARSE_CONTEXT = (0, 29)
_INFER_CONTEXT = (0, 25)
_DCP_WITH_FP8 = (0, 25)
_BF16 = frozenset({"bfloat16"})
_SOURCE = "vLLM v1/attention/backends/mla"


def latent(ask: Ask) -> Backend:
    """The backend of plain MLA layers."""
    _check_quantized(ask)
    if ask.dcp > 1 and is_quantized(ask.cache_dtype) and ask.version < _DCP_WITH_FP8:
        raise EngineRefuses(
            "dcp-kv-dtype",
            f"vLLM {ask.version} has no decode context parallel with an fp8 KV cache in MLA models",
            hint="set kv_cache_dtype: auto, or decode_context_parallel_size: 1",
            source="vLLM model_executor/layers/attention/mla_attention.py: DCP not support fp8 kvcache",
        )
    return first_that_serves(ask, _latent_backends(ask), _SOURCE)


def _check_quantized(ask: Ask) -> None:
    if ask.cache_dtype in NVFP4_DTYPES:
        raise EngineRefuses(
            "kv-nvfp4-mla", "an nvfp4 KV cache is not supported with MLA", hint="set kv_cache_dtype: fp8"
        )
    unkept = PER_TOKEN_HEAD | set(TURBOQUANT) | {"fp8_e5m2", "fp8_inc", *DS_MLA}
    if ask.cache_dtype in unkept:
        raise EngineRefuses(
            "kv-dtype-mla-backend",
            f"no MLA backend keeps its cache in {ask.cache_dtype}",
            hint="set kv_cache_dtype: auto or fp8",
            source=_SOURCE,
        )


def _latent_backends(ask: Ask) -> list[Backend]:
    major, version = ask.cap[0], ask.version
    triton = Backend(
        name="TRITON_MLA",
        quantized=FP8_E4M3 if version >= _TRITON_FP8 else frozenset(),
        shards_context=version >= (0, 11),
    )
    flash = Backend(name="FLASHMLA", base=64, sizes=(64,), default_block=64, quantized=FP8_E4M3)
    if major == 9 and version >= _CHOOSES_BLOCK:
        return [Backend(name="FLASH_ATTN_MLA"), flash, triton]
    if major == 9:
        name = "FLASHMLA" if is_quantized(ask.cache_dtype) else "FLASH_ATTN_MLA"
        return [Backend(name=name, base=64, default_block=64, forced_multiple=64, quantized=FP8_E4M3)]
    if major == 10 and version >= _CHOOSES_BLOCK:
        infer = Backend(
            name="FLASHINFER_MLA",
            base=32,
            sizes=(32, 64),
            default_block=32,
            quantized=FP8_E4M3,
            shards_context=version >= _INFER_CONTEXT,
        )
        cutlass = Backend(name="CUTLASS_MLA", base=128, sizes=(128,), default_block=128, quantized=FP8_E4M3)
        return [infer, cutlass, flash, triton]
    if major == 10 and version >= _FLASHINFER_FORCED:  # where qk_nope_head_dim is 128, as in all known checkpoints
        forced = 64 if ask.block_size != 32 else 32
        return [
            Backend(
                name="FLASHINFER_MLA",
                base=32,
                default_block=64,
                forced_multiple=forced,
                quantized=FP8_E4M3,
                shards_context=False,
            )
        ]
    if major == 10:
        return [Backend(name="CUTLASS_MLA", base=128, default_block=128, forced_multiple=128, quantized=FP8_E4M3)]
    return [triton]


def packed(ask: Ask) -> Backend:
    """DeepSeek-V4's own backend."""
    if ask.version < (0, 29):
        raise EngineRefuses(
            "packed-layout-unknown",
            f"kvadvise does not know how vLLM {ask.version} lays out DeepSeek-V4",
            hint="plan with vLLM 0.29 or newer",
        )
    if ask.cache_dtype != "fp8_ds_mla" or ask.cap[0] not in (9, 10):
        raise EngineRefuses(
            "packed-layout-dtype",
            "DeepSeek-V4 keeps its cache in the fp8_ds_mla layout, on compute capability 9 or 10",
            hint="set kv_cache_dtype: auto",
            source="vLLM models/deepseek_v4/attention.py",
        )
    # what decode context parallel would do to its pages is not known
    return Backend(
        name="FLASHMLA_SPARSE_DSV4",
        base=256,
        default_block=256,
        quantized=frozenset({"fp8_ds_mla"}),
        computes=HALVES | {"float32"},
        shards_context=False,
    )


def sparse(ask: Ask) -> Backend:
    """The backend of MLA layers that look at what an indexer picks; its own cache has blocks of 64 tokens."""
    if ask.cap < (9, 0) or (ask.cap[0] == 12 and ask.version < _SPARSE_SM120):
        needs = "9.0 or 10.0" if ask.version < _SPARSE_SM120 else "9.0 or newer"
        raise EngineRefuses(
            "sparse-mla-capability",
            f"sparse MLA models need compute capability {needs} with vLLM {ask.version}",
            hint="choose an H100-class GPU or newer",
            source="vLLM v1/attention/backends/mla: supports_compute_capability",
        )
    candidates = _sparse_backends(ask)
    kept = frozenset[str]().union(*(backend.quantized for backend in candidates))
    if is_quantized(ask.cache_dtype) and ask.cache_dtype not in kept:
        raise EngineRefuses(
            "kv-dtype-sparse-mla",
            f"no sparse MLA backend of vLLM {ask.version} keeps its cache in {ask.cache_dtype} on {ask.gpu.name} "
            f"(compute capability {ask.cap[0]}.{ask.cap[1]})",
            hint="set kv_cache_dtype: fp8 (kept as fp8_ds_mla) or auto",
            source="vLLM v1/attention/backends/mla/flashmla_sparse.py: supported_kv_cache_dtypes",
        )
    return first_that_serves(ask, candidates, _SOURCE)


def _sparse_backends(ask: Ask) -> list[Backend]:
    major, version = ask.cap[0], ask.version
    blocks = Backend(name="", base=64, default_block=64, forced_multiple=None if version >= _CHOOSES_BLOCK else 64)
    flash = msgspec.structs.replace(
        blocks,
        name="FLASHMLA_SPARSE",
        quantized=frozenset({"fp8_ds_mla", *(("nvfp4_ds_mla",) if major == 10 and version >= (0, 30) else ())}),
        computes=_BF16,
        # decode context parallel gathers the packed layout only
        shards_context=version >= _SPARSE_CONTEXT and is_quantized(ask.cache_dtype),
    )
    if major == 12:
        kept = FP8_E4M3 | {"fp8_ds_mla"}
        name = "FLASHINFER_MLA_SPARSE_SM120"
        return [msgspec.structs.replace(blocks, name=name, quantized=kept, computes=_BF16, shards_context=False)]
    if major == 10:
        infer = msgspec.structs.replace(
            blocks,
            name="FLASHINFER_MLA_SPARSE",
            quantized=FP8_E4M3 if version >= _CHOOSES_BLOCK else frozenset(),
            shards_context=version >= _INFER_CONTEXT,
        )
        return [infer, flash] if version >= _SPARSE_FLASHINFER else [flash]
    dense = msgspec.structs.replace(blocks, name="FLASH_ATTN_MLA_SPARSE", shards_context=False)
    return [dense, flash] if version >= _SPARSE_FA else [flash]
