"""Decoders of their own shape: GPT-2, OPT, BLOOM, Falcon, ChatGLM, GPT-J, Qwen 1, Baichuan, MPT, DBRX.

Source: vLLM 0.32 model_executor/models/ (gpt2, opt, bloom, falcon, chatglm, gpt_j, qwen, baichuan, mpt, dbrx).
"""

from __future__ import annotations

from advisor.weights.attention import Heads, Names, attention
from advisor.weights.blueprint import Blueprint
from advisor.weights.feed_forward import Moe, gated_mlp, mixture, plain_mlp
from advisor.weights.rope import RopeSpec, rope_table
from advisor.weights.source import EVERYWHERE, Source, edges, edges_of, sized, with_values
from advisor.weights.tally import Tally


def _heads(hidden: int, queries: int, keys: int | None = None, *, bias: bool = True) -> Heads:
    return Heads(hidden, queries, keys or queries, hidden // queries, bias=bias, out_bias=bias)


def gpt2(src: Source) -> Blueprint:
    """GPT-2: learned positions, biases, tied."""
    f = src.text
    hidden, queries = f.required("n_embd", "hidden_size"), f.required("n_head", "num_attention_heads")
    inner = f.optional("n_inner") or 4 * hidden
    heads = _heads(hidden, queries)
    positions = f.required("n_positions", "max_position_embeddings")

    def layer(t: Tally, i: int) -> None:
        name = f"transformer.h.{i}"
        attention(t, f"{name}.attn", heads, Names("c_attn", "c_proj"))
        plain_mlp(t, f"{name}.mlp", hidden, inner, bias=True, up="c_fc", down="c_proj")
        t.values(4 * hidden)

    def extra(t: Tally, _first: bool, _last: bool) -> None:
        t.values(positions * hidden)

    around = edges_of(sized(src, hidden), embed="transformer.wte", norm=2 * hidden, more=extra, **EVERYWHERE)
    around = around._replace(tied=src.tied(default=True))
    return Blueprint(f.required("n_layer", "num_hidden_layers"), lambda _: None, layer, edges(around))


def opt(src: Source) -> Blueprint:
    """OPT: learned positions with an offset of two, tied."""
    f = src.text
    hidden, queries = f.required("hidden_size"), f.required("num_attention_heads")
    inner = f.required("ffn_dim")
    bias = f.flag("enable_bias", True)
    heads = _heads(hidden, queries, bias=bias)
    norm = 2 * hidden if f.flag("layer_norm_elementwise_affine", True) else 0
    width = f.size("word_embed_proj_dim", hidden)
    positions = f.required("max_position_embeddings") + 2
    final = f.flag("do_layer_norm_before", True) and not f.flag("_remove_final_layer_norm")

    def layer(t: Tally, i: int) -> None:
        name = f"model.decoder.layers.{i}"
        attention(t, f"{name}.self_attn", heads, Names(out="out_proj"))
        t.column(f"{name}.fc1", hidden, inner, bias=bias)
        t.row(f"{name}.fc2", inner, hidden, bias=bias)
        t.values(2 * norm)

    def extra(t: Tally, _first: bool, _last: bool) -> None:
        t.values(positions * hidden)
        if width != hidden:
            t.replicated("model.decoder.project_out", hidden, width)
            t.replicated("model.decoder.project_in", width, hidden)

    around = edges_of(src, embed="model.decoder.embed_tokens", norm=norm if final else 0, more=extra, **EVERYWHERE)
    around = around._replace(width=width, tied=src.tied(default=True))
    return Blueprint(f.required("num_hidden_layers"), lambda _: None, layer, edges(around))


def bloom(src: Source) -> Blueprint:
    """BLOOM: ALiBi, a norm on the embeddings, tied."""
    f = src.text
    hidden, queries = f.required("hidden_size", "n_embed"), f.required("n_head", "num_attention_heads")
    heads = _heads(hidden, queries)

    def layer(t: Tally, i: int) -> None:
        name = f"transformer.h.{i}"
        attention(t, f"{name}.self_attention", heads, Names("query_key_value", "dense"))
        plain_mlp(t, f"{name}.mlp", hidden, 4 * hidden, bias=True, up="dense_h_to_4h", down="dense_4h_to_h")
        t.values(4 * hidden)

    def extra(t: Tally, _first: bool, _last: bool) -> None:
        t.values(2 * hidden)

    around = edges_of(sized(src, hidden), embed="transformer.word_embeddings", more=extra, **EVERYWHERE)
    around = around._replace(norm=2 * hidden, tied=src.tied(default=True))
    return Blueprint(f.required("n_layer", "num_hidden_layers"), lambda _: None, layer, edges(around))


def chatglm(src: Source) -> Blueprint:
    """ChatGLM 2 and 3, GLM-4 (2024): half-rotary, one merged gate and up projection, a head of its own."""
    f = src.text
    hidden, queries = f.required("hidden_size"), f.required("num_attention_heads")
    keys = f.size("multi_query_group_num", queries) if f.flag("multi_query_attention") else queries
    dim = f.size("kv_channels", hidden // queries)
    bias = f.flag("add_bias_linear") or f.flag("add_qkv_bias")
    heads = Heads(hidden, queries, keys, dim, bias=bias, out_bias=f.flag("add_bias_linear"))
    inner = f.required("ffn_hidden_size")
    length = f.size("seq_length", 8192)

    def layer(t: Tally, i: int) -> None:
        name = f"transformer.encoder.layers.{i}"
        attention(t, f"{name}.self_attention", heads, Names("query_key_value", "dense"))
        gated_mlp(
            t, f"{name}.mlp", hidden, inner, bias=f.flag("add_bias_linear"), up="dense_h_to_4h", down="dense_4h_to_h"
        )
        t.values(2 * hidden)
        spec = RopeSpec("default", {}, 0.5)
        t.rope(rope_table(f, dim, t.element_bytes, spec=spec, positions=length))

    vocab = f.required("padded_vocab_size", "vocab_size")
    around = edges_of(
        Source(src.root, with_values(f, {"vocab_size": vocab}), src.untied, None, src.towers),
        embed="transformer.embedding",
        head="transformer.output_layer",
        tied=f.flag("tie_word_embeddings"),
        norm=hidden if f.flag("post_layer_norm", True) else 0,
        **EVERYWHERE,
    )
    return Blueprint(f.required("num_layers", "num_hidden_layers"), lambda _: None, layer, edges(around))


def falcon(src: Source) -> Blueprint:
    """Falcon 7B, 40B and 180B: parallel attention, one or two norms, ALiBi or rotary."""
    f = src.text
    hidden = f.required("hidden_size")
    queries = f.required("num_attention_heads", "n_head")
    new = f.flag("new_decoder_architecture")
    if new:
        keys = f.size("num_kv_heads", queries, "n_head_kv")
    else:
        keys = 1 if f.flag("multi_query", True) else queries
    bias = f.flag("bias")
    heads = Heads(hidden, queries, keys, hidden // queries, bias=bias, out_bias=bias)
    stated = f.get("num_ln_in_parallel_attn")
    two = (stated or (2 if new else 1)) == 2 if f.flag("parallel_attn", True) or new else True
    inner = f.size("ffn_hidden_size", 4 * hidden) if f.values.get("ffn_hidden_size") else 4 * hidden
    rotary = not f.flag("alibi")

    def layer(t: Tally, i: int) -> None:
        name = f"transformer.h.{i}"
        attention(t, f"{name}.self_attention", heads, Names("query_key_value", "dense"))
        plain_mlp(t, f"{name}.mlp", hidden, inner, bias=bias, up="dense_h_to_4h", down="dense_4h_to_h")
        t.values((4 if two else 2) * hidden)
        if rotary:
            t.rope(rope_table(f, heads.dim, t.element_bytes))

    tied = src.tied(default=True)
    around = edges_of(sized(src, hidden), embed="transformer.word_embeddings", tied=tied, norm=2 * hidden, **EVERYWHERE)
    layers = f.required("num_hidden_layers", "n_layer")
    return Blueprint(layers, lambda _: None, layer, edges(around._replace(tied=tied)))


def qwen1(src: Source) -> Blueprint:
    """Qwen 1: biases on q, k and v, a gated MLP of half the stated size."""
    f = src.text
    hidden, queries = f.required("hidden_size"), f.required("num_attention_heads")
    heads = Heads(hidden, queries, queries, hidden // queries, bias=True)
    inner = f.required("intermediate_size") // 2

    def layer(t: Tally, i: int) -> None:
        name = f"transformer.h.{i}"
        attention(t, f"{name}.attn", heads, Names("c_attn", "c_proj"))
        gated_mlp(t, f"{name}.mlp", hidden, inner, down="c_proj")
        t.values(2 * hidden)
        t.rope(rope_table(f, heads.dim, t.element_bytes))

    around = edges_of(src, embed="transformer.wte", **EVERYWHERE)
    return Blueprint(f.required("num_hidden_layers"), lambda _: None, layer, edges(around))


def baichuan(src: Source) -> Blueprint:
    """Baichuan 1 and 2: W_pack; the 13B has ALiBi."""
    f = src.text
    hidden, queries = f.required("hidden_size"), f.required("num_attention_heads")
    heads = Heads(hidden, queries, queries, hidden // queries)
    rotary = hidden == 4096

    def layer(t: Tally, i: int) -> None:
        name = f"model.layers.{i}"
        attention(t, f"{name}.self_attn", heads, Names("W_pack"))
        gated_mlp(t, f"{name}.mlp", hidden, f.required("intermediate_size"))
        t.values(2 * hidden)
        if rotary:
            length = f.size("max_position_embeddings", f.size("model_max_length", 4096))
            t.rope(rope_table(f, heads.dim, t.element_bytes, positions=length))

    around = edges_of(src, **EVERYWHERE)
    return Blueprint(f.required("num_hidden_layers"), lambda _: None, layer, edges(around))


def mpt(src: Source) -> Blueprint:
    """MPT (until vLLM 0.28): ALiBi, no biases, tied."""
    f = src.text
    hidden, queries = f.required("d_model"), f.required("n_heads")
    inner = int(float(f.get("expansion_ratio", 4)) * hidden)
    inside = f.part("attn_config")
    grouped = inside is not None and inside.get("attn_type") == "grouped_query_attention"
    keys = inside.size("kv_n_heads", queries) if inside is not None and grouped else queries
    bias = not f.flag("no_bias", True)
    heads = Heads(hidden, queries, keys, hidden // queries, bias=bias, out_bias=bias)

    def layer(t: Tally, i: int) -> None:
        name = f"transformer.blocks.{i}"
        attention(t, f"{name}.attn", heads, Names("Wqkv", "out_proj"))
        plain_mlp(t, f"{name}.ffn", hidden, inner, bias=bias)
        t.values((4 if bias else 2) * hidden)

    around = edges_of(sized(src, hidden), embed="transformer.wte", norm=(2 if bias else 1) * hidden, **EVERYWHERE)
    return Blueprint(f.required("n_layers"), lambda _: None, layer, edges(around._replace(tied=True)))


def gpt_j(src: Source) -> Blueprint:
    """GPT-J: one norm a layer, a part of each head rotated, a head with a bias."""
    f = src.text
    hidden, queries = f.required("n_embd", "hidden_size"), f.required("n_head", "num_attention_heads")
    heads = _heads(hidden, queries, bias=False)
    inner = f.optional("n_inner") or 4 * hidden
    rotary = f.size("rotary_dim", 64)
    length = f.size("n_positions", 2048, "max_position_embeddings")

    def layer(t: Tally, i: int) -> None:
        name = f"transformer.h.{i}"
        attention(t, f"{name}.attn", heads, Names(out="out_proj"))
        plain_mlp(t, f"{name}.mlp", hidden, inner, bias=True, up="fc_in", down="fc_out")
        t.values(2 * hidden)
        spec = RopeSpec("default", {}, rotary / heads.dim)
        t.rope(rope_table(f, heads.dim, t.element_bytes, spec=spec, positions=length))

    around = edges_of(sized(src, hidden), embed="transformer.wte", norm=2 * hidden, head_bias=True, **EVERYWHERE)
    return Blueprint(f.required("n_layer", "num_hidden_layers"), lambda _: None, layer, edges(around))


def dbrx(src: Source) -> Blueprint:
    """DBRX: experts in every layer, two norms without biases."""
    f = src.text
    hidden, queries = f.required("d_model"), f.required("n_heads")
    inside, ffn = f.part("attn_config"), f.part("ffn_config")
    keys = queries if inside is None else inside.size("kv_n_heads", 1)
    heads = Heads(hidden, queries, keys, hidden // queries)
    moe = Moe(
        hidden,
        4 if ffn is None else ffn.size("moe_num_experts", 4),
        3584 if ffn is None else ffn.size("ffn_hidden_size", 3584),
        gate="router.layer",
    )

    def layer(t: Tally, i: int) -> None:
        name = f"transformer.blocks.{i}"
        attention(t, f"{name}.norm_attn_norm.attn", heads, Names("Wqkv", "out_proj"))
        mixture(t, f"{name}.ffn", moe)
        t.values(2 * hidden)
        t.rope(rope_table(f, heads.dim, t.element_bytes, positions=f.size("max_seq_len", 2048)))

    around = edges_of(sized(src, hidden), embed="transformer.wte", tied=False, **EVERYWHERE)
    return Blueprint(f.required("n_layers"), lambda _: None, layer, edges(around))
