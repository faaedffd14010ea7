"""What an attention kernel of vLLM can serve, and the choice of the first of several that serves what is asked.

Source: vLLM 0.32 v1/attention/backend.py (AttentionBackend.validate_configuration), platforms/cuda.py
(get_valid_backends). Left out: kernels a user asks for by name (attention_backend).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from advisor.errors import EngineRefuses
from advisor.gpu import Gpu
from advisor.kv.dtypes import is_quantized
from advisor.model.spec import ModelSpec
from advisor.versions import Version

HALVES = frozenset({"float16", "bfloat16"})
FP8_E4M3 = frozenset({"fp8", "fp8_e4m3"})


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """A backend's name and the block sizes its kernels take: whole multiples of `base`, or of one of `sizes`.

    `forced_multiple` is what a release makes of a block size that does not suit: it takes that number instead.
    """

    name: str
    base: int = 16
    sizes: tuple[int, ...] = ()
    default_block: int = 16
    forced_multiple: int | None = None
    quantized: frozenset[str] = frozenset()  # KV dtypes beyond the 16-bit ones
    computes: frozenset[str] = HALVES
    shards_context: bool = True  # decode context parallel

    def takes(self, block_size: int) -> bool:
        """Whether a block of so many tokens can be served."""
        if self.forced_multiple is not None:
            return True
        if self.sizes:
            return any(block_size % size == 0 for size in self.sizes)
        return block_size % self.base == 0

    def block(self, asked: int | None) -> int:
        """The block size that a start takes for what the user asked."""
        if asked is None:
            return self.default_block
        forced = self.forced_multiple
        return asked if forced is None or asked % forced == 0 else forced


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What the attention layers of one configuration want of a kernel."""

    model: ModelSpec
    gpu: Gpu
    version: Version
    cache_dtype: str
    dtype: str
    block_size: int | None = None
    dcp: int = 1

    @property
    def cap(self) -> tuple[int, int]:
        """The compute capability; (0, 0) where it is not known."""
        return self.gpu.compute_capability or (0, 0)

    def objections(self, backend: Backend) -> set[str]:
        """Why a backend cannot serve this: kv_cache_dtype, dtype, block_size, decode_context_parallel_size."""
        found = set()
        if is_quantized(self.cache_dtype) and self.cache_dtype not in backend.quantized:
            found.add("kv_cache_dtype")
        if self.dtype not in backend.computes:
            found.add("dtype")
        if self.block_size is not None and not backend.takes(self.block_size):
            found.add("block_size")
        if self.dcp > 1 and not backend.shards_context:
            found.add("decode_context_parallel_size")
        return found


def first_that_serves(ask: Ask, backends: Sequence[Backend], source: str) -> Backend:
    """The first backend without an objection; refuses, naming what stands in the way of the nearest one."""
    against = [(backend, ask.objections(backend)) for backend in backends]
    for backend, why in against:
        if not why:
            return backend
    nearest, why = min(against, key=lambda pair: len(pair[1]))
    if why == {"block_size"}:
        raise block_size_refused(ask, [b for b, w in against if w == why])
    if why == {"decode_context_parallel_size"} and is_quantized(ask.cache_dtype):
        raise EngineRefuses(
            "dcp-kv-dtype",
            f"no attention backend on {ask.gpu.name} has both decode context parallel and a {ask.cache_dtype} KV cache",
            hint="set kv_cache_dtype: auto, or decode_context_parallel_size: 1",
            source=source,
        )
    settings = {"kv_cache_dtype": ask.cache_dtype, "dtype": ask.dtype, "block_size": ask.block_size}
    settings["decode_context_parallel_size"] = ask.dcp
    text = ", ".join(f"{name} {settings[name]}" for name in sorted(why))
    raise EngineRefuses(
        "attention-backend",
        f"no attention backend of vLLM {ask.version} serves this model on {ask.gpu.name} with {text} "
        f"({nearest.name} comes nearest)",
        hint=f"change {' or '.join(sorted(why))}",
        source=source,
    )


def block_size_refused(ask: Ask, backends: Sequence[Backend]) -> EngineRefuses:
    """The refusal of a block size that no kernel takes."""
    takes = [
        f"{' or '.join(map(str, backend.sizes)) if backend.sizes else f'a multiple of {backend.base}'} ({backend.name})"
        for backend in backends
    ]
    return EngineRefuses(
        "block-size",
        f"block_size {ask.block_size} is not one that an attention backend supports here",
        hint=f"use {' or '.join(takes)}, or leave it to vLLM",
        source="vLLM v1/attention/backend.py: supports_block_size",
    )
