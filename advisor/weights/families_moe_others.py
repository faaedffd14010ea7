"""Mixtures of experts with routers, norms or heads of their own.

Source: vLLM 0.32 model_executor/models/ (cohere2_moe, mimo_v2, exaone_moe, afmoe, hy_v3, bailing_moe,
param2moe).
"""

from __future__ import annotations

from collections.abc import Callable

from advisor.weights.attention import Heads, Names, attention, heads_of
from advisor.weights.blueprint import Blueprint
from advisor.weights.decoder import FeedForward, Layers, decoder
from advisor.weights.feed_forward import Moe, gated_mlp, mixture
from advisor.weights.fields import Fields
from advisor.weights.rope import RopeSpec, rope_spec, rope_table
from advisor.weights.source import EVERYWHERE, Edges, Source, edges, edges_of, separate_head
from advisor.weights.tally import Tally

IsSparse = Callable[[int], bool]


def _some(moe: Moe, sparse: IsSparse, inner: int, *, bias: bool = False) -> FeedForward:
    """Experts in the layers that are sparse, a gated MLP in the others."""

    def build(t: Tally, name: str, i: int) -> None:
        if sparse(i):
            mixture(t, f"{name}.mlp", moe)
        else:
            gated_mlp(t, f"{name}.mlp", moe.hidden, inner, bias=bias)

    return build


def _decoder(
    fields: Fields, heads: Heads, moe: Moe, sparse: IsSparse, base: str, around: Edges, **more: object
) -> Blueprint:
    plan = Layers(
        fields.required("num_hidden_layers"),
        heads,
        _some(moe, sparse, fields.size("intermediate_size", 0)),
        prefix=f"{base}model.layers",
        norm_values=2 * heads.hidden,
        rope=rope_spec(fields),
        kind=sparse,
    )
    return decoder(fields, plan._replace(**more), around)  # type: ignore[arg-type]


def _after(first: int) -> IsSparse:
    return lambda i: i >= first


def _listed(fields: Fields, first: int) -> IsSparse:
    """By mlp_layer_types, else after the first dense layers."""
    kinds = fields.entries("mlp_layer_types", fields.required("num_hidden_layers"))
    return _after(first) if kinds is None else lambda i: bool(kinds[i] == "sparse")


def cohere2_moe(src: Source, base: str = "") -> Blueprint:
    """Command A with experts: one norm a layer, the head is the embeddings, both on every stage."""
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"))
    inner = f.required("intermediate_size")
    moe = Moe(heads.hidden, f.size("num_experts"), inner, shared_inner=inner * f.size("num_shared_experts", 0))
    sparse = _listed(f, f.size("first_k_dense_replace", 0))
    dense_inner = f.optional("prefix_dense_intermediate_size") or inner
    around = edges_of(src, base, tied=True, embed_on="all", norm_on="all")
    mlp = _some(moe, sparse, dense_inner)
    return _decoder(f, heads, moe, sparse, base, around, norm_values=heads.hidden, feed_forward=mlp)


def exaone_moe(src: Source, base: str = "") -> Blueprint:
    """K-EXAONE: norms over each head, a float32 bias an expert."""
    f = src.text
    heads = heads_of(f, norm="head", bias=f.flag("attention_bias"))
    inner = f.required("moe_intermediate_size")
    shared = inner * f.size("num_shared_experts", 0)
    moe = Moe(heads.hidden, f.size("num_experts"), inner, shared_inner=shared, score_bias=True)
    sparse = _listed(f, f.size("first_k_dense_replace", 1))
    mlp = _some(moe, sparse, f.required("intermediate_size"), bias=f.flag("mlp_bias"))
    return _decoder(f, heads, moe, sparse, base, edges_of(src, base), feed_forward=mlp)


def afmoe(src: Source, base: str = "") -> Blueprint:
    """Trinity: a gate on the attention output, four norms a layer, the router in float32."""
    f = src.text
    heads = heads_of(f, norm="head")
    inner = f.required("moe_intermediate_size")
    moe = Moe(
        heads.hidden,
        f.size("num_experts"),
        inner,
        shared_inner=inner * f.size("num_shared_experts", 0),
        gate_bytes=4,
        score_bias=True,
    )
    sparse = _after(f.size("num_dense_layers", 0))
    some = _some(moe, sparse, f.required("intermediate_size"))

    def mlp(t: Tally, name: str, i: int) -> None:
        t.column(f"{name}.self_attn.gate_proj", heads.hidden, heads.queries * heads.dim)
        some(t, name, i)

    around = edges_of(src, base, tied=False)
    return _decoder(f, heads, moe, sparse, base, around, feed_forward=mlp, norm_values=4 * heads.hidden)


