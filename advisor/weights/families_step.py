"""Step 3 and 3.5.

Source: vLLM 0.32 model_executor/models/{step3_text,step3p5}.py.
"""

from __future__ import annotations

from advisor.weights.attention import Heads, attention, heads_of
from advisor.weights.blueprint import Blueprint
from advisor.weights.feed_forward import Moe, gated_mlp, mixture
from advisor.weights.fields import Fields
from advisor.weights.rope import RopeSpec, rope_spec, rope_table
from advisor.weights.source import Source, edges, separate_head
from advisor.weights.tally import Tally


def _expert_layers(fields: Fields, layers: int) -> frozenset[int]:
    stated = fields.get("moe_layers_enum")
    if stated is None:
        return frozenset(range(1, layers))
    return frozenset(int(i) for i in (stated.split(",") if isinstance(stated, str) else stated))


def step3p5(src: Source, base: str = "") -> Blueprint:
    """Step 3.5: other heads in windowed layers, a gate a head, the router in float32."""
    f = src.text
    layers = f.required("num_hidden_layers")
    kinds = f.entries("layer_types", layers) or [""] * layers
    other = f.part("attention_other_setting")
    bias = f.flag("attention_bias")
    usual = heads_of(f, keys=f.size("num_attention_groups"), norm="head", bias=bias)
    factors = f.get("partial_rotary_factors") or []
    sparse = _expert_layers(f, layers)
    moe = Moe(
        usual.hidden,
        f.size("moe_num_experts", 0),
        f.size("moe_intermediate_size", 0),
        shared_inner=f.size("share_expert_dim", 0),
        shared="share_expert",
        gate_bytes=4,
        score_bias=True,
    )

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        heads = _heads_in(kinds[i], usual, other)
        attention(t, f"{name}.self_attn", heads)
        if f.flag("use_head_wise_attn_gate"):
            t.column(f"{name}.self_attn.g_proj", heads.hidden, heads.queries)
        if i in sparse:
            mixture(t, f"{name}.moe", moe)
        else:
            gated_mlp(t, f"{name}.mlp", heads.hidden, f.required("intermediate_size"))
        t.values(2 * heads.hidden)
        _step_rope(t, f, heads, kinds[i], i, factors)

    return Blueprint(
        layers,
        lambda i: (kinds[i], i in sparse, str(factors[i : i + 1])),
        layer,
        edges(separate_head(src, base)),
    )


def _heads_in(kind: str, usual: Heads, other: Fields | None) -> Heads:
    """Windowed layers have heads of their own."""
    if other is None or kind != other.get("attention_type"):
        return usual
    keys, dim = other.size("num_attention_groups"), other.size("head_dim", usual.dim)
    return usual._replace(queries=other.size("num_attention_heads"), keys=keys, dim=dim)


def _step_rope(t: Tally, f: Fields, heads: Heads, kind: str, layer: int, factors: list[float]) -> None:
    """A table for each part of a head that is rotated, each base frequency, and with or without scaling."""
    theta = f.get("rope_theta", 10000)
    theta = theta[layer] if isinstance(theta, list) and layer < len(theta) else str(theta)
    scaled = rope_spec(f)
    only = f.get("yarn_only_types") or []
    spec = scaled if not only or kind in only else RopeSpec("default", {}, 1.0)
    spec = RopeSpec(spec.kind, spec.values, float(factors[layer]) if layer < len(factors) else 1.0)
    t.rope(rope_table(f, heads.dim, t.element_bytes, spec=spec, key=theta))


def step3_text(src: Source, base: str = "") -> Blueprint:
    """Step 3: one KV head and a low-rank query, whole on every rank; a shared expert."""
    f = src.text
    layers, hidden = f.required("num_hidden_layers"), f.required("hidden_size")
    queries, dim = f.required("num_attention_heads"), f.required("head_dim")
    rank = f.optional("share_q_dim") or queries * dim
    sparse = _expert_layers(f, layers)
    shared = f.size("share_expert_dim", 0)
    moe = Moe(hidden, f.size("moe_num_experts", 0), f.size("moe_intermediate_size", 0))
    length = f.size("max_position_embedding", 8192, "max_position_embeddings")

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        t.replicated(f"{name}.self_attn.qkv_proj", hidden, rank + 2 * dim)
        t.column(f"{name}.self_attn.wq", rank, queries * dim)
        t.row(f"{name}.self_attn.o_proj", queries * dim, hidden)
        t.values(rank + 2 * hidden)
        t.attention_scales()
        t.rope(rope_table(f, dim, t.element_bytes, positions=length))
        if i in sparse:
            mixture(t, f"{name}.moe", moe)
            gated_mlp(t, f"{name}.share_expert", hidden, shared)
        else:
            gated_mlp(t, f"{name}.mlp", hidden, f.required("intermediate_size"))

    return Blueprint(layers, lambda i: i in sparse, layer, edges(separate_head(src, base)))
