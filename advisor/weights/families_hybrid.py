"""Families that mix attention with recurrent layers.

Source: vLLM 0.32 model_executor/models/ (qwen3_next, qwen3_5, nemotron_h, lfm2, lfm2_moe, jamba, granitemoehybrid,
falcon_h1, zamba2, bamba, mamba, mamba2).
"""

from __future__ import annotations

from advisor.errors import NotUnderstood
from advisor.weights.attention import Names, attention, heads_of
from advisor.weights.blueprint import Blueprint
from advisor.weights.families_moe import every_step, qwen_moe
from advisor.weights.feed_forward import Moe, gated_mlp, mixture, plain_mlp
from advisor.weights.fields import Fields
from advisor.weights.recurrent import Mamba2, delta_net, delta_net_of, mamba1, mamba2, projection_width, short_conv
from advisor.weights.rope import rope_spec, rope_table
from advisor.weights.source import EVERYWHERE, Edges, Source, edges, edges_of
from advisor.weights.tally import Tally


def qwen3_next(src: Source, base: str = "") -> Blueprint:
    """Qwen3-Next: delta nets, every fourth layer gated attention."""
    return delta_hybrid(src, edges_of(src, base, tied=False, embed_on="all", head_on="all"), base, parts=False)


def qwen3_5(src: Source, base: str = "", mrope_factor: int = 1) -> Blueprint:
    """Qwen3.5 and later: as Qwen3-Next, dense or with experts, the head on the last stage only."""
    tied = src.text.flag("tie_word_embeddings") and not src.untied  # of the text part, whatever the root says
    return delta_hybrid(src, edges_of(src, base, embed_on="all", tied=tied), base, mrope_factor)


def delta_hybrid(src: Source, around: Edges, base: str, mrope_factor: int = 4, *, parts: bool = True) -> Blueprint:
    """Delta nets and gated attention, with MLPs or experts."""
    f = src.text
    layers = f.required("num_hidden_layers")
    every = f.size("full_attention_interval", 4) or 4
    kinds = f.entries("layer_types", layers)
    full = [k == "full_attention" for k in kinds] if kinds else [(i + 1) % every == 0 for i in range(layers)]
    gated = f.flag("attn_output_gate", True)
    heads = heads_of(f, bias=f.flag("qkv_bias"), norm="head", gated=gated)
    net = delta_net_of(f)
    moe = qwen_moe(f)
    sparse = every_step(f)
    scales = f.flag("layer_scale")
    spec = rope_spec(f)

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        if full[i]:
            attention(t, f"{name}.self_attn", heads)
            t.rope(rope_table(f, heads.dim, t.element_bytes, spec=spec, mrope_factor=mrope_factor))
        else:
            delta_net(t, f"{name}.linear_attn", net, parts=parts)
        if sparse(i):
            mixture(t, f"{name}.mlp", moe)
        else:
            gated_mlp(t, f"{name}.mlp", heads.hidden, f.required("intermediate_size"))
        t.values((4 if scales else 2) * heads.hidden)

    return Blueprint(layers, lambda i: (full[i], sparse(i)), layer, edges(around))


def nemotron_h(src: Source, base: str = "") -> Blueprint:
    """Nemotron-H and Nemotron 3: one of Mamba-2, attention, MLP or experts a layer, by the pattern."""
    f = src.text
    letters = _pattern(f)
    heads = heads_of(f, bias=f.flag("attention_bias"), out_bias=f.flag("attention_bias"))
    mamba = Mamba2(
        heads.hidden,
        f.size("mamba_num_heads") * f.size("mamba_head_dim"),
        f.size("mamba_num_heads"),
        f.size("n_groups"),
        f.size("ssm_state_size", None, "state_size"),
        f.size("conv_kernel", 4),
        f.flag("use_bias"),
        f.flag("use_conv_bias", True),
    )
    bias = f.flag("mlp_bias")

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}.mixer"
        t.values(heads.hidden)
        if letters[i] == "M":
            mamba2(t, name, mamba)
        elif letters[i] == "*":
            attention(t, name, heads)
        elif letters[i] == "E":
            _nemotron_experts(t, name, f, bias=bias)
        else:
            plain_mlp(t, name, heads.hidden, _mlp_size(f, letters, i), bias=bias)

    def kind(i: int) -> object:
        return letters[i], _mlp_size(f, letters, i) if letters[i] == "-" else 0

    return Blueprint(len(letters), kind, layer, edges(edges_of(src, base, tied=False, **EVERYWHERE)))


