"""Older decoders that vLLM builds with transformers' own classes: StarCoder 1, Phi 1 to 2, GPT-NeoX, Persimmon.

Their modules are not in the plan of what to divide, or only in part: those are whole on every rank.
Source: vLLM 0.32 model_executor/models/transformers/, transformers 5.19 models/ of each name.
"""

from __future__ import annotations

from advisor.weights.attention import Heads, Names, attention
from advisor.weights.blueprint import Blueprint
from advisor.weights.decoder import inverse_frequencies
from advisor.weights.feed_forward import plain_mlp
from advisor.weights.source import Source, edges, edges_of, sized
from advisor.weights.tally import Tally


def _heads(hidden: int, queries: int, keys: int | None = None, *, bias: bool = True) -> Heads:
    return Heads(hidden, queries, keys or queries, hidden // queries, bias=bias, out_bias=bias)


def gpt_bigcode(src: Source) -> Blueprint:
    """SantaCoder and StarCoder, built by transformers' class: multi-query, MLP and positions whole on every rank."""
    f = src.text
    hidden, queries = f.required("n_embd", "hidden_size"), f.required("n_head", "num_attention_heads")
    inner = f.optional("n_inner") or 4 * hidden
    heads = _heads(hidden, queries, 1 if f.flag("multi_query", True) else queries)
    positions = f.required("n_positions", "max_position_embeddings")

    def layer(t: Tally, i: int) -> None:
        name = f"model.h.{i}"
        if heads.keys == 1:
            attention(t, f"{name}.attn", heads, Names("c_attn", "c_proj"))
        else:
            t.replicated(f"{name}.attn.c_attn", hidden, 3 * hidden, bias=True)
            t.replicated(f"{name}.attn.c_proj", hidden, hidden, bias=True)
            t.attention_scales()
        t.replicated(f"{name}.mlp.c_fc", hidden, inner, bias=True)
        t.replicated(f"{name}.mlp.c_proj", inner, hidden, bias=True)
        t.values(4 * hidden)

    def extra(t: Tally, first: bool, last: bool) -> None:
        t.values(positions * hidden if first or last else 0)
        t.values(positions * positions, 1)  # the causal mask, one byte an entry

    around = edges_of(sized(src, hidden), embed="model.wte", norm=2 * hidden, more=extra)
    around = around._replace(tied=src.tied(default=True))
    return Blueprint(f.required("n_layer", "num_hidden_layers"), lambda _: None, layer, edges(around))


def phi(src: Source) -> Blueprint:
    """Phi 1, 1.5 and 2, built by transformers' class: one norm, biases, a head with a bias."""
    f = src.text
    hidden, queries = f.required("hidden_size", "n_embd"), f.required("num_attention_heads", "n_head")
    heads = _heads(hidden, queries, f.optional("num_key_value_heads"))
    inner = f.optional("intermediate_size") or f.optional("n_inner") or 4 * hidden

    def layer(t: Tally, i: int) -> None:
        name = f"model.layers.{i}"
        attention(t, f"{name}.self_attn", heads, Names(out="dense"))
        plain_mlp(t, f"{name}.mlp", hidden, inner, bias=True, up="fc1", down="fc2")
        t.values(2 * hidden)

    around = edges_of(sized(src, hidden), norm=2 * hidden, head_bias=True, more=inverse_frequencies(f, heads.dim))
    return Blueprint(f.required("num_hidden_layers", "n_layer"), lambda _: None, layer, edges(around))


def gpt_neox(src: Source) -> Blueprint:
    """GPT-NeoX and Pythia, built by transformers' class."""
    f = src.text
    hidden, queries = f.required("hidden_size"), f.required("num_attention_heads")
    heads = _heads(hidden, queries, bias=f.flag("attention_bias", True))
    inner = f.required("intermediate_size")

    def layer(t: Tally, i: int) -> None:
        name = f"gpt_neox.layers.{i}"
        attention(t, f"{name}.attention", heads, Names("query_key_value", "dense"))
        plain_mlp(t, f"{name}.mlp", hidden, inner, bias=True, up="dense_h_to_4h", down="dense_4h_to_h")
        t.values(4 * hidden)

    extra = inverse_frequencies(f, heads.dim)
    around = edges_of(src, embed="gpt_neox.embed_in", head="embed_out", norm=2 * hidden, more=extra)
    return Blueprint(f.required("num_hidden_layers"), lambda _: None, layer, edges(around))


def persimmon(src: Source, base: str = "") -> Blueprint:
    """Persimmon: all layers whole on every rank, biases everywhere, norms over each head."""
    f = src.text
    hidden, queries, inner = (
        f.required("hidden_size"),
        f.required("num_attention_heads"),
        f.required("intermediate_size"),
    )
    dim = hidden // queries
    norms = 4 * hidden + (4 * dim if f.flag("qk_layernorm", True) else 0)

    def layer(t: Tally, i: int) -> None:
        name = f"model.layers.{i}"
        t.replicated(f"{name}.self_attn.query_key_value", hidden, 3 * hidden, bias=True)
        t.replicated(f"{name}.self_attn.dense", hidden, hidden, bias=True)
        t.replicated(f"{name}.mlp.dense_h_to_4h", hidden, inner, bias=True)
        t.replicated(f"{name}.mlp.dense_4h_to_h", inner, hidden, bias=True)
        t.values(norms)
        t.attention_scales()

    around = edges_of(src, base, norm=2 * hidden, more=inverse_frequencies(f, dim))
    return Blueprint(f.required("num_hidden_layers"), lambda _: None, layer, edges(around))
