"""Attention projections: grouped queries, latent (MLA), and the sparse indexer.

Source: vLLM 0.32 model_executor/models/{llama,qwen3,deepseek_v2}.py, models/deepseek_v32/attention.py.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from advisor.weights.fields import Fields
from advisor.weights.tally import Tally

QkNorm = Literal["none", "head", "cut", "whole"]


class Heads(NamedTuple):
    """One attention layer of ordinary heads. `norm`: over each head, over a rank's part, or over everything."""

    hidden: int
    queries: int
    keys: int
    dim: int
    v_dim: int | None = None
    bias: bool = False
    out_bias: bool = False
    norm: QkNorm = "none"
    gated: bool = False  # the query projection holds a gate of the same size

    @property
    def values_dim(self) -> int:
        """Size of a value head."""
        return self.v_dim or self.dim


class Names(NamedTuple):
    """What vLLM calls the two projections in a family."""

    qkv: str = "qkv_proj"
    out: str = "o_proj"


def heads_of(fields: Fields, **more: object) -> Heads:
    """The heads a config states: head_dim from the key or its class, else hidden size over heads."""
    hidden, queries = fields.required("hidden_size"), fields.required("num_attention_heads")
    keys = fields.optional("num_key_value_heads") or queries
    dim = fields.optional("head_dim") or hidden // queries
    return Heads(hidden, queries, keys, dim)._replace(**more)  # type: ignore[arg-type]


def attention(t: Tally, name: str, a: Heads, names: Names = Names()) -> None:  # noqa: B008
    """QKV and output projections, query and key norms, and the scale buffers."""
    queries = a.queries * 2 if a.gated else a.queries
    t.qkv(f"{name}.{names.qkv}", a.hidden, queries, a.keys, a.dim, a.v_dim, bias=a.bias)
    t.row(f"{name}.{names.out}", a.queries * a.values_dim, a.hidden, bias=a.out_bias)
    if a.norm == "head":
        t.values(2 * a.dim)
    elif a.norm == "whole":
        t.values((a.queries + a.keys) * a.dim)
    elif a.norm == "cut":
        keys = max(1, a.keys // t.tp)
        t.values((t.share(a.queries, "the number of attention heads") + keys) * a.dim)
    t.attention_scales()


class Latent(NamedTuple):
    """One MLA layer."""

    hidden: int
    heads: int
    q_rank: int | None
    kv_rank: int
    nope: int
    rope: int
    v_dim: int


def latent_of(fields: Fields) -> Latent:
    """The MLA sizes a config states."""
    return Latent(
        fields.required("hidden_size"),
        fields.required("num_attention_heads"),
        fields.optional("q_lora_rank"),
        fields.required("kv_lora_rank"),
        fields.size("qk_nope_head_dim"),
        fields.size("qk_rope_head_dim"),
        fields.required("v_head_dim"),
    )


def latent_attention(t: Tally, name: str, a: Latent) -> None:
    """MLA with its scales.

    Decoding multiplies by kv_b_proj in the model's dtype: of a quantised one a plain copy is kept
    (layers/attention/mla_attention.py: process_weights_after_loading).
    """
    latent_projections(t, name, a)
    up = t.share(a.heads * (a.nope + a.v_dim), "the number of attention heads")
    t.copy(f"{name}.kv_b_proj", a.kv_rank * up)
    t.attention_scales(latent=True)


def latent_projections(t: Tally, name: str, a: Latent) -> None:
    """The down projections whole on every rank, the up projections divided by heads, the norms between."""
    down = a.kv_rank + a.rope
    if a.q_rank is None:
        t.replicated(f"{name}.kv_a_proj_with_mqa", a.hidden, down)
        t.column(f"{name}.q_proj", a.hidden, a.heads * (a.nope + a.rope))
    else:
        t.replicated(f"{name}.fused_qkv_a_proj", a.hidden, a.q_rank, down)
        t.values(a.q_rank)
        t.column(f"{name}.q_b_proj", a.q_rank, a.heads * (a.nope + a.rope))
    t.values(a.kv_rank)
    t.column(f"{name}.kv_b_proj", a.kv_rank, a.heads * (a.nope + a.v_dim))
    t.row(f"{name}.o_proj", a.heads * a.v_dim, a.hidden)


def indexer(t: Tally, name: str, fields: Fields, a: Latent) -> None:
    """The sparse indexer of DeepSeek V3.2 and GLM-5: whole on every rank, its key norm in float32."""
    heads, dim = fields.required("index_n_heads"), fields.required("index_head_dim")
    t.replicated(f"{name}.wq_b", a.q_rank or a.hidden, dim * heads)
    t.replicated(f"{name}.wk_weights_proj", a.hidden, dim, heads, quantised=False)
    t.values(2 * dim, 4)


def has_indexer(fields: Fields, layer: int) -> bool:
    """Whether a layer computes its own top-k or reuses one (index_topk_pattern, index_topk_freq)."""
    pattern = fields.get("index_topk_pattern")
    if pattern is None:
        every = fields.size("index_topk_freq", 1) or 1
        offset = fields.size("index_skip_topk_offset", 2)
        return max(layer - offset + 1, 0) % every == 0
    return not (0 <= layer < len(pattern) and pattern[layer] == "S")
