"""Families that vLLM builds with transformers' own classes, its linears put in place of theirs.

Source: vLLM 0.32 model_executor/models/transformers/ (base.py: tensor_parallel, moe.py), transformers 5.19 models/ of
each name (modeling and base_model_tp_plan).
"""

from __future__ import annotations

from advisor.weights.attention import Heads, heads_of
from advisor.weights.blueprint import Blueprint
from advisor.weights.decoder import FeedForward, Layers, decoder, dense, inverse_frequencies
from advisor.weights.feed_forward import Moe, gated_mlp, mixture
from advisor.weights.fields import Fields
from advisor.weights.source import Source, edges_of
from advisor.weights.tally import Tally


def _built(
    src: Source, base: str, heads: Heads, *, norms: int = 2, norm_bias: bool = False, kinds: int = 1, **more: object
) -> Blueprint:
    """No rotary table, but inverse frequencies on every stage; `kinds` of layers have their own."""
    f = src.text
    times = 2 if norm_bias else 1
    plan = Layers(
        f.required("num_hidden_layers"),
        heads,
        more.pop("feed_forward", None) or dense(f),  # type: ignore[arg-type]
        prefix=f"{base}model.layers",
        norm_values=norms * times * heads.hidden,
    )
    around = edges_of(src, base, norm=times * heads.hidden if norms else 0)
    around = around._replace(more=inverse_frequencies(f, heads.dim, kinds))
    return decoder(f, plan._replace(**more), around)  # type: ignore[arg-type]


def olmo2(src: Source, base: str = "") -> Blueprint:
    """OLMo 2: norms over all queries and all keys, whole on every rank."""
    return _built(src, base, heads_of(src.text, norm="whole", bias=src.text.flag("attention_bias")))


def olmo3(src: Source, base: str = "") -> Blueprint:
    """OLMo 3: OLMo 2 with two kinds of layers, each with its own frequencies."""
    heads = heads_of(src.text, norm="whole", bias=src.text.flag("attention_bias"))
    return _built(src, base, heads, kinds=2)


def smollm3(src: Source, base: str = "") -> Blueprint:
    """SmolLM3."""
    f = src.text
    bias = f.flag("attention_bias")
    mlp = dense(f, bias=f.flag("mlp_bias"))
    return _built(src, base, heads_of(f, bias=bias, out_bias=bias), feed_forward=mlp)


def starcoder2(src: Source, base: str = "") -> Blueprint:
    """StarCoder2: a plain MLP, biases everywhere."""
    f = src.text
    bias = f.flag("use_bias", True)
    mlp = dense(f, gated=False, bias=bias, up="c_fc", down="c_proj")
    return _built(src, base, heads_of(f, bias=bias, out_bias=bias), norm_bias=True, feed_forward=mlp)


def seed_oss(src: Source, base: str = "") -> Blueprint:
    """Seed-OSS: biases on q, k and v."""
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"), out_bias=f.flag("attention_out_bias"))
    return _built(src, base, heads, feed_forward=dense(f, bias=f.flag("mlp_bias")))


def glm(src: Source, base: str = "") -> Blueprint:
    """GLM-4 9B (2024): biases on q, k and v."""
    return _built(src, base, heads_of(src.text, bias=src.text.flag("attention_bias")))


def hunyuan(src: Source, base: str = "") -> Blueprint:
    """Hunyuan dense V1: norms over each query and key head."""
    f = src.text
    bias = f.flag("attention_bias")
    norm = "head" if f.flag("use_qk_norm", True) else "none"
    return _built(src, base, heads_of(f, bias=bias, out_bias=bias, norm=norm))


def llama_like(src: Source, base: str = "") -> Blueprint:
    """CWM, Ministral (2025, dense), Helium."""
    f = src.text
    bias = f.flag("attention_bias")
    return _built(src, base, heads_of(f, bias=bias), feed_forward=dense(f, bias=f.flag("mlp_bias")))


def arcee(src: Source, base: str = "") -> Blueprint:
    """Arcee's AFM: a plain MLP."""
    f = src.text
    bias = f.flag("attention_bias")
    mlp = dense(f, gated=False, bias=f.flag("mlp_bias"))
    return _built(src, base, heads_of(f, bias=bias, out_bias=bias), feed_forward=mlp)


def jais2(src: Source, base: str = "") -> Blueprint:
    """Jais 2: a plain MLP, biases everywhere."""
    f = src.text
    bias = f.flag("attention_bias", True)
    mlp = dense(f, gated=False, bias=f.flag("mlp_bias", True))
    return _built(src, base, heads_of(f, bias=bias, out_bias=bias), feed_forward=mlp, norm_bias=True)


