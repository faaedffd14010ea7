"""Families with latent attention (MLA): DeepSeek V2 to V3.2, Kimi K2, GLM-4.7-Flash, GLM-5.

Source: vLLM 0.32 model_executor/models/{deepseek_v2,glm4_moe_lite}.py, models/deepseek_v32/. MTP layers are not loaded
without speculative decoding and are not counted.
"""

from __future__ import annotations

from advisor.weights.attention import (
    attention,
    has_indexer,
    heads_of,
    indexer,
    latent_attention,
    latent_of,
    latent_projections,
)
from advisor.weights.blueprint import Blueprint
from advisor.weights.feed_forward import Moe, gated_mlp, mixture
from advisor.weights.fields import Fields
from advisor.weights.rope import RopeSpec, rope_spec, rope_table
from advisor.weights.source import EVERYWHERE, Source, edges, edges_of
from advisor.weights.tally import Tally


def deepseek_moe(fields: Fields) -> Moe | None:
    """The experts of a DeepSeek config, or None without any; `noaux_tc` routing has a float32 bias an expert."""
    count = fields.optional("n_routed_experts")
    if count is None:
        return None
    inner = fields.required("moe_intermediate_size")
    return Moe(
        fields.required("hidden_size"),
        count,
        inner,
        shared_inner=inner * fields.size("n_shared_experts", 0),
        score_bias=fields.get("topk_method") == "noaux_tc",
    )


def _deepseek_rope(fields: Fields) -> RopeSpec:
    """Any scaling of an MLA model is DeepSeek's yarn, whose table has the scaled length."""
    spec = rope_spec(fields)
    return spec if spec.kind == "default" else RopeSpec("deepseek_yarn", spec.values, 1.0)


def _latent(
    src: Source, base: str, moe: Moe | None, *, sparse_attention: bool = False, norms: int = 2, tied: bool = False
) -> Blueprint:
    f = src.text
    a = latent_of(f)
    first = f.size("first_k_dense_replace", 0)
    step = f.size("moe_layer_freq", 1) or 1
    spec = _deepseek_rope(f)
    shares = f.flag("indexer_rope_interleave")

    def is_sparse(i: int) -> bool:
        return moe is not None and i >= first and i % step == 0

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        latent_attention(t, f"{name}.self_attn", a)
        t.rope(rope_table(f, a.rope, t.element_bytes, spec=spec))
        if sparse_attention and has_indexer(f, i):
            indexer(t, f"{name}.self_attn.indexer", f, a)
            if not shares:
                t.rope(rope_table(f, a.rope, t.element_bytes, spec=spec, key="indexer"))
        if moe is not None and is_sparse(i):
            mixture(t, f"{name}.mlp", moe)
        else:
            gated_mlp(t, f"{name}.mlp", a.hidden, f.required("intermediate_size"))
        t.values(norms * a.hidden)

    def kind(i: int) -> tuple[bool, bool]:
        return is_sparse(i), sparse_attention and has_indexer(f, i)

    around = edges_of(src, base, tied=tied)
    return Blueprint(f.required("num_hidden_layers"), kind, layer, edges(around))


def deepseek(src: Source, base: str = "") -> Blueprint:
    """DeepSeek V2 and V3, R1, Kimi K2; ordinary heads where the config has no latent sizes (DeepSeek-MoE)."""
    f = src.text
    if f.get("model_type") == "deepseek" or not (f.size("qk_nope_head_dim", 0) or f.size("qk_rope_head_dim", 0)):
        return _deepseek_heads(src, base)
    return _latent(src, base, deepseek_moe(f))


def deepseek_sparse(src: Source, base: str = "") -> Blueprint:
    """DeepSeek V3.2 and GLM-5: an indexer in every layer, or in those that do not reuse another's choice."""
    return _latent(src, base, deepseek_moe(src.text), sparse_attention=True)


def ax_k1(src: Source, base: str = "") -> Blueprint:
    """A.X K1: DeepSeek V3 with a norm after the experts."""
    return _latent(src, base, deepseek_moe(src.text), norms=3)


