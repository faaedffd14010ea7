"""Families that are recurrent throughout, or mix attention with recurrent layers in a way of their own.

Source: vLLM 0.32 model_executor/models/{mamba,mamba2,zamba2,olmo_hybrid,kimi_linear}.py,
layers/mamba/gdn/{olmo_gdn,kimi_gdn}_linear_attn.py.
"""

from __future__ import annotations

from advisor.errors import NotUnderstood
from advisor.weights.attention import heads_of, latent_attention, latent_of
from advisor.weights.blueprint import Blueprint
from advisor.weights.feed_forward import Moe, gated_mlp, mixture
from advisor.weights.fields import Fields
from advisor.weights.recurrent import DeltaNet, Mamba2, delta_net_of, mamba1, mamba2
from advisor.weights.rope import rope_spec, rope_table
from advisor.weights.source import EVERYWHERE, Source, edges, edges_of
from advisor.weights.tally import Tally


def mamba(src: Source) -> Blueprint:
    """Mamba and FalconMamba: one mixer and one norm a layer."""
    f = src.text
    hidden = f.required("hidden_size")

    def layer(t: Tally, i: int) -> None:
        mamba1(t, f"backbone.layers.{i}.mixer", f, hidden, prefix="")
        t.values(hidden)

    around = edges_of(src, embed="backbone.embeddings", tied=src.tied(default=True), **EVERYWHERE)
    return Blueprint(f.required("num_hidden_layers"), lambda _: None, layer, edges(around))


def mamba_2(src: Source) -> Blueprint:
    """Mamba-2, Codestral Mamba."""
    f = src.text
    hidden = f.required("hidden_size")
    mixer = Mamba2(
        hidden,
        f.optional("intermediate_size") or f.size("expand", 2) * hidden,
        f.size("num_heads"),
        f.size("n_groups", 1),
        f.size("state_size"),
        f.size("conv_kernel", 4),
        f.flag("use_bias"),
        f.flag("use_conv_bias", True),
    )

    def layer(t: Tally, i: int) -> None:
        mamba2(t, f"backbone.layers.{i}.mixer", mixer)
        t.values(hidden)

    around = edges_of(src, embed="backbone.embeddings", **EVERYWHERE)
    return Blueprint(f.required("num_hidden_layers"), lambda _: None, layer, edges(around))


def zamba2(src: Source) -> Blueprint:
    """Zamba 2: Mamba-2, and a few attention blocks that hybrid layers share, each with adapters of its own."""
    f = src.text
    hidden, layers = f.required("hidden_size"), f.required("num_hidden_layers")
    kinds = f.entries("layers_block_type", layers) or f.entries("layer_types", layers)
    if kinds is None:
        raise NotUnderstood("no key says which layers share attention", where="layers_block_type")
    hybrid = kinds.count("hybrid")
    mixer = Mamba2(
        hidden,
        f.size("mamba_expand", 2) * hidden,
        f.size("n_mamba_heads", 8),
        f.size("mamba_ngroups", 1),
        f.size("mamba_d_state", 64),
        f.size("mamba_d_conv", 4),
        f.flag("add_bias_linear"),
        f.flag("use_conv_bias", True),
    )

    def layer(t: Tally, i: int) -> None:
        mamba2(t, f"model.layers.{i}.mamba.mixer", mixer)
        t.values(hidden)
        if kinds[i] == "hybrid":
            _zamba_adapters(t, f"model.layers.{i}", f)

    def add(t: Tally, _first: bool, _last: bool) -> None:
        for block in range(min(f.size("num_mem_blocks", 1), hybrid)):
            _zamba_block(t, f"model.layers.{kinds.index('hybrid')}.shared_transformer.{block}", f)

    around = edges_of(src, tied=True, more=add, **EVERYWHERE)
    return Blueprint(layers, lambda i: kinds[i], layer, edges(around))


def _zamba_wide(f: Fields) -> int:
    return f.size("attention_hidden_size", 2 * f.required("hidden_size"))


def _zamba_adapters(t: Tally, name: str, f: Fields) -> None:
    """What a hybrid layer has besides its Mamba mixer: a projection, adapters, the scales of its attention."""
    hidden, inner, rank = f.required("hidden_size"), f.required("intermediate_size"), f.size("adapter_rank", 128)
    wide = _zamba_wide(f)
    t.replicated(f"{name}.linear", hidden, hidden)
    t.column(f"{name}.gate_up_proj_adapter.A", hidden, rank)
    t.column(f"{name}.gate_up_proj_adapter.B", rank, inner, inner)
    if f.flag("use_shared_attention_adapter"):
        for part in "qkv":
            t.column(f"{name}.linear_{part}_adapter.A", wide, rank)
            t.column(f"{name}.linear_{part}_adapter.B", rank, wide)
    t.attention_scales()