def hy_v3(src: Source, base: str = "") -> Blueprint:
    """Hunyuan V3: the router and its bias in float32; embeddings, norm and head on every stage."""
    f = src.text
    heads = heads_of(f, norm="head" if f.flag("qk_norm") else "none")
    inner = f.required("expert_hidden_dim", "moe_intermediate_size")
    moe = Moe(
        heads.hidden,
        f.size("num_experts"),
        inner,
        shared_inner=inner * f.size("num_shared_experts", 0),
        shared="shared_mlp",
        gate_bytes=4,
        score_bias=True,
    )
    sparse = _after(f.size("first_k_dense_replace", 1))
    return _decoder(f, heads, moe, sparse, base, edges_of(src, base, **EVERYWHERE))


def mimo_v2(src: Source, base: str = "") -> Blueprint:
    """MiMo V2: full and windowed layers of different heads, sinks, wider keys than values."""
    f = src.text
    layers = f.required("num_hidden_layers")
    pattern = f.entries("hybrid_layer_pattern", layers) or [0] * layers
    frequency = f.get("moe_layer_freq")
    bias = f.flag("attention_bias")
    full = heads_of(f, bias=bias, v_dim=f.optional("v_head_dim"))
    window = full._replace(
        queries=f.size("swa_num_attention_heads", full.queries),
        keys=f.size("swa_num_key_value_heads", full.keys),
        dim=f.size("swa_head_dim", full.dim),
        v_dim=f.optional("swa_v_head_dim") or full.v_dim,
    )
    moe = Moe(
        full.hidden,
        f.size("n_routed_experts", 0),
        f.size("moe_intermediate_size", 0),
        gate_bytes=4 if f.get("moe_router_dtype", "float32") == "float32" else None,
        score_bias=True,
    )

    def is_sparse(i: int) -> bool:
        return moe.experts > 0 and (not isinstance(frequency, list) or bool(frequency[i]))

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        heads = window if pattern[i] else full
        attention(t, f"{name}.self_attn", heads)
        if pattern[i] and f.flag("add_swa_attention_sink_bias"):
            t.values(t.share(heads.queries, "the number of attention heads"))
        spec = RopeSpec("default", {}, float(f.get("partial_rotary_factor", 1.0)))
        theta = f.get("rope_theta", 1000000)
        key = f.get("swa_rope_theta", theta) if pattern[i] else theta
        t.rope(rope_table(f, heads.dim, t.element_bytes, spec=spec, key=key))
        _some(moe, is_sparse, f.size("intermediate_size", 0))(t, name, i)
        t.values(2 * heads.hidden)

    around = edges(separate_head(src, base))
    return Blueprint(layers, lambda i: (bool(pattern[i]), is_sparse(i)), layer, around)


def bailing(src: Source, base: str = "") -> Blueprint:
    """Ling and Ring (Bailing MoE 1 and 2), Sarvam MoE."""
    f = src.text
    bias = f.flag("use_bias") or f.flag("use_qkv_bias")
    heads = heads_of(f, bias=bias, out_bias=f.flag("use_bias"))
    inner = f.required("moe_intermediate_size")
    shared = f.optional("moe_shared_expert_intermediate_size") or inner
    moe = Moe(
        heads.hidden,
        f.size("num_experts"),
        inner,
        shared_inner=shared * f.size("num_shared_experts", 0),
        gate_bytes=4 if f.get("router_dtype") == "fp32" else None,
        score_bias=f.flag("moe_router_enable_expert_bias"),
    )
    norms = 2 * heads.hidden
    if f.flag("use_qk_norm"):
        norms += (2 if f.flag("use_rmsnorm") else 4) * heads.dim
    sparse = _after(f.size("first_k_dense_replace", 0))
    mlp = _some(moe, sparse, f.size("intermediate_size", 0), bias=f.flag("use_bias"))
    around = edges_of(src, base, embed=f"{base}model.word_embeddings")
    names = Names("query_key_value", "dense")
    return _decoder(
        f, heads, moe, sparse, base, around, feed_forward=mlp, norm_values=norms, attention="attention", names=names
    )


def param2_moe(src: Source, base: str = "") -> Blueprint:
    """Param 2: the router and its bias in float32, norms over each head."""
    f = src.text
    bias = f.flag("use_bias") or f.flag("use_qkv_bias")
    heads = heads_of(f, bias=bias, out_bias=f.flag("use_bias"), norm="head" if f.flag("use_qk_norm") else "none")
    inner = f.required("moe_intermediate_size")
    shared = f.optional("moe_shared_expert_intermediate_size") or inner
    moe = Moe(
        heads.hidden,
        f.size("num_experts"),
        inner,
        shared_inner=shared * f.size("num_shared_experts", 1),
        gate_bytes=4,
        score_bias=f.flag("moe_router_enable_expert_bias", True),
    )
    sparse = _after(f.size("first_k_dense_replace", 1))
    return _decoder(f, heads, moe, sparse, base, edges_of(src, base))
