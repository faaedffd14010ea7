"""Families with routed experts and ordinary attention.

Source: vLLM 0.32 model_executor/models/ (mixtral, qwen2_moe, qwen3_moe, glm4_moe, minimax_m2, granitemoe, phimoe,
ernie45_moe, laguna, gpt_oss, olmoe).
"""

from __future__ import annotations

from collections.abc import Callable

from advisor.weights.attention import Heads, attention, heads_of
from advisor.weights.blueprint import Blueprint
from advisor.weights.decoder import FeedForward, Layers, decoder
from advisor.weights.feed_forward import Moe, gated_mlp, mixture
from advisor.weights.fields import Fields
from advisor.weights.rope import RopeSpec, rope_spec, rope_table
from advisor.weights.source import EVERYWHERE, Edges, Source, edges, edges_of
from advisor.weights.tally import Tally

IsSparse = Callable[[int], bool]


def some_sparse(fields: Fields, moe: Moe, sparse: IsSparse, *, mlp: str = "mlp") -> FeedForward:
    """Experts in the layers that are sparse, a plain gated MLP of `intermediate_size` in the others."""
    dense_inner = fields.size("intermediate_size", 0)

    def build(t: Tally, name: str, i: int) -> None:
        if sparse(i):
            mixture(t, f"{name}.{mlp}", moe)
        else:
            gated_mlp(t, f"{name}.{mlp}", moe.hidden, dense_inner)

    return build


def _decoder(
    fields: Fields, heads: Heads, moe: Moe, sparse: IsSparse, base: str, around: Edges, **more: object
) -> Blueprint:
    plan = Layers(
        fields.required("num_hidden_layers"),
        heads,
        some_sparse(fields, moe, sparse, mlp=str(more.pop("mlp", "mlp"))),
        prefix=f"{base}model.layers",
        norm_values=2 * heads.hidden,
        rope=rope_spec(fields),
        kind=sparse,
    )
    return decoder(fields, plan._replace(**more), around)  # type: ignore[arg-type]


def _always(_: int) -> bool:
    return True


def every_step(fields: Fields) -> IsSparse:
    """Qwen's rule: every `decoder_sparse_step`-th layer but those in mlp_only_layers."""
    step = fields.size("decoder_sparse_step", 1) or 1
    only = frozenset(fields.get("mlp_only_layers") or ())
    has_experts = fields.size("num_experts", 0, "num_local_experts") > 0
    return lambda i: has_experts and i not in only and (i + 1) % step == 0


def qwen_moe(fields: Fields) -> Moe:
    """The experts of Qwen2-MoE, Qwen3-MoE, Qwen3-Next and Qwen3.5, the shared one behind a gate of its own."""
    shared = fields.size("shared_expert_intermediate_size", 0)
    return Moe(
        fields.required("hidden_size"),
        fields.size("num_experts", 0, "num_local_experts"),
        fields.size("moe_intermediate_size", 0),
        shared_inner=shared,
        shared="shared_expert",
        shared_gate=shared > 0,
    )


def qwen2_moe(src: Source, base: str = "") -> Blueprint:
    """Qwen1.5-MoE and Qwen2-MoE."""
    f = src.text
    heads = heads_of(f, bias=f.flag("qkv_bias", True))
    return _decoder(f, heads, qwen_moe(f), every_step(f), base, edges_of(src, base, **EVERYWHERE))


def qwen3_moe(src: Source, base: str = "", mrope_factor: int = 4) -> Blueprint:
    """Qwen3-MoE; its router is quantised where the checkpoint does not exclude it."""
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"), norm="head")
    moe = qwen_moe(f)._replace(gate_quantised=True)
    return _decoder(f, heads, moe, every_step(f), base, edges_of(src, base, **EVERYWHERE), mrope_factor=mrope_factor)


def mixtral(src: Source, base: str = "") -> Blueprint:
    """Mixtral."""
    f = src.text
    moe = Moe(
        f.required("hidden_size"), f.size("num_local_experts", None, "num_experts"), f.required("intermediate_size")
    )
    return _decoder(f, heads_of(f), moe, _always, base, edges_of(src, base, **EVERYWHERE), mlp="block_sparse_moe")


def glm4_moe(src: Source, base: str = "") -> Blueprint:
    """GLM-4.5 to 4.7: the router and its bias in float32, the first layers dense."""
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"), norm="head" if f.flag("use_qk_norm") else "none")
    first = f.size("first_k_dense_replace", 0)
    inner = f.required("moe_intermediate_size")
    moe = Moe(
        heads.hidden,
        f.size("n_routed_experts", None, "num_local_experts"),
        inner,
        shared_inner=inner * f.size("n_shared_experts", 0),
        gate_bytes=4,
        score_bias=True,
    )
    return _decoder(f, heads, moe, lambda i: i >= first, base, edges_of(src, base, tied=False))


def minimax_m2(src: Source, base: str = "") -> Blueprint:
    """MiniMax M2: norms over all heads of a rank, the router in float32."""
    f = src.text
    heads = heads_of(f, norm="cut" if f.flag("use_qk_norm", True) else "none")
    inner = f.required("intermediate_size")
    moe = Moe(heads.hidden, f.size("num_local_experts", None, "num_experts"), inner, gate_bytes=4, score_bias=True)
    rotary = f.optional("rotary_dim")
    spec = rope_spec(f)
    if rotary:
        spec = RopeSpec(spec.kind, spec.values, rotary / heads.dim)
    length = max(f.size("max_position_embeddings", 8192), src.max_model_len or 0)
    return _decoder(
        f,
        heads,
        moe,
        _always,
        base,
        edges_of(src, base, tied=False),
        mlp="block_sparse_moe",
        rope=spec,
        rope_positions=length,
    )