def _zamba_block(t: Tally, name: str, f: Fields) -> None:
    """One shared block: attention over twice the hidden size, a gated MLP, two norms."""
    hidden, inner, heads = f.required("hidden_size"), f.required("intermediate_size"), f.required("num_attention_heads")
    wide = _zamba_wide(f)
    dim = f.size("attention_head_dim", wide // heads)
    bias = f.flag("add_bias_linear")
    t.qkv(f"{name}.self_attn.qkv_proj", wide, heads, heads, dim)
    t.row(f"{name}.self_attn.o_proj", wide, hidden)
    gated_mlp(t, f"{name}.feed_forward", hidden, inner, bias=bias)
    t.values(wide + hidden)
    if f.flag("use_mem_rope"):
        t.rope(rope_table(f, dim, t.element_bytes))


def olmo_hybrid(src: Source, base: str = "") -> Blueprint:
    """OLMo Hybrid: delta nets, every fourth layer attention with norms over all heads."""
    f = src.text
    layers = f.required("num_hidden_layers")
    kinds = f.entries("layer_types", layers) or [
        "full_attention" if i % 4 == 3 else "linear_attention" for i in range(layers)
    ]
    heads = heads_of(f, norm="whole")
    net = delta_net_of(f)
    rotary = rope_spec(f) if f.values.get("rope_parameters") or f.get("rope_theta", 0) is not None else None

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        if kinds[i] == "linear_attention":
            _olmo_delta(t, f"{name}.linear_attn", net)
        else:
            t.qkv(f"{name}.self_attn.qkv_proj", heads.hidden, heads.queries, heads.keys, heads.dim)
            t.row(f"{name}.self_attn.o_proj", heads.queries * heads.dim, heads.hidden)
            t.values((heads.queries + heads.keys) * heads.dim)
            t.attention_scales()
            if rotary is not None:
                t.rope(rope_table(f, heads.dim, t.element_bytes, spec=rotary))
        gated_mlp(t, f"{name}.mlp", heads.hidden, f.required("intermediate_size"))
        t.values(2 * heads.hidden)

    return Blueprint(layers, lambda i: kinds[i], layer, edges(edges_of(src, base, **EVERYWHERE)))


def _olmo_delta(t: Tally, name: str, g: DeltaNet) -> None:
    """As Qwen's delta net, but the decay in the model's dtype and its two inputs apart."""
    keys, values = g.key_heads * g.key_dim, g.value_heads * g.value_dim
    t.column(f"{name}.in_proj_qkvg", g.hidden, keys, keys, values, values)
    t.column(f"{name}.b_proj", g.hidden, g.value_heads)
    t.column(f"{name}.a_proj", g.hidden, g.value_heads)
    t.row(f"{name}.o_proj", values, g.hidden)
    t.values(t.share(2 * keys + values, "the convolution of a delta net") * g.kernel)
    t.values(2 * t.share(g.value_heads, "the number of linear-attention heads") + g.value_dim)


def kimi_linear(src: Source, base: str = "") -> Blueprint:
    """Kimi Linear: delta attention by channel, every fourth layer latent attention without positions."""
    f = src.text
    layers = f.required("num_hidden_layers")
    linear = f.part("linear_attn_config")
    if linear is None:
        raise NotUnderstood("no key says which layers are linear", where=f.where + "linear_attn_config")
    delta = {int(i) - 1 for i in linear.get("kda_layers") or ()}
    a = latent_of(f)
    count, inner = f.size("num_experts", 0), f.size("moe_intermediate_size", 0)
    first, step = f.size("first_k_dense_replace", 0), f.size("moe_layer_freq", 1) or 1
    shared = inner * f.size("num_shared_experts", 0)
    moe = Moe(a.hidden, count, inner, shared_inner=shared, score_bias=True)

    def is_sparse(i: int) -> bool:
        return count > 0 and i >= first and i % step == 0

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        if i in delta:
            _kimi_delta(t, f"{name}.self_attn", linear, a.hidden)
        else:
            latent_attention(t, f"{name}.self_attn", a)
            t.values(1, 4)  # a scale of one
        if is_sparse(i):
            mixture(t, f"{name}.block_sparse_moe", moe)
        else:
            gated_mlp(t, f"{name}.mlp", a.hidden, f.required("intermediate_size"))
        t.values(2 * a.hidden)

    return Blueprint(layers, lambda i: (i in delta, is_sparse(i)), layer, edges(edges_of(src, base)))


def _kimi_delta(t: Tally, name: str, linear: Fields, hidden: int) -> None:
    """Projections in one but for the gates' low ranks; convolution, decay and its bias in float32."""
    heads, dim, kernel = linear.size("num_heads"), linear.size("head_dim"), linear.size("short_conv_kernel_size", 4)
    wide = heads * dim
    t.column(f"{name}.in_proj_qkvgfab", hidden, wide, wide, wide, heads)
    t.replicated(f"{name}.in_proj_qkvgfab", hidden, dim)
    t.column(f"{name}.f_b_proj", dim, wide)
    t.replicated(f"{name}.g_a_proj", hidden, dim)
    t.column(f"{name}.g_b_proj", dim, wide)
    t.row(f"{name}.o_proj", wide, hidden)
    here = t.share(wide, "the width of linear attention")
    t.values(3 * here * kernel + here + t.share(heads, "the number of linear-attention heads"), 4)
    t.values(dim)
