"""Families with latent attention (MLA): DeepSeek V2 to V3.2, Kimi K2, GLM-4.7-Flash, GLM-5.

Source: vLLM 0.32 model_executor/models/{deepseek_v2,glm4_moe_lite}.py, models/deepseek_v32/. MTP layers are not loaded
without speculative decoding and are not counted.
"""

from __future__ import annotations

from advisor.weights.attention import attention, has_indexer, heads_of, indexer, latent_attention, latent_of
from advisor.weights.blueprint import Blueprint
from advisor.weights.feed_forward import Moe, gated_mlp, mixture
from advisor.weights.fields import Fields
from advisor.weights.rope import RopeSpec, rope_spec, rope_table
from advisor.weights.source import Source, edges, edges_of
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


def _latent(src: Source, base: str, moe: Moe | None, *, sparse_attention: bool = False) -> Blueprint:
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
        t.values(2 * a.hidden)

    def kind(i: int) -> tuple[bool, bool]:
        return is_sparse(i), sparse_attention and has_indexer(f, i)

    around = edges_of(src, base, tied=False)
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