def olmo(src: Source, base: str = "") -> Blueprint:
    """OLMo 1: norms without elements."""
    return _built(src, base, heads_of(src.text, bias=src.text.flag("attention_bias")), norms=0)


def vaultgemma(src: Source, base: str = "") -> Blueprint:
    """VaultGemma: Gemma with two norms a layer, the scale of the embeddings beside them."""
    f = src.text
    plan = _built(src, base, heads_of(f, bias=f.flag("attention_bias"), out_bias=f.flag("attention_bias")))

    def add(t: Tally, first: bool, last: bool) -> None:
        plan.edges(t, first, last)
        if first or (last and src.tied(default=True)):
            t.values(1)

    return plan._replace(edges=add)


def bitnet(src: Source, base: str = "") -> Blueprint:
    """BitNet b1.58: norms before the output and down projections; the latter whole on every rank."""
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"), out_bias=f.flag("attention_bias"))
    inner = f.required("intermediate_size")

    def mlp(t: Tally, name: str, _: int) -> None:
        t.column(f"{name}.mlp.gate_up_proj", heads.hidden, inner, inner)
        t.replicated(f"{name}.mlp.down_proj", inner, heads.hidden)
        t.values(inner + heads.hidden)

    return _built(src, base, heads, feed_forward=mlp)


def _mixed(fields: Fields, moe: Moe, first_dense: int, *, mlp: str = "mlp") -> FeedForward:
    """Experts after the first layers, which have a gated MLP."""
    inner = fields.size("intermediate_size", 0)

    def build(t: Tally, name: str, i: int) -> None:
        if i < first_dense:
            gated_mlp(t, f"{name}.{mlp}", moe.hidden, inner)
        else:
            mixture(t, f"{name}.{mlp}", moe)

    return build


def dots1(src: Source, base: str = "") -> Blueprint:
    """dots.llm1: shared experts, a float32 bias an expert."""
    f = src.text
    heads = heads_of(f, norm="head", bias=f.flag("attention_bias"), out_bias=f.flag("attention_bias"))
    inner, first = f.required("moe_intermediate_size"), f.size("first_k_dense_replace", 0)
    shared = inner * f.size("n_shared_experts", 0)
    moe = Moe(heads.hidden, f.size("n_routed_experts"), inner, shared_inner=shared, score_bias=True)
    kinds = len(set(f.entries("layer_types", f.required("num_hidden_layers")) or ["full_attention"]))
    return _built(src, base, heads, kinds=kinds, feed_forward=_mixed(f, moe, first), kind=lambda i: i < first)


def mellum(src: Source, base: str = "") -> Blueprint:
    """Mellum 2: experts in every layer."""
    f = src.text
    heads = heads_of(f, norm="head", bias=f.flag("attention_bias"), out_bias=f.flag("attention_bias"))
    moe = Moe(heads.hidden, f.size("num_experts"), f.required("moe_intermediate_size"))
    kinds = len(set(f.entries("layer_types", f.required("num_hidden_layers")) or ["full_attention"]))
    return _built(src, base, heads, kinds=kinds, feed_forward=_mixed(f, moe, 0))


def flex_olmo(src: Source, base: str = "") -> Blueprint:
    """FlexOlmo: OLMo 2 with experts of the full size."""
    f = src.text
    heads = heads_of(f, norm="whole", bias=f.flag("attention_bias"))
    moe = Moe(heads.hidden, f.size("num_experts"), f.required("intermediate_size"))
    return _built(src, base, heads, feed_forward=_mixed(f, moe, 0))


def hunyuan_moe(src: Source, base: str = "") -> Blueprint:
    """Hunyuan MoE V1 (A13B): a shared MLP beside the experts."""
    f = src.text
    bias = f.flag("attention_bias")
    heads = heads_of(f, bias=bias, out_bias=bias, norm="head" if f.flag("use_qk_norm", True) else "none")
    moe = Moe(
        heads.hidden,
        _first(f, "num_experts"),
        _first(f, "moe_intermediate_size", "intermediate_size"),
        shared_inner=f.required("intermediate_size"),
        shared="shared_mlp",
    )
    return _built(src, base, heads, feed_forward=_mixed(f, moe, 0))


def _first(fields: Fields, *keys: str) -> int:
    """A size that may be listed by layer, equal in all."""
    for key in keys:
        value = fields.get(key)
        if isinstance(value, list) and value:
            return Fields({key: value[0]}, where=fields.where).size(key)
        if value is not None:
            return fields.size(key)
    return fields.size(keys[0])