def granite_moe(src: Source, base: str = "") -> Blueprint:
    """Granite 3 MoE, with a shared MLP where the config sizes one."""
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"), out_bias=f.flag("attention_bias"))
    shared = f.size("shared_intermediate_size", 0)
    moe = Moe(heads.hidden, f.size("num_local_experts", None, "num_experts"), f.required("intermediate_size"))

    def build(t: Tally, name: str, _: int) -> None:
        mixture(t, f"{name}.block_sparse_moe", moe)
        if shared:
            gated_mlp(t, f"{name}.shared_mlp", heads.hidden, shared, up="input_linear", down="output_linear")

    around = edges_of(src, base, **EVERYWHERE)
    return _decoder(f, heads, moe, _always, base, around, feed_forward=build)


def phi_moe(src: Source, base: str = "") -> Blueprint:
    """Phi-3.5-MoE: norms, projections and head with biases."""
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"), out_bias=f.flag("attention_bias"))
    moe = Moe(heads.hidden, f.size("num_local_experts", None), f.required("intermediate_size"))
    around = edges_of(src, base, norm=2 * heads.hidden, head_bias=f.flag("lm_head_bias"), **EVERYWHERE)._replace(
        tied=False
    )
    return _decoder(f, heads, moe, _always, base, around, mlp="block_sparse_moe", norm_values=4 * heads.hidden)


def ernie45_moe(src: Source, base: str = "") -> Blueprint:
    """ERNIE 4.5 MoE: experts in a range of layers."""
    f = src.text
    bias = f.flag("use_bias")
    heads = heads_of(f, bias=bias, out_bias=bias)
    layers = f.required("num_hidden_layers")
    start, end = f.size("moe_layer_start_index", 0), f.size("moe_layer_end_index", layers - 1)
    step = f.size("moe_layer_interval", 1) or 1
    inner = f.required("moe_intermediate_size")
    moe = Moe(
        heads.hidden,
        f.size("moe_num_experts"),
        inner,
        shared_inner=inner * f.size("moe_num_shared_experts", 0),
        gate_bytes=4,
        score_bias=True,
        shared_bias=bias,
    )
    return _decoder(f, heads, moe, lambda i: start <= i <= end and (i + 1) % step == 0, base, edges_of(src, base))


def olmoe(src: Source, base: str = "") -> Blueprint:
    """OLMoE: norms over all heads of a rank."""
    f = src.text
    heads = heads_of(f, norm="cut")
    moe = Moe(heads.hidden, f.size("num_experts"), f.required("intermediate_size"))
    return _decoder(f, heads, moe, _always, base, edges_of(src, base, **EVERYWHERE)._replace(tied=False))


def gpt_oss(src: Source, base: str = "") -> Blueprint:
    """gpt-oss: biases everywhere, a sink a head, a float32 rotary table; every stage builds embeddings and head."""
    f = src.text
    heads = heads_of(f, bias=True, out_bias=True)
    moe = Moe(
        heads.hidden,
        f.size("num_local_experts", None, "num_experts"),
        f.required("intermediate_size"),
        bias=True,
        gate="router",
        gate_bias=True,
    )
    spec = rope_spec(f)

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        attention(t, f"{name}.attn", heads)
        t.values(t.share(heads.queries, "the number of attention heads"))
        mixture(t, f"{name}.mlp", moe)
        t.values(2 * heads.hidden)
        t.rope(rope_table(f, heads.dim, 4, spec=spec))

    around = edges_of(src, base, tied=False, embed=f"{base}model.embedding", **EVERYWHERE)
    return Blueprint(f.required("num_hidden_layers"), lambda _: None, layer, edges(around))


def laguna(src: Source, base: str = "") -> Blueprint:
    """Laguna: heads and rotary table by kind of layer, a gate on the attention output, projections not merged."""
    f = src.text
    layers = f.required("num_hidden_layers")
    kinds = f.entries("layer_types", layers) or ["full_attention"] * layers
    per_layer = f.entries("num_attention_heads_per_layer", layers)
    sparse = f.entries("mlp_layer_types", layers) or ["dense"] + ["sparse"] * (layers - 1)
    usual = heads_of(f, norm="head")
    inner, shared = f.size("moe_intermediate_size", 0), f.size("shared_expert_intermediate_size", 0)
    moe = Moe(usual.hidden, f.size("num_experts", 0), inner, score_bias=True)
    gate = f.get("gating", True)

    def mlp(t: Tally, name: str, size: int) -> None:
        t.column(f"{name}.gate_proj", usual.hidden, size)
        t.column(f"{name}.up_proj", usual.hidden, size)
        t.row(f"{name}.down_proj", size, usual.hidden)

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        heads = usual if per_layer is None else usual._replace(queries=int(per_layer[i]))
        attention(t, f"{name}.self_attn", heads)
        if gate:
            width = heads.queries if gate is True or gate == "per-head" else heads.queries * heads.dim
            t.column(f"{name}.self_attn.g_proj", heads.hidden, width)
        if sparse[i] == "sparse":
            mixture(t, f"{name}.mlp", moe)
            if shared:
                mlp(t, f"{name}.mlp.shared_expert", shared)
        else:
            mlp(t, f"{name}.mlp", f.required("intermediate_size"))
        t.values(2 * usual.hidden)
        t.rope(rope_table(f, usual.dim, t.element_bytes, spec=rope_spec(f, kinds[i]), key=kinds[i]))

    def kind(i: int) -> object:
        return kinds[i], None if per_layer is None else per_layer[i], sparse[i]

    return Blueprint(layers, kind, layer, edges(edges_of(src, base)))
