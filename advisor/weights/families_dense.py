"""Families of plain decoders: Llama and its many relatives.

Source: vLLM 0.32 model_executor/models/ (llama, qwen2, qwen3, phi3, granite, commandr, exaone4, glm4, stablelm, more).
"""

from __future__ import annotations

from advisor.weights.attention import Heads, heads_of
from advisor.weights.blueprint import Blueprint
from advisor.weights.decoder import Layers, decoder, dense
from advisor.weights.fields import Fields
from advisor.weights.rope import rope_spec
from advisor.weights.source import EVERYWHERE, Source, edges_of


def _plan(fields: Fields, heads: Heads, base: str, **more: object) -> Layers:
    usual = Layers(
        fields.required("num_hidden_layers", "num_layers"),
        heads,
        dense(fields) if "feed_forward" not in more else more["feed_forward"],  # type: ignore[arg-type]
        prefix=f"{base}model.layers",
        norm_values=2 * heads.hidden,
        rope=rope_spec(fields),
    )
    return usual._replace(**more)  # type: ignore[arg-type]


def llama(src: Source, base: str = "") -> Blueprint:
    """Llama, Mistral, InternLM3 and others of the one class; biases by attention_bias, qkv_bias, mlp_bias."""
    f = src.text
    bias = f.flag("attention_bias") or f.flag("bias")
    qkv_bias = f.flag("qkv_bias") if "qkv_bias" in f.values else bias
    heads = heads_of(f, bias=qkv_bias, out_bias=bias)
    return decoder(f, _plan(f, heads, base, feed_forward=dense(f, bias=f.flag("mlp_bias"))), edges_of(src, base))


def qwen2(src: Source, base: str = "") -> Blueprint:
    """Qwen2 and 2.5: biases on q, k and v."""
    f = src.text
    return decoder(f, _plan(f, heads_of(f, bias=True), base), edges_of(src, base))


def qwen3(src: Source, base: str = "", mrope_factor: int = 4) -> Blueprint:
    """Qwen3: norms over each query and key head."""
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"), norm="head")
    return decoder(f, _plan(f, heads, base, mrope_factor=mrope_factor), edges_of(src, base))


def phi3(src: Source, base: str = "") -> Blueprint:
    """Phi-3 and 4: Llama without biases."""
    f = src.text
    return decoder(f, _plan(f, heads_of(f), base), edges_of(src, base))


def granite(src: Source, base: str = "") -> Blueprint:
    """Granite 3 and 4 dense."""
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"), out_bias=f.flag("attention_bias"))
    return decoder(f, _plan(f, heads, base, feed_forward=dense(f, bias=f.flag("mlp_bias"))), edges_of(src, base))


def cohere(src: Source, base: str = "") -> Blueprint:
    """Command R and A: one norm a layer, the head is the embeddings, both and the norm on every stage."""
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"))
    plan = _plan(f, heads, base, norm_values=heads.hidden)
    if f.flag("use_qk_norm"):
        plan = plan._replace(norm_values=heads.hidden + (heads.queries + heads.keys) * heads.dim)
    length = f.optional("model_max_length") or f.size("max_position_embeddings", 8192)
    around = edges_of(src, base, tied=True, embed_on="all", norm_on="all")
    return decoder(f, plan._replace(rope_positions=length), around)


def exaone4(src: Source, base: str = "") -> Blueprint:
    """EXAONE 4: norms after attention and MLP."""
    f = src.text
    heads = heads_of(f, norm="head", bias=f.flag("attention_bias"))
    return decoder(f, _plan(f, heads, base), edges_of(src, base))


def exaone(src: Source, base: str = "") -> Blueprint:
    """EXAONE 3."""
    f = src.text
    plan = _plan(
        f, heads_of(f), base, prefix=f"{base}transformer.h", depth=f.required("num_layers", "num_hidden_layers")
    )
    return decoder(f, plan, edges_of(src, base, embed=f"{base}transformer.wte"))


def glm4(src: Source, base: str = "") -> Blueprint:
    """GLM-4-0414: four norms a layer, partial rotary."""
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"))
    return decoder(f, _plan(f, heads, base, norm_values=4 * heads.hidden), edges_of(src, base))


def ernie45(src: Source, base: str = "") -> Blueprint:
    """ERNIE 4.5 dense."""
    f = src.text
    return decoder(f, _plan(f, heads_of(f, bias=f.flag("use_bias")), base), edges_of(src, base))


def stablelm(src: Source, base: str = "") -> Blueprint:
    """StableLM 2 and 3B: norms with biases; embeddings, norm and head on every stage."""
    f = src.text
    heads = heads_of(f, bias=f.flag("use_qkv_bias"))
    around = edges_of(src, base, norm=2 * heads.hidden, **EVERYWHERE)
    return decoder(f, _plan(f, heads, base, norm_values=4 * heads.hidden), around)


def internlm2(src: Source, base: str = "") -> Blueprint:
    """InternLM2: wqkv, wo, and w2 for the down projection."""
    f = src.text
    plan = _plan(f, heads_of(f, bias=f.flag("bias"), out_bias=f.flag("bias")), base)
    return decoder(
        f, plan, edges_of(src, base, embed=f"{base}model.tok_embeddings", head=f"{base}output", **EVERYWHERE)
    )


def minicpm(src: Source, base: str = "") -> Blueprint:
    """MiniCPM: a Llama whose head is tied unless the config says otherwise."""
    f = src.text
    plan = _plan(f, heads_of(f), base)
    return decoder(f, plan, edges_of(src, base, tied=src.tied(default=True), **EVERYWHERE))


def nemotron(src: Source, base: str = "") -> Blueprint:
    """Nemotron 4 and Minitron: a plain MLP, norms with biases."""
    f = src.text
    heads = heads_of(f, bias=f.flag("attention_bias"), out_bias=f.flag("attention_bias"))
    plan = _plan(
        f, heads, base, feed_forward=dense(f, gated=False, bias=f.flag("mlp_bias")), norm_values=4 * heads.hidden
    )
    return decoder(f, plan, edges_of(src, base, norm=2 * heads.hidden))
