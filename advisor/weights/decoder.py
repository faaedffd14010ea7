"""The decoder most families share: attention, a feed-forward layer, norms, one rotary table."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from advisor.weights.attention import Heads, Names, attention
from advisor.weights.blueprint import Blueprint
from advisor.weights.feed_forward import gated_mlp, plain_mlp
from advisor.weights.fields import Fields
from advisor.weights.rope import RopeSpec, rope_spec, rope_table
from advisor.weights.source import Edges, edges
from advisor.weights.tally import Tally

FeedForward = Callable[[Tally, str, int], None]  # tally, the layer's name, the layer's index


class Layers(NamedTuple):
    """How the layers of a family are built. `feed_forward` adds the part after attention."""

    depth: int
    heads: Heads
    feed_forward: FeedForward
    prefix: str = "model.layers"
    attention: str = "self_attn"
    names: Names = Names()
    norm_values: int = 0  # elements of all norms of one layer
    rope: RopeSpec | None = None
    rope_positions: int | None = None
    mrope_factor: int = 4
    kind: Callable[[int], Hashable] = lambda _: None


def dense(fields: Fields, *, gated: bool = True, bias: bool = False, inner: int | None = None, mlp: str = "mlp",
          up: str | None = None, down: str = "down_proj") -> FeedForward:  # fmt: skip
    """A feed-forward that is the same MLP in every layer."""
    hidden = fields.required("hidden_size")
    size = fields.required("intermediate_size") if inner is None else inner

    def build(t: Tally, name: str, _: int) -> None:
        if gated:
            gated_mlp(t, f"{name}.{mlp}", hidden, size, bias=bias, up=up or "gate_up_proj", down=down)
        else:
            plain_mlp(t, f"{name}.{mlp}", hidden, size, bias=bias, up=up or "up_proj", down=down)

    return build


def decoder(fields: Fields, plan: Layers, around: Edges) -> Blueprint:
    """A blueprint of equal attention layers with one rotary table (none without `rope`)."""

    def layer(t: Tally, i: int) -> None:
        name = f"{plan.prefix}.{i}"
        attention(t, f"{name}.{plan.attention}" if plan.attention else name, plan.heads, plan.names)
        plan.feed_forward(t, name, i)
        t.values(plan.norm_values)
        if plan.rope is not None:
            t.rope(
                rope_table(
                    fields,
                    plan.heads.dim,
                    t.element_bytes,
                    spec=plan.rope,
                    positions=plan.rope_positions,
                    mrope_factor=plan.mrope_factor,
                )
            )

    return Blueprint(plan.depth, plan.kind, layer, edges(around))


def inverse_frequencies(fields: Fields, dim: int, kinds: int = 1) -> Callable[[Tally, bool, bool], None]:
    """The rotary buffers of a model built by transformers' own classes: two float32 vectors a kind of layer."""
    rotary = int(dim * rope_spec(fields).partial)

    def add(t: Tally, _first: bool, _last: bool) -> None:
        t.values(2 * kinds * (rotary // 2), 4)

    return add
