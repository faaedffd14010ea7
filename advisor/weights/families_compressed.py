"""DeepSeek V4: compressed attention, hyper-connections, experts in four bits.

Source: vLLM 0.32 models/deepseek_v4/ (model, attention, compressor, quantization). The layers' own multi-token
prediction is not loaded without speculative decoding.
"""

from __future__ import annotations

from advisor.errors import NotUnderstood
from advisor.weights.blueprint import Blueprint
from advisor.weights.feed_forward import Moe, mixture
from advisor.weights.fields import Fields
from advisor.weights.rope import rope_spec, rope_table
from advisor.weights.source import Source, edges, edges_of
from advisor.weights.tally import Tally


def deepseek_v4(src: Source, base: str = "") -> Blueprint:
    """DeepSeek V4 Flash and Pro."""
    f = src.text
    layers, hidden = f.required("num_hidden_layers"), f.required("hidden_size")
    ratios = f.entries("compress_ratios", layers)
    if ratios is None:
        raise NotUnderstood("no key says how each layer compresses its cache", where=f.where + "compress_ratios")
    hashed, streams = f.size("num_hash_layers", 0), f.size("hc_mult", 4)
    inner = f.required("moe_intermediate_size")
    moe = Moe(hidden, f.size("n_routed_experts"), inner, shared_inner=inner * f.size("n_shared_experts", 0))
    spec = rope_spec(f)
    choices = f.required("vocab_size") * f.size("num_experts_per_tok", 1)

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        _attention(t, f"{name}.attn", f)
        _compression(t, f"{name}.attn", f, int(ratios[i]))
        t.rope(rope_table(f, f.size("qk_rope_head_dim", 64), 4, spec=spec, key=ratios[i] > 0))
        mixture(t, f"{name}.ffn", moe)
        t.values(choices if i < hashed else moe.experts, 4)  # experts by token, or a bias an expert
        rows = (2 + streams) * streams
        t.values(2 * (rows * streams * hidden + rows + 3), 4)
        t.values(2 * hidden)

    def more(t: Tally, _first: bool, _last: bool) -> None:
        t.values(streams * streams * hidden + streams + 1, 4)

    around = edges_of(src, base, tied=False, more=more)
    return Blueprint(layers, lambda i: (ratios[i], i < hashed), layer, edges(around))


def _attention(t: Tally, name: str, f: Fields) -> None:
    """Low-rank queries, one key and value, an output projection in groups; sinks for 64 heads at a time."""
    hidden, heads, dim = f.required("hidden_size"), f.required("num_attention_heads"), f.required("head_dim")
    rank, groups, out = f.required("q_lora_rank"), f.size("o_groups", 8), f.size("o_lora_rank", 1024)
    t.replicated(f"{name}.fused_wqa_wkv", hidden, rank, dim)
    t.column(f"{name}.wq_b", rank, heads * dim)
    t.column(f"{name}.wo_a", heads * dim // groups, groups * out)
    t.row(f"{name}.wo_b", groups * out, hidden)
    t.values(rank + dim)
    here = t.share(heads, "the number of attention heads")
    t.values(64 * -(-here // 64), 4)


def _compression(t: Tally, name: str, f: Fields, ratio: int) -> None:
    """What pools the cache; at the finer ratio windows overlap, and an indexer with a pool of its own chooses."""
    if not ratio:
        return
    hidden, dim = f.required("hidden_size"), f.required("head_dim")
    overlaps = ratio == 4
    _pool(t, hidden, dim, ratio, 2 if overlaps else 1)
    if overlaps:
        heads, index_dim = f.required("index_n_heads"), f.required("index_head_dim")
        t.replicated(f"{name}.indexer.wq_b", f.required("q_lora_rank"), heads * index_dim)
        t.values(heads * hidden)
        _pool(t, hidden, index_dim, ratio, 2)


def _pool(t: Tally, hidden: int, dim: int, ratio: int, times: int) -> None:
    t.values(ratio * times * dim, 4)
    t.values(2 * times * dim * hidden + dim)