def _nemotron_experts(t: Tally, name: str, f: Fields, *, bias: bool) -> None:
    """Experts, in a smaller space than the layer's where one is stated; the router's dtype is the GPU's choice."""
    hidden, latent, count = f.required("hidden_size"), f.optional("moe_latent_size"), f.size("n_routed_experts")
    t.values(hidden * count, 2 if t.rank.capability[0] in (9, 10) else 4)
    inner = f.required("moe_intermediate_size")
    mixture(t, name, Moe(latent or hidden, count, inner, gated=False, gate_bytes=0, score_bias=True))
    shared = f.size("moe_shared_expert_intermediate_size", 0) * f.size("n_shared_experts", 0)
    if shared:
        plain_mlp(t, f"{name}.shared_experts", hidden, shared, bias=bias)
    if latent:
        t.replicated(f"{name}.fc1_latent_proj", hidden, latent, bias=bias)
        t.replicated(f"{name}.fc2_latent_proj", latent, hidden, bias=bias)


_LETTERS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E", "full_attention": "*"}


def _pattern(f: Fields) -> str:
    pattern = f.get("hybrid_override_pattern")
    if isinstance(pattern, str) and pattern:
        return pattern.replace("|", "")
    kinds = f.get("layers_block_type") or f.get("layer_types")
    if not isinstance(kinds, list) or not all(k in _LETTERS for k in kinds):
        raise NotUnderstood("no pattern says which layers are Mamba", where="hybrid_override_pattern")
    return "".join(_LETTERS[k] for k in kinds)


def _mlp_size(f: Fields, letters: str, i: int) -> int:
    sizes = f.get("intermediate_size")
    if isinstance(sizes, list):
        return int(sizes[letters[: i + 1].count("-") - 1] if len(sizes) > 1 else sizes[0])
    return f.required("intermediate_size")


def lfm2(src: Source, base: str = "") -> Blueprint:
    """LFM2: short convolutions and attention, the MLP width rounded; LFM2-MoE: experts after the first layers."""
    f = src.text
    layers = f.required("num_hidden_layers")
    kinds = f.entries("layer_types", layers)
    full = f.get("full_attn_idxs")
    if kinds is None and isinstance(full, list):
        kinds = ["full_attention" if i in full else "conv" for i in range(layers)]
    if kinds is None:
        raise NotUnderstood("no key says which layers are convolutions", where=f.where + "layer_types")
    heads = heads_of(f, norm="head")
    count = f.size("num_experts", 0)
    dense = f.size("num_dense_layers", 0) if count else layers
    inner = f.required("intermediate_size", "block_ff_dim") if count else _lfm2_width(f)
    moe = Moe(heads.hidden, count, f.size("moe_intermediate_size", 0), gate_quantised=True,
              score_bias=f.flag("use_expert_bias", True))  # fmt: skip
    kernel, bias = f.size("conv_L_cache", 3), f.flag("conv_bias")
    spec = rope_spec(f)

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        if kinds[i] == "full_attention":
            attention(t, f"{name}.self_attn", heads, Names(out="out_proj"))
            t.rope(rope_table(f, heads.dim, t.element_bytes, spec=spec))
        else:
            short_conv(t, f"{name}.short_conv", heads.hidden, kernel, bias=bias)
        if i < dense:
            gated_mlp(t, f"{name}.feed_forward", heads.hidden, inner, up="w13", down="w2")
        else:
            mixture(t, f"{name}.feed_forward", moe)
        t.values(2 * heads.hidden)

    return Blueprint(
        layers, lambda i: (kinds[i], i < dense), layer, edges(edges_of(src, base, tied=True, embed_on="all"))
    )