def sarvam_mla(src: Source, base: str = "") -> Blueprint:
    """Sarvam with latent attention."""
    f = src.text
    inner = f.required("moe_intermediate_size")
    moe = Moe(
        f.required("hidden_size"),
        f.size("num_experts"),
        inner,
        shared_inner=(f.optional("moe_shared_expert_intermediate_size") or inner) * f.size("num_shared_experts", 1),
        score_bias=f.flag("moe_router_enable_expert_bias", True),
    )
    return _latent(src, base, moe, tied=src.tied())


def minicpm3(src: Source, base: str = "") -> Blueprint:
    """MiniCPM 3: latent projections, but ordinary heads in the cache; embeddings, norm and head on every stage."""
    f = src.text
    a = latent_of(f)

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        latent_projections(t, f"{name}.self_attn", a)
        t.attention_scales()
        t.rope(rope_table(f, a.rope, t.element_bytes))
        gated_mlp(t, f"{name}.mlp", a.hidden, f.required("intermediate_size"))
        t.values(2 * a.hidden)

    around = edges_of(src, base, tied=src.tied(default=True), **EVERYWHERE)
    return Blueprint(f.required("num_hidden_layers"), lambda _: None, layer, edges(around))


def longcat_flash(src: Source, base: str = "") -> Blueprint:
    """LongCat-Flash: two attentions, two MLPs and one mixture a layer, experts that do nothing, a float32 router."""
    f = src.text
    a = latent_of(f)
    inner = f.required("ffn_hidden_size", "intermediate_size")
    experts = f.size("n_routed_experts")
    routed = experts + f.size("zero_expert_num", 0)
    moe = Moe(a.hidden, experts, f.required("expert_ffn_hidden_size", "moe_intermediate_size"), gate_bytes=0)

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        for half in range(2):
            latent_attention(t, f"{name}.self_attn.{half}", a)
            gated_mlp(t, f"{name}.mlps.{half}", a.hidden, inner)
        t.values(4 * a.hidden)
        t.values(routed * (a.hidden + 1), 4)
        mixture(t, f"{name}.mlp", moe)
        t.rope(rope_table(f, a.rope, t.element_bytes, spec=_deepseek_rope(f)))

    around = edges_of(src, base, tied=False)
    return Blueprint(f.required("num_layers", "num_hidden_layers"), lambda _: None, layer, edges(around))


def pangu(src: Source, base: str = "") -> Blueprint:
    """Pangu Ultra MoE: DeepSeek V3 with two more norms where the config says so."""
    moe = deepseek_moe(src.text)
    score_bias = src.text.flag("router_enable_expert_bias")
    norms = 4 if src.text.flag("sandwich_norm") else 2
    return _latent(
        src, base, None if moe is None else moe._replace(score_bias=score_bias), norms=norms, tied=src.tied()
    )


def glm4_moe_lite(src: Source, base: str = "") -> Blueprint:
    """GLM-4.7-Flash: the router and its bias in float32."""
    moe = deepseek_moe(src.text)
    return _latent(src, base, None if moe is None else moe._replace(gate_bytes=4, score_bias=True))


def _deepseek_heads(src: Source, base: str) -> Blueprint:
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"))
    moe = deepseek_moe(f)
    first, step = f.size("first_k_dense_replace", 0), f.size("moe_layer_freq", 1) or 1

    def is_sparse(i: int) -> bool:
        return moe is not None and i >= first and i % step == 0

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        attention(t, f"{name}.self_attn", heads)
        t.rope(rope_table(f, heads.dim, t.element_bytes))
        if moe is not None and is_sparse(i):
            mixture(t, f"{name}.mlp", moe)
        else:
            gated_mlp(t, f"{name}.mlp", heads.hidden, f.required("intermediate_size"))
        t.values(2 * heads.hidden)

    return Blueprint(f.required("num_hidden_layers"), is_sparse, layer, edges(edges_of(src, base, tied=False)))
