"""The KV layout of a model under one engine configuration, and what a pool of bytes holds in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from advisor.engine import Engine
from advisor.model.spec import ModelSpec


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One KV cache group as vLLM forms it: layers that share a block table.

    `kind` is vLLM's spec class, `layers` counts real layers (no padding) of the deciding pipeline rank,
    `blocks_per_request` is what one request of max_model_len holds at most.
    """

    kind: str
    layers: int
    block_size: int
    page_size_bytes: int
    blocks_per_request: int


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests of one length a pool holds at once, and what stops the next one."""

    count: int
    bound_by: Literal["kv", "mamba_blocks", "none"]
    blocks_per_request: int


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """What vLLM makes of a number of bytes: the figures it prints, and whether it starts."""

    num_blocks: int
    bytes_per_block: int  # of the deciding rank
    stage: int  # the deciding pipeline rank
    capacity_tokens: int  # as this version prints the KV cache size
    max_concurrency: float  # as it prints it, at max_model_len
    needed_bytes: int  # for one request of max_model_len, on the rank that decides the start check
    available_bytes: int  # what the start check compares it with
    starts: bool
    estimated_max_model_len: int  # the longest that starts; 0 where not even one token fits


class KvLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Groups, pages and blocks, independent of how much memory there is."""

    block_size: int  # what vLLM reports as block_size (cache_config)
    groups: tuple[Group, ...]
    bytes_per_block: tuple[int, ...]  # per pipeline rank
    bytes_per_token: int | None  # one rank, all its layers; None where layers differ in kind
    bytes_per_request: int  # at max_model_len, on the deciding rank
    backend: str  # attention backend expected, for explanations
    notes: tuple[str, ...] = ()

    def pool(self, available_bytes: Sequence[int]) -> Pool:
        """The pool made from so many bytes per pipeline rank."""
        raise NotImplementedError

    def requests(
        self, pool: Pool, prompt_tokens: int, output_tokens: int, shared_prefix_tokens: int = 0
    ) -> Requests:
        """Whole requests of prompt + output that the pool holds at once: one block kept back, a shared prefix
        counted once.
        """
        raise NotImplementedError


def lay_out(model: ModelSpec, engine: Engine) -> KvLayout:
    """Lay out `model` under `engine` as vLLM would.

    Raises EngineRefuses where vLLM refuses (page sizes that cannot be unified, a backend that does not exist for
    this dtype and GPU).
    """
    raise NotImplementedError
