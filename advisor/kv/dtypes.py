"""KV cache dtypes: bytes per value, and what packs differently.

Source: vLLM 0.32 v1/kv_cache_interface.py, v1/attention/backends/{triton_attn,flashinfer,turboquant_attn}.py
(customize_spec); config/cache.py (CacheDType).
"""

from __future__ import annotations

MODEL_DTYPES = frozenset({"auto", "bfloat16", "float16", "float32", "half", "float"})
FP8_DTYPES = frozenset({"fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc"})
PER_TOKEN_HEAD = frozenset({"int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"})
NVFP4_DTYPES = frozenset({"nvfp4", "nvfp4_4over6"})
TURBOQUANT = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
DS_MLA = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
ALL_DTYPES = MODEL_DTYPES | FP8_DTYPES | PER_TOKEN_HEAD | NVFP4_DTYPES | set(TURBOQUANT) | set(DS_MLA)
MODEL_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_SCALES_BYTES = 8  # two inline float32 scales a head and token


def is_quantized(cache_dtype: str) -> bool:
    """Whether the cache holds fewer bits than the model computes with."""
    return cache_dtype not in MODEL_DTYPES


def attention_bytes_per_head_token(cache_dtype: str, model_dtype: str, k_size: int, v_size: int) -> int:
    """Bytes that one KV head keeps of one token in one layer, keys and values together."""
    both = k_size + v_size
    if cache_dtype in MODEL_DTYPES:
        name = model_dtype if cache_dtype == "auto" else _full_name(cache_dtype)
        return both * MODEL_BYTES[name]
    if cache_dtype in FP8_DTYPES:
        return both
    if cache_dtype in ("int8_per_token_head", "fp8_per_token_head"):
        return both + _SCALES_BYTES
    if cache_dtype == "int4_per_token_head":
        return k_size // 2 + v_size // 2 + _SCALES_BYTES
    if cache_dtype in NVFP4_DTYPES:
        return k_size // 2 + k_size // 16 + v_size // 2 + v_size // 16
    if cache_dtype in TURBOQUANT:
        return _turboquant(cache_dtype, k_size, v_size)
    raise KeyError(cache_dtype)


def _turboquant(cache_dtype: str, k_size: int, v_size: int) -> int:
    """Packed keys (plus a norm) and values (plus scale and offset), rounded up to an even number of bytes."""
    k_bits, v_bits = TURBOQUANT[cache_dtype]
    keys = k_size if k_bits == 8 else -(-k_size * k_bits // 8) + 2
    values = -(-v_size * v_bits // 8) + 4
    total = keys + values
    return total + total % 2


def latent_bytes_per_token(cache_dtype: str, model_dtype: str, head_size: int) -> int:
    """Bytes of one token's latent in one MLA layer."""
    if cache_dtype in DS_MLA:
        return DS_MLA[cache_dtype]
    if cache_dtype in MODEL_DTYPES:
        name = model_dtype if cache_dtype == "auto" else _full_name(cache_dtype)
        return head_size * MODEL_BYTES[name]
    if cache_dtype in FP8_DTYPES:
        return head_size
    if cache_dtype in PER_TOKEN_HEAD:
        return head_size + _SCALES_BYTES
    raise KeyError(cache_dtype)


def _full_name(name: str) -> str:
    return {"half": "float16", "float": "float32"}.get(name, name)
