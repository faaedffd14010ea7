"""The KV layout of a model under one engine configuration, and what a pool of bytes holds in it.

Source: vLLM 0.32 v1/core/kv_cache_utils.py (get_kv_cache_configs, _check_enough_kv_cache_memory,
_estimate_max_model_len_from_groups, get_max_concurrency_for_kv_cache_config, get_kv_cache_capacity) and the older
forms of the same functions; boundaries in docs/how-it-decides.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from advisor.engine import Engine
from advisor.errors import EngineRefuses
from advisor.kv.backend import choose_backend
from advisor.kv.groups import LayerGroup, make_groups
from advisor.kv.per_layer import layer_specs
from advisor.kv.specs import Lengths, ceil_div
from advisor.kv.stages import (
    block_bytes,
    check_context,
    cut,
    held_by,
    reported_block_size,
    sizing_of,
    token_bytes,
)
from advisor.model.spec import ModelSpec
from advisor.versions import Version

_CHECKED_BY_POOL = (0, 14)  # before it, the start check summed the layers without a group's padding
_NULL_BLOCK_CHECKED = (0, 29)  # from here the start check leaves the null block out
_PRINTED_BY_REQUEST = (0, 20, 1)  # from here the printed size is concurrency x max_model_len
_HYBRID_MANAGER = (0, 9, 1)  # before it, sliding layers were laid out as full ones
_CHUNKED_GROUPS = (0, 14)  # before it, chunked-local layers turned the hybrid manager off


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
    """How many requests of one length a pool holds at once, and what stops the next one.

    `shared_blocks` are counted once for all of them; `blocks_per_request` is what each holds besides.
    """

    count: int
    bound_by: Literal["kv", "mamba_blocks", "none"]
    blocks_per_request: int
    shared_blocks: int = 0


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
    mamba_blocks_exceeded: bool = False  # max_num_seqs exceeds the state blocks: graph capture refuses


class KvLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Groups, pages and blocks, independent of how much memory there is."""

    block_size: int  # what vLLM reports as block_size (cache_config)
    groups: tuple[Group, ...]  # of the rank with the most bytes per block
    bytes_per_block: tuple[int, ...]  # per pipeline rank
    bytes_per_token: int | None  # one rank, all its layers; None where layers differ in kind
    bytes_per_request: int  # at max_model_len, on that rank
    backend: str  # attention backend expected, for explanations
    notes: tuple[str, ...]
    version: Version
    max_model_len: int
    longest_model_len: int
    max_num_seqs: int
    prefix_caching: bool
    graphs: bool
    dcp: int
    request: Lengths  # one request of max_model_len
    members: tuple[LayerGroup, ...]
    stage_layers: tuple[tuple[int, ...], ...]  # layers per group, for each pipeline rank
    num_gpu_blocks_override: int | None = None

    @property
    def deciding_stage(self) -> int:
        """The pipeline rank with the most bytes per block (the first of equals)."""
        return self.bytes_per_block.index(max(self.bytes_per_block))

    @property
    def has_states(self) -> bool:
        """Whether some layers keep a recurrent state."""
        return any(group.spec.kind == "MambaSpec" for group in self.members)

    def blocks_per_request(self, tokens: int) -> int:
        """Blocks of all groups together that one request of so many tokens holds at most."""
        request = msgspec.structs.replace(self.request, tokens=tokens)
        return sum(group.blocks(request) for group in self.members)

    def pool(self, available_bytes: Sequence[int]) -> Pool:
        """The pool made from so many bytes per pipeline rank."""
        if len(available_bytes) != len(self.bytes_per_block):
            raise ValueError("one number of bytes per pipeline rank is needed")
        available = list(available_bytes)
        if self.num_gpu_blocks_override is not None:
            available = [self.num_gpu_blocks_override * b for b in self.bytes_per_block]
        counts = [max(0, a) // b for a, b in zip(available, self.bytes_per_block, strict=True)]
        stage = min(range(len(counts)), key=lambda i: (counts[i], i))
        num_blocks = counts[stage]
        per_request = self.blocks_per_request(self.max_model_len)
        concurrency = num_blocks / per_request
        usable = [a - self._held_back(b) for a, b in zip(available, self.bytes_per_block, strict=True)]
        needed = self._needed(self.max_model_len)
        failing = [i for i, (a, n) in enumerate(zip(usable, needed, strict=True)) if a <= 0 or n > a]
        shown = failing[0] if failing else stage
        too_many = self.has_states and self.graphs and self.max_num_seqs > num_blocks
        return Pool(
            num_blocks=num_blocks,
            bytes_per_block=self.bytes_per_block[stage],
            stage=stage,
            capacity_tokens=self._printed_tokens(num_blocks, concurrency),
            max_concurrency=concurrency,
            needed_bytes=needed[shown],
            available_bytes=usable[shown],
            starts=not failing and not too_many,
            estimated_max_model_len=self._longest(usable),
            mamba_blocks_exceeded=too_many,
        )

    def _held_back(self, bytes_per_block: int) -> int:
        return bytes_per_block if self.version >= _NULL_BLOCK_CHECKED else 0

    def _needed(self, tokens: int) -> list[int]:
        """Bytes that the start check asks of each pipeline rank for one request of so many tokens."""
        if self.version >= _CHECKED_BY_POOL:
            blocks = self.blocks_per_request(tokens)
            return [blocks * b for b in self.bytes_per_block]
        request = msgspec.structs.replace(self.request, tokens=tokens)
        per_group = [(g.spec.page_size_bytes, g.blocks(request)) for g in self.members]
        return [
            sum(n * page * blocks for n, (page, blocks) in zip(stage, per_group, strict=True))
            for stage in self.stage_layers
        ]

    def _printed_tokens(self, num_blocks: int, concurrency: float) -> int:
        if self.version >= _PRINTED_BY_REQUEST:
            return int(concurrency * self.max_model_len)
        smallest = min(group.spec.block_size for group in self.members)
        return num_blocks // len(self.members) * smallest * self.dcp

    def _longest(self, usable: Sequence[int]) -> int:
        """Binary search for the longest length whose blocks fit every rank, up to the model's own maximum."""

        def fits(tokens: int) -> bool:
            return all(a > 0 and n <= a for a, n in zip(usable, self._needed(tokens), strict=True))

        low, high = 0, max(self.longest_model_len, self.max_model_len)
        if len(self.members) == 1 and self.bytes_per_token is not None:  # one group that grows: whole blocks decide
            blocks = min(max(0, a) // b for a, b in zip(usable, self.bytes_per_block, strict=True))
            return min(blocks * self.members[0].spec.block_size * self.dcp, high)
        while low < high:
            middle = (low + high + 1) // 2
            if fits(middle):
                low = middle
            else:
                high = middle - 1
        return low

    def requests(self, pool: Pool, prompt_tokens: int, output_tokens: int, shared_prefix_tokens: int = 0) -> Requests:
        """Whole requests of prompt + output that the pool holds at once: one block kept back, a shared prefix
        counted once where prefix caching keeps it.

        A sliding layer holds its window and what is in flight, never more than the request; a state holds its blocks.
        """
        tokens = prompt_tokens + output_tokens
        shared = min(shared_prefix_tokens, prompt_tokens - 1) if self.prefix_caching else 0
        own = common = states = 0
        request = msgspec.structs.replace(self.request, tokens=tokens)
        for group in self.members:
            blocks, prefix = _held(group, request, max(shared, 0))
            own += blocks - prefix
            common += prefix
            if group.spec.kind == "MambaSpec":
                states += blocks
        free = pool.num_blocks - 1 - common
        count = max(0, free) // own if own > 0 else 0
        bound: Literal["kv", "mamba_blocks"] = "mamba_blocks" if states * 2 > own else "kv"
        return Requests(count=count, bound_by=bound, blocks_per_request=own, shared_blocks=common)


def _held(group: LayerGroup, request: Lengths, shared_tokens: int) -> tuple[int, int]:
    """(blocks one request holds, how many of them are the shared prefix's)."""
    spec = group.spec
    blocks = group.blocks(request)
    if spec.kind in ("SlidingWindowSpec", "SlidingWindowMLASpec", "ChunkedLocalAttentionSpec"):
        return min(blocks, ceil_div(request.tokens, spec.block_size)), 0
    if spec.kind in ("FullAttentionSpec", "MLAAttentionSpec"):
        return blocks, min(shared_tokens // (spec.block_size * request.dcp), blocks)
    return blocks, 0


def lay_out(model: ModelSpec, engine: Engine) -> KvLayout:
    """Lay out `model` under `engine` as vLLM would.

    Raises EngineRefuses where vLLM refuses (page sizes that cannot be unified, a backend that does not exist for
    this dtype and GPU).
    """
    backend = choose_backend(
        model,
        engine.gpu,
        engine.version,
        engine.cache_dtype,
        engine.dtype,
        block_size=engine.block_size,
        dcp=engine.decode_context_parallel_size,
    )
    cuts = cut(model, engine, backend)
    specs, owners = layer_specs(model, engine, lambda index: sizing_of(cuts, index))
    groups = make_groups(
        specs, engine.version, hybrid_disabled=_hybrid_disabled(model, engine), packed=model.packs_pages
    )
    check_context(groups, engine)
    stages = [held_by(stage, groups, owners) for stage in cuts]
    per_block = tuple(block_bytes(groups, held) for held in stages)
    if min(per_block) == 0:
        raise EngineRefuses(
            "pp-empty-stage",
            "a pipeline stage would hold no layer with a cache",
            hint="use fewer pipeline stages",
        )
    request = Lengths(
        tokens=engine.max_model_len,
        in_flight_tokens=engine.max_in_flight_tokens,
        encoder_tokens=engine.max_num_batched_tokens,
        dcp=engine.decode_context_parallel_size,
    )
    deciding = per_block.index(max(per_block))
    return KvLayout(
        block_size=reported_block_size(cuts, groups),
        groups=tuple(
            Group(
                kind=group.spec.kind,
                layers=len(members),
                block_size=group.spec.block_size,
                page_size_bytes=group.spec.page_size_bytes,
                blocks_per_request=group.blocks(request),
            )
            for group, members in zip(groups, stages[deciding], strict=True)
        ),
        bytes_per_block=per_block,
        bytes_per_token=token_bytes(groups, stages[deciding]),
        bytes_per_request=per_block[deciding] * sum(group.blocks(request) for group in groups),
        backend=backend.name,
        notes=cuts[0].sizing.notes or cuts[-1].sizing.notes,
        version=engine.version,
        max_model_len=engine.max_model_len,
        longest_model_len=model.max_length.tokens,
        max_num_seqs=engine.max_num_seqs,
        prefix_caching=engine.enable_prefix_caching,
        graphs=not engine.enforce_eager and not engine.gpu.is_cpu,
        dcp=engine.decode_context_parallel_size,
        request=request,
        members=tuple(groups),
        stage_layers=tuple(tuple(len(members) for members in stage) for stage in stages),
        num_gpu_blocks_override=engine.num_gpu_blocks_override,
    )


def _hybrid_disabled(model: ModelSpec, engine: Engine) -> bool:
    chunked = any(getattr(c, "kind", "") == "chunked" for layer in model.layers for c in layer.caches)
    return (
        engine.disable_hybrid_kv_cache_manager
        or engine.version < _HYBRID_MANAGER
        or (chunked and engine.version < _CHUNKED_GROUPS)
    )
