"""From what a model caches to vLLM's spec of each layer on one rank: dtypes, heads per rank, block size, state pages.

Source: vLLM 0.32 platforms/interface.py (update_block_size_for_backend, _align_hybrid_block_size), the layers'
get_kv_cache_spec; up to 0.19 models/config.py (HybridAttentionMambaModelConfig). Boundaries: layout-by-version.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lcm

import msgspec

from advisor.engine import Engine
from advisor.errors import EngineRefuses
from advisor.kv.dtypes import attention_bytes_per_head_token, latent_bytes_per_token
from advisor.kv.kernels import Backend
from advisor.kv.parallel import heads_per_rank
from advisor.kv.specs import Kind, LayerSpec, ceil_div
from advisor.kv.states import state_bytes, state_dtypes
from advisor.model.spec import AttentionCache, FixedPageCache, IndexerCache, LayerCache, MlaCache, ModelSpec, StateCache

_ATTENTION_KINDS: dict[str, Kind] = {
    "full": "FullAttentionSpec",
    "sliding": "SlidingWindowSpec",
    "chunked": "ChunkedLocalAttentionSpec",
    "cross": "CrossAttentionSpec",
}
_DEFAULT_BLOCK, _CPU_BLOCK = 16, 128
_STATES_FOLLOW = (0, 12)
_MLA_ALIGN = 128  # blocks of hybrid MLA models are multiples of it from 0.27 on


class Sizing(msgspec.Struct, frozen=True, kw_only=True):
    """Block sizes of one engine configuration: attention's, the state's, and the page both share."""

    block_size: int
    reported_block_size: int
    state_block_size: int = 0
    state_page_bytes: int | None = None  # padded; None where states stand alone or fit exactly
    notes: tuple[str, ...] = ()


def size_blocks(model: ModelSpec, engine: Engine, backend: Backend) -> Sizing:
    """The attention block, grown for hybrids until its page covers the largest state."""
    if model.is_attention_free:
        return unaligned(engine)
    block = backend.block(engine.block_size)
    if not model.is_hybrid:
        return Sizing(block_size=block, reported_block_size=block)
    return _align_hybrid(model, engine, backend, block)


def unaligned(engine: Engine) -> Sizing:
    """The blocks of states on a worker that holds no attention layer, whose page nothing grows or pads.

    Source: vLLM platforms/interface.py (update_block_size_for_backend), model_executor/models/config.py
    (MambaModelConfig), by release: the states' block follows the cache's own from 0.12 on where prefixes are cached.
    """
    block = engine.block_size or (_CPU_BLOCK if engine.gpu.is_cpu else _DEFAULT_BLOCK)
    follows = engine.mamba_cache_mode != "none" and engine.version >= _STATES_FOLLOW
    return Sizing(
        block_size=block,
        reported_block_size=block,
        state_block_size=block if follows else engine.max_model_len,
    )


def _align_hybrid(model: ModelSpec, engine: Engine, backend: Backend, block: int) -> Sizing:
    per_token = _attention_bytes_per_token(model, engine)
    largest = max(_state_bytes(c, engine) for c in _states(model))
    old = engine.version < (0, 20)
    align = max(16, backend.base) if old else max(backend.base, block)
    if old and model.uses_mla:
        align = 64
    elif model.uses_mla and engine.version >= (0, 27):
        align = max(align, _MLA_ALIGN)
    if engine.mamba_cache_mode == "all":
        chunk = lcm(model.state_chunk_tokens or 256, align)
        needed = chunk * ceil_div(ceil_div(largest, per_token), chunk)
    else:
        needed = align * ceil_div(largest, align * per_token)
    grown = max(block, needed)
    page = grown * per_token
    state_block = grown if engine.mamba_cache_mode in ("align", "all") else engine.max_model_len
    reported = grown
    if (0, 18) <= engine.version < (0, 20) and engine.block_size is None:
        reported = 16  # put back after load; unifying pages grows the attention block again
    notes: tuple[str, ...] = ()
    if grown > block:
        notes = (f"the attention block grows from {block} to {grown} tokens so that its page covers a state",)
    return Sizing(
        block_size=grown,
        reported_block_size=reported,
        state_block_size=state_block,
        state_page_bytes=page if page != largest else None,
        notes=notes,
    )


def _states(model: ModelSpec) -> list[StateCache]:
    seen: list[StateCache] = []
    for layer in model.layers:
        for cache in layer.caches:
            if isinstance(cache, StateCache) and cache not in seen:
                seen.append(cache)
    return seen


def _state_bytes(state: StateCache, engine: Engine) -> int:
    conv, ssm = state_dtypes(state.kind, engine.dtype, engine.mamba_cache_dtype, engine.mamba_ssm_cache_dtype)
    return state_bytes(
        state,
        tp=engine.tensor_parallel_size,
        conv_dtype=conv,
        ssm_dtype=ssm,
        num_speculative_tokens=engine.num_speculative_tokens,
    )


def _attention_bytes_per_token(model: ModelSpec, engine: Engine) -> int:
    """One token in one attention layer of one rank, by the first attention layer (vLLM's ModelConfig view)."""
    for layer in model.layers:
        for cache in layer.caches:
            if isinstance(cache, AttentionCache):
                return _bytes_per_token(cache, engine)
            if isinstance(cache, MlaCache):
                return latent_bytes_per_token(engine.cache_dtype, engine.dtype, cache.head_size)
    raise EngineRefuses("no-attention", "a hybrid without attention layers")


def _bytes_per_token(cache: AttentionCache, engine: Engine) -> int:
    heads = heads_per_rank(cache.num_heads, cache.num_kv_heads, engine.tensor_parallel_size)
    dtype = "auto" if cache.ignores_cache_dtype else engine.cache_dtype
    per_head = attention_bytes_per_head_token(dtype, engine.dtype, cache.head_size, cache.head_size_v)
    return heads * per_head * cache.states_per_token


def layer_specs(
    model: ModelSpec, engine: Engine, sizing_of: Callable[[int], Sizing]
) -> tuple[list[LayerSpec], list[int]]:
    """vLLM's spec of every cache in the order of the layers, and the layer each belongs to.

    `sizing_of` gives the blocks of the worker that holds a layer.
    """
    specs, owners = [], []
    made: dict[tuple[int, int], LayerSpec] = {}
    for layer in model.layers:
        sizing = sizing_of(layer.index)
        for cache in layer.caches:
            key = (id(cache), id(sizing))
            spec = made.get(key)
            if spec is None:
                spec = made[key] = _spec(cache, model, engine, sizing)
            specs.append(spec)
            owners.append(layer.index)
    if not specs:
        raise EngineRefuses("no-cache", "no layer keeps a cache")
    return specs, owners


def _spec(cache: LayerCache, model: ModelSpec, engine: Engine, sizing: Sizing) -> LayerSpec:
    if isinstance(cache, AttentionCache):
        return _attention_spec(cache, engine, sizing)
    if isinstance(cache, MlaCache):
        return LayerSpec(
            kind="MLAAttentionSpec" if engine.version >= (0, 11) else "FullAttentionSpec",
            block_size=sizing.block_size,
            bytes_per_token=latent_bytes_per_token(engine.cache_dtype, engine.dtype, cache.head_size),
            shape=(cache.head_size,),
            role="latent",
        )
    if isinstance(cache, IndexerCache):
        return LayerSpec(
            kind="MLAAttentionSpec",
            block_size=sizing.block_size,
            bytes_per_token=cache.bytes_per_token,
            shape=(cache.bytes_per_token,),
            role="indexer",
        )
    if isinstance(cache, FixedPageCache):
        return LayerSpec(
            kind="MLAAttentionSpec" if cache.span_tokens is None else "SlidingWindowMLASpec",
            block_size=cache.block_size,
            page_padded_bytes=cache.page_bytes,
            span_tokens=cache.span_tokens,
        )
    return _state_spec(cache, model, engine, sizing)


def _attention_spec(cache: AttentionCache, engine: Engine, sizing: Sizing) -> LayerSpec:
    heads = heads_per_rank(cache.num_heads, cache.num_kv_heads, engine.tensor_parallel_size)
    return LayerSpec(
        kind=_ATTENTION_KINDS[cache.kind],
        block_size=sizing.block_size,
        bytes_per_token=_bytes_per_token(cache, engine),
        span_tokens=cache.span_tokens,
        shape=(heads, cache.head_size, cache.head_size_v),
    )


def _state_spec(cache: StateCache, model: ModelSpec, engine: Engine, sizing: Sizing) -> LayerSpec:
    return LayerSpec(
        kind="MambaSpec",
        block_size=sizing.state_block_size,
        state_bytes=_state_bytes(cache, engine),
        page_padded_bytes=sizing.state_page_bytes if model.is_hybrid else None,
        state_blocks=_state_blocks(cache, engine),
        state_per_block=engine.mamba_cache_mode == "all",
        role=cache.kind,
    )


def _state_blocks(cache: StateCache, engine: Engine) -> int:
    """Blocks one request holds: one, or with align the state before and after, plus a Mamba-2 prefill checkpoint."""
    if engine.mamba_cache_mode != "align":
        return 1 + (engine.num_speculative_tokens if engine.version >= (0, 15) else 0)
    checkpoint = 1 if cache.kind == "mamba2" and engine.version >= (0, 32) else 0
    return 2 + engine.num_speculative_tokens + checkpoint
