"""One layer's cache under one engine configuration: vLLM's KVCacheSpec, as far as sizes go.

Source: vLLM 0.32 v1/kv_cache_interface.py (AttentionSpec, SlidingWindowSpec, ChunkedLocalAttentionSpec, MambaSpec,
CrossAttentionSpec: page_size_bytes, max_memory_usage_bytes).
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal[
    "FullAttentionSpec",
    "MLAAttentionSpec",
    "SlidingWindowSpec",
    "SlidingWindowMLASpec",
    "ChunkedLocalAttentionSpec",
    "CrossAttentionSpec",
    "MambaSpec",
]


def ceil_div(a: int, b: int) -> int:
    """Whole multiples of b that cover a."""
    return -(-a // b)


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """What the number of blocks of one request depends on.

    `tokens` is its length, `in_flight_tokens` what may be scheduled and not yet settled (a sliding layer keeps it
    besides the window), `encoder_tokens` the longest encoder input.
    """

    tokens: int
    in_flight_tokens: int
    encoder_tokens: int = 0
    dcp: int = 1


class LayerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One cache of one layer on one rank. Two specs with equal fields share a group, as in vLLM."""

    kind: Kind
    block_size: int
    bytes_per_token: int = 0  # attention kinds
    state_bytes: int = 0  # MambaSpec
    page_padded_bytes: int | None = None
    span_tokens: int | None = None  # window or chunk
    state_blocks: int = 1  # MambaSpec: blocks one request holds
    state_per_block: bool = False  # MambaSpec of cache mode "all": a state for every block of tokens
    shape: tuple[int, ...] = ()  # heads and sizes: what makes two specs different beyond their bytes
    role: str = ""

    @property
    def page_bytes_unpadded(self) -> int:
        """Bytes of one block of this layer before padding."""
        return self.state_bytes if self.kind == "MambaSpec" else self.block_size * self.bytes_per_token

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one block of this layer."""
        return self.page_padded_bytes if self.page_padded_bytes is not None else self.page_bytes_unpadded

    def with_block_size(self, block_size: int) -> LayerSpec:
        """The same cache in blocks of another size."""
        return msgspec.structs.replace(self, block_size=block_size)

    def padded(self, page_bytes: int) -> LayerSpec:
        """The same cache with its page padded."""
        return msgspec.structs.replace(self, page_padded_bytes=page_bytes)

    def blocks(self, request: Lengths) -> int:
        """The most blocks one request of this length can hold in this layer's group."""
        if self.kind == "MambaSpec":
            return ceil_div(request.tokens, self.block_size) if self.state_per_block else self.state_blocks
        if self.kind == "CrossAttentionSpec":
            return ceil_div(request.encoder_tokens, self.block_size)
        if self.kind in ("SlidingWindowSpec", "SlidingWindowMLASpec"):
            kept = min((self.span_tokens or 0) - 1 + request.in_flight_tokens, request.tokens)
            return ceil_div(kept, self.block_size) + 1
        if self.kind == "ChunkedLocalAttentionSpec":
            kept = min((self.span_tokens or 0) + request.in_flight_tokens, request.tokens)
            return ceil_div(kept, self.block_size)
        return ceil_div(ceil_div(request.tokens, request.dcp), self.block_size)
