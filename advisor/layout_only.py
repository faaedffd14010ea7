"""The KV layout by itself, where the weights are not known: what follows from the config is still exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.engine import resolve_engine
from advisor.errors import EngineRefuses, NotUnderstood
from advisor.kv.layout import KvLayout, Pool, lay_out
from advisor.plan_types import Kv, KvGroup
from advisor.sizing import AUTO_LENGTH, Problem


def layout_only(problem: Problem) -> Kv | None:
    """Groups, pages and bytes at the length that is pinned or needed; blocks only where the pins say the pool.

    None where vLLM refuses the pins or the layout is not known either.
    """
    pins = dict(problem.pins)
    if pins.get("max_model_len") is None or pins["max_model_len"] in AUTO_LENGTH:
        pins["max_model_len"] = min(problem.longest_tokens, problem.model.max_length.tokens)
    try:
        engine = resolve_engine(problem.model, problem.gpu, problem.version, pins)
        layout = lay_out(problem.model, engine)
    except (EngineRefuses, NotUnderstood):
        return None
    return _kv(layout, _pool(layout, pins))


def _pool(layout: KvLayout, pins: Mapping[str, Any]) -> Pool | None:
    blocks, n_bytes = pins.get("num_gpu_blocks_override"), pins.get("kv_cache_memory_bytes")
    if isinstance(blocks, int):
        return layout.pool([blocks * per_block for per_block in layout.bytes_per_block])
    return layout.pool([n_bytes] * len(layout.bytes_per_block)) if isinstance(n_bytes, int) else None


def _kv(layout: KvLayout, pool: Pool | None) -> Kv:
    """What the plan shows of a layout; what depends on the pool stays null without one."""
    blocks = pool.num_blocks if pool is not None else None
    return Kv(
        block_size=layout.block_size,
        num_blocks=blocks,
        num_blocks_low=blocks,
        num_blocks_high=blocks,
        bytes_per_block=pool.bytes_per_block if pool is not None else max(layout.bytes_per_block),
        bytes_per_token=layout.bytes_per_token,
        groups=groups_of(layout),
        capacity_tokens=pool.capacity_tokens if pool is not None else None,
        max_concurrency=pool.max_concurrency if pool is not None else None,
        bytes_per_request=layout.bytes_per_request,
        estimated_max_model_len=pool.estimated_max_model_len if pool is not None else None,
        needed_bytes=None,
        granted_bytes=pool.num_blocks * pool.bytes_per_block if pool is not None else None,
        attention_backend=layout.backend,
    )


def groups_of(layout: KvLayout) -> tuple[KvGroup, ...]:
    """vLLM's own groups, as the plan shows them."""
    return tuple(
        KvGroup(
            kind=group.kind,
            layers=group.layers,
            block_size=group.block_size,
            page_size_bytes=group.page_size_bytes,
            blocks_per_request=group.blocks_per_request,
        )
        for group in layout.groups
    )
