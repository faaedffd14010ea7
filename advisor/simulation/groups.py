"""The scheduler's view of a model: groups and settings from a KV layout and an engine configuration."""

from __future__ import annotations

from advisor.engine import Engine
from advisor.errors import NotUnderstood
from advisor.kv.groups import LayerGroup
from advisor.kv.layout import KvLayout
from advisor.kv.specs import LayerSpec
from advisor.simulation.rules import GroupKind, GroupRule, Rules, behaviour_of

_KINDS: dict[str, GroupKind] = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "latent",
    "SlidingWindowSpec": "sliding",
    "SlidingWindowMLASpec": "sliding",
    "ChunkedLocalAttentionSpec": "chunked",
    "MambaSpec": "mamba",
}
_CHECKPOINTED_STATES = 3  # state blocks of a request whose backend saves one within a chunk


def group_rules(layout: KvLayout) -> tuple[GroupRule, ...]:
    """The groups of a layout. Groups of equal layers are equal; those that differ in anything else have another twin.

    Raises NotUnderstood for kinds whose schedule is not modelled.
    """
    twins: dict[tuple[LayerSpec, ...], int] = {}
    return tuple(_rule(group, layout, twins) for group in layout.members)


def _rule(group: LayerGroup, layout: KvLayout, twins: dict[tuple[LayerSpec, ...], int]) -> GroupRule:
    spec = group.spec
    kind = _KINDS.get(spec.kind)
    if kind is None:
        raise NotUnderstood(f"the schedule of {spec.kind} groups is not simulated")
    if spec.state_per_block:
        raise NotUnderstood("mamba_cache_mode all is not simulated")
    aligned = kind == "mamba" and layout.prefix_caching and spec.state_blocks > 1
    key = tuple(dict.fromkeys(member for _, member in group.members)) if group.uniform else (spec,)
    sharded = kind in ("full", "latent")
    return GroupRule(
        kind=kind,
        block_size=spec.block_size * (layout.dcp if sharded else 1),
        span_tokens=(spec.span_tokens or 0) if kind in ("sliding", "chunked") else 0,
        aligned=aligned,
        checkpoint_alignment=1 if aligned and spec.state_blocks >= _CHECKPOINTED_STATES else None,
        twin=twins.setdefault(key, len(twins)),
    )


def engine_rules(layout: KvLayout, engine: Engine, num_blocks: int) -> Rules:
    """The scheduler's settings of an engine with a pool of so many blocks (the null block included).

    Raises NotUnderstood for speculative decoding and for more than one pipeline stage.
    """
    pins = engine.pinned
    if engine.num_speculative_tokens:
        raise NotUnderstood("speculative decoding is not simulated: what is accepted depends on the text")
    if engine.pipeline_parallel_size > 1:
        raise NotUnderstood("more than one pipeline stage is not simulated")
    known = {name: pins[name] for name in _PINNED if pins.get(name) is not None}
    return Rules(
        max_model_len=layout.max_model_len,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        num_blocks=num_blocks,
        groups=group_rules(layout),
        policy=pins.get("scheduling_policy", "fcfs"),
        prefix_caching=layout.prefix_caching,
        chunked_prefill=engine.enable_chunked_prefill,
        async_scheduling=engine.async_scheduling,
        reserve_full_prompt=pins.get("scheduler_reserve_full_isl", True),
        watermark_fraction=pins.get("watermark", 0.0),
        behaviour=behaviour_of(engine.version),
        **known,
    )


_PINNED = (
    "max_num_active_seqs",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "max_num_queued_reqs",
    "max_num_queued_tokens",
)