def _lfm2_width(f: Fields) -> int:
    inner = f.required("block_ff_dim", "intermediate_size")
    if f.flag("block_auto_adjust_ff_dim", True):
        inner = int(2 * inner / 3)
        multiplier = f.get("block_ffn_dim_multiplier", 1.0)
        if multiplier is not None:
            inner = int(float(multiplier) * inner)
        step = f.size("block_multiple_of", 256)
        inner = step * -(-inner // step)
    return inner


def jamba(src: Source, base: str = "") -> Blueprint:
    """Jamba: Mamba-1 and attention, experts in every second layer; no rotary embedding."""
    f = src.text
    layers = f.required("num_hidden_layers")
    heads = heads_of(f)
    a_step, a_at = f.size("attn_layer_period", 8), f.size("attn_layer_offset", 4)
    e_step, e_at = f.size("expert_layer_period", 2), f.size("expert_layer_offset", 1)
    inner, count = f.required("intermediate_size"), f.size("num_experts", 1)
    moe = Moe(heads.hidden, count, inner, gate="router")

    def kind(i: int) -> tuple[bool, bool]:
        return i % a_step == a_at, i % e_step == e_at and count > 1

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        has_heads, has_experts = kind(i)
        if has_heads:
            attention(t, name, heads)
        else:
            mamba1(t, f"{name}.mamba", f, heads.hidden, norms=True)
        if has_experts:
            mixture(t, f"{name}.feed_forward", moe)
        else:
            gated_mlp(t, f"{name}.feed_forward", heads.hidden, inner)
        t.values(2 * heads.hidden)

    return Blueprint(layers, kind, layer, edges(edges_of(src, base, tied=False, **EVERYWHERE)))


def _mamba2_of(f: Fields, hidden: int, *, norm: bool = True) -> Mamba2:
    """The sizes under Bamba's, Granite's and Falcon-H1's keys."""
    heads = f.size("mamba_n_heads")
    stated = f.get("mamba_d_ssm")
    inner = int(stated) if stated else f.size("mamba_expand", 2) * hidden
    return Mamba2(
        hidden,
        inner,
        heads,
        f.size("mamba_n_groups", 1),
        f.size("mamba_d_state"),
        f.size("mamba_d_conv", 4),
        f.flag("mamba_proj_bias"),
        f.flag("mamba_conv_bias", True),
        norm,
    )


def granite_hybrid(src: Source, base: str = "") -> Blueprint:
    """Granite 4: Mamba-2 and attention, experts and a shared MLP in every layer."""
    f = src.text
    layers = f.required("num_hidden_layers")
    kinds = f.entries("layer_types", layers) or f.entries("layers_block_type", layers) or ["mamba"] * layers
    heads = heads_of(f, bias=f.flag("attention_bias"), out_bias=f.flag("attention_bias"))
    mixer = _mamba2_of(f, heads.hidden)
    count, inner = f.size("num_local_experts", 0, "num_experts"), f.size("intermediate_size", 0)
    shared = f.size("shared_intermediate_size", 0)
    moe = Moe(heads.hidden, count, inner)
    rotary = f.get("position_embedding_type") == "rope"

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        if kinds[i] == "mamba":
            mamba2(t, f"{name}.mamba", mixer)
        else:
            attention(t, f"{name}.self_attn", heads)
            if rotary:
                t.rope(rope_table(f, heads.dim, t.element_bytes))
        if count:
            mixture(t, f"{name}.block_sparse_moe", moe)
        if shared:
            gated_mlp(t, f"{name}.shared_mlp", heads.hidden, shared, up="input_linear", down="output_linear")
        t.values(2 * heads.hidden)

    return Blueprint(layers, lambda i: kinds[i], layer, edges(edges_of(src, base, **EVERYWHERE)))


def bamba(src: Source, base: str = "") -> Blueprint:
    """Bamba: Mamba-2, attention at listed layers, a gated MLP in each."""
    f = src.text
    layers = f.required("num_hidden_layers")
    kinds = f.entries("layers_block_type", layers)
    at = f.get("attn_layer_indices") or []
    full = [kinds[i] == "attention" if kinds else i in at for i in range(layers)]
    heads = heads_of(f, bias=f.flag("attention_bias"), out_bias=f.flag("attention_bias"))
    mixer = _mamba2_of(f, heads.hidden)

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        if full[i]:
            attention(t, f"{name}.self_attn", heads)
            t.rope(rope_table(f, heads.dim, t.element_bytes))
        else:
            mamba2(t, f"{name}.mamba", mixer)
        gated_mlp(t, f"{name}.feed_forward", heads.hidden, f.required("intermediate_size"), bias=f.flag("mlp_bias"))
        t.values(2 * heads.hidden)

    return Blueprint(layers, lambda i: full[i], layer, edges(edges_of(src, base, **EVERYWHERE)))


def falcon_h1(src: Source, base: str = "") -> Blueprint:
    """Falcon-H1: Mamba-2 and attention side by side in every layer."""
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"), out_bias=f.flag("attention_bias"))
    mixer = _mamba2_of(f, heads.hidden, norm=f.flag("mamba_rms_norm"))
    spec = rope_spec(f)

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        attention(t, f"{name}.self_attn", heads)
        t.rope(rope_table(f, heads.dim, t.element_bytes, spec=spec))
        mamba2(t, f"{name}.mamba.mamba", mixer)
        t.values(projection_width(t, mixer))  # the multipliers of the projection
        gated_mlp(t, f"{name}.feed_forward", heads.hidden, f.required("intermediate_size"), bias=f.flag("mlp_bias"))
        t.values(2 * heads.hidden)

    return Blueprint(f.required("num_hidden_layers"), lambda _: None, layer, edges(edges_of(src, base)))
