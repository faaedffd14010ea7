"""Gemma 1 to 4 and 3n: tied embeddings, several norms a layer, two kinds of attention layers.

Source: vLLM 0.32 model_executor/models/{gemma,gemma2,gemma3,gemma3n,gemma4}.py.
"""

from __future__ import annotations

from advisor.weights.attention import Heads, attention, heads_of
from advisor.weights.blueprint import Blueprint
from advisor.weights.feed_forward import Moe, gated_mlp, mixture
from advisor.weights.fields import Fields
from advisor.weights.rope import RopeSpec, rope_spec, rope_table
from advisor.weights.source import EVERYWHERE, Source, edges, edges_of, with_values
from advisor.weights.tally import Tally

_DEFAULT_ROPE = RopeSpec("default", {}, 1.0)


def layer_kinds(fields: Fields, layers: int, every: int | None) -> list[str]:
    """layer_types, or sliding windows with every n-th layer full (every layer full without a rule)."""
    stated = fields.entries("layer_types", layers)
    if stated is not None:
        return [str(k) for k in stated]
    step = fields.get("sliding_window_pattern") or fields.get("_sliding_window_pattern") or every
    if step is None:
        return ["full_attention"] * layers
    return ["sliding_attention" if (i + 1) % int(step) else "full_attention" for i in range(layers)]


def _spec(fields: Fields, kind: str) -> RopeSpec:
    """Scaling is for full attention only where the config does not say it by kind."""
    values = fields.values.get("rope_parameters")
    nested = isinstance(values, dict) and kind in values
    if kind == "sliding_attention" and not nested:
        return _DEFAULT_ROPE
    return rope_spec(fields, kind)


def _base(fields: Fields, kind: str) -> float:
    """The base frequency of a kind of layer; layers of one base share a table."""
    values = rope_spec(fields, kind).values
    if values.get("rope_theta") is not None and not isinstance(values.get(kind), dict):
        return float(values["rope_theta"])
    if kind == "sliding_attention":
        return float(fields.get("rope_local_base_freq", 10000.0))
    return float(fields.get("rope_theta", 1000000.0))


def _gemma(src: Source, base: str, norms: int, *, qk_norm: bool = False, by_kind: bool = False) -> Blueprint:
    f = src.text
    layers = f.required("num_hidden_layers")
    bias = f.flag("attention_bias")
    heads = heads_of(f, bias=bias, out_bias=bias, norm="head" if qk_norm else "none")
    kinds = layer_kinds(f, layers, 6) if by_kind else ["full_attention"] * layers
    spec = rope_spec(f)

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        attention(t, f"{name}.self_attn", heads)
        gated_mlp(t, f"{name}.mlp", heads.hidden, f.required("intermediate_size"))
        t.values(norms * heads.hidden)
        here = _spec(f, kinds[i]) if by_kind else spec
        key = _base(f, kinds[i]) if by_kind else None
        t.rope(rope_table(f, heads.dim, t.element_bytes, spec=here, key=key))

    around = edges_of(src, base, **EVERYWHERE)._replace(norm=heads.hidden + 1)  # and the normalizer
    return Blueprint(layers, lambda i: kinds[i], layer, edges(around))


def gemma(src: Source, base: str = "") -> Blueprint:
    """Gemma 1."""
    return _gemma(src, base, 2)


def gemma2(src: Source, base: str = "") -> Blueprint:
    """Gemma 2: four norms a layer; the head is always the embeddings."""
    return _gemma(_tied(src), base, 4)


def gemma3(src: Source, base: str = "") -> Blueprint:
    """Gemma 3: four norms, query and key norms, a rotary table for each kind of layer."""
    return _gemma(src, base, 4, qk_norm=True, by_kind=True)


def gemma3_encoder(src: Source) -> Blueprint:
    """Gemma 3 as an embedding model, without a head."""
    return gemma3(_tied(src))


def _tied(src: Source) -> Source:
    """The same source with a head that is the embeddings, whatever the config says."""
    values = {"tie_word_embeddings": True}
    return src._replace(root=with_values(src.root, values), text=with_values(src.text, values), untied=False)


def _first_shared(f: Fields, layers: int) -> int:
    shared = f.size("num_kv_shared_layers", 0)
    return layers - shared if shared else layers


def _shared_attention(t: Tally, name: str, heads: Heads) -> None:
    """A layer that reads another's keys and values: query and output projections only."""
    t.column(f"{name}.q_proj", heads.hidden, heads.queries * heads.dim, bias=heads.bias)
    t.row(f"{name}.o_proj", heads.queries * heads.dim, heads.hidden, bias=heads.out_bias)
    t.values(heads.dim)
    t.attention_scales()


def _own_attention(t: Tally, name: str, heads: Heads) -> None:
    attention(t, name, heads._replace(norm="head"))


def gemma4(src: Source, base: str = "") -> Blueprint:
    """Gemma 4: wider heads in full attention, shared KV at the end, experts beside the MLP, per-layer embeddings."""
    f = src.text
    layers = f.required("num_hidden_layers")
    kinds = layer_kinds(f, layers, 6)
    bias = f.flag("attention_bias")
    usual = heads_of(f, bias=bias, out_bias=bias)
    wide_keys = f.optional("num_global_key_value_heads") if f.flag("attention_k_eq_v") else None
    wide = usual._replace(dim=f.size("global_head_dim", 512), keys=wide_keys or usual.keys)
    first_shared = _first_shared(f, layers)
    width = f.optional("hidden_size_per_layer_input")
    experts = f.flag("enable_moe_block")

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        heads = wide if kinds[i] == "full_attention" else usual
        (_shared_attention if i >= first_shared else _own_attention)(t, f"{name}.self_attn", heads)
        inner = f.required("intermediate_size") * (2 if f.flag("use_double_wide_mlp") and i >= first_shared else 1)
        gated_mlp(t, f"{name}.mlp", usual.hidden, inner)
        t.values(4 * usual.hidden + 1)  # norms and the layer's scalar
        t.rope(rope_table(f, heads.dim, t.element_bytes, spec=_spec(f, kinds[i]), key=kinds[i]))
        if experts:
            _gemma4_experts(t, name, f)
        if width:
            t.replicated(f"{name}.per_layer_input_gate", usual.hidden, width)
            t.replicated(f"{name}.per_layer_projection", width, usual.hidden)
            t.values(usual.hidden)

    def extra(t: Tally, _first: bool, _last: bool) -> None:
        if width:
            vocab = f.size("vocab_size_per_layer_input", None, "vocab_size")
            t.embedding(f"{base}model.embed_tokens_per_layer", vocab, width * layers)
            t.column(f"{base}model.per_layer_model_projection", usual.hidden, width * layers)
            t.values(width + 3)

    def kind(i: int) -> tuple[str, bool]:
        return kinds[i], i >= first_shared

    around = edges_of(src, base, **EVERYWHERE)._replace(norm=usual.hidden + 1, more=extra)
    return Blueprint(layers, kind, layer, edges(around))


def _gemma4_experts(t: Tally, name: str, f: Fields) -> None:
    """Experts beside the MLP, with a scaled router and three more norms."""
    hidden, count = f.required("hidden_size"), f.size("num_experts", 0)
    t.replicated(f"{name}.router.proj", hidden, count)
    t.values(hidden + count + 1 + 3 * hidden)
    mixture(t, name, Moe(hidden, count, f.size("moe_intermediate_size", 0, "expert_intermediate_size"), gate_bytes=0))


def _inner(f: Fields, i: int) -> int:
    """The MLP's size, which may be listed by layer."""
    sizes = f.get("intermediate_size")
    return int(sizes[i]) if isinstance(sizes, list) else f.required("intermediate_size")


def gemma3n(src: Source, base: str = "") -> Blueprint:
    """Gemma 3n: alternating updates, learned residuals, per-layer embeddings, shared KV at the end; always tied."""
    src = _tied(src)
    f = src.text
    layers = f.required("num_hidden_layers")
    kinds = layer_kinds(f, layers, 5)
    bias = f.flag("attention_bias")
    heads = heads_of(f, bias=bias, out_bias=bias)
    first_shared = _first_shared(f, layers)
    inputs, rank = f.size("altup_num_inputs", 4), f.size("laurel_rank", 64)
    width = f.size("hidden_size_per_layer_input", 256)

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        (_shared_attention if i >= first_shared else _own_attention)(t, f"{name}.self_attn", heads)
        gated_mlp(t, f"{name}.mlp", heads.hidden, _inner(f, i))
        t.replicated(f"{name}.altup.correction_coefs", inputs, inputs)
        t.replicated(f"{name}.altup.prediction_coefs", inputs, inputs**2)
        t.replicated(f"{name}.altup.modality_router", heads.hidden, inputs)
        t.values(heads.hidden + 1)
        t.values(heads.hidden, 4)
        t.column(f"{name}.laurel.linear_left", heads.hidden, rank)
        t.row(f"{name}.laurel.linear_right", rank, heads.hidden)
        t.replicated(f"{name}.per_layer_input_gate", heads.hidden, width)
        t.replicated(f"{name}.per_layer_projection", width, heads.hidden)
        t.values(6 * heads.hidden)
        t.rope(rope_table(f, heads.dim, t.element_bytes, spec=_spec(f, kinds[i]), key=_base(f, kinds[i])))

    def extra(t: Tally, _first: bool, _last: bool) -> None:
        t.embedding(f"{base}model.embed_tokens_per_layer", f.size("vocab_size_per_layer_input", 262144), width * layers)
        t.column(f"{base}model.per_layer_model_projection", heads.hidden, width * layers)
        for _ in range(2 * (inputs - 1)):
            t.column(f"{base}model.altup_projections.0", heads.hidden, heads.hidden)
        t.values(width + 4)

    around = edges_of(src, base, **EVERYWHERE)._replace(more=extra)
    return Blueprint(layers, lambda i: (kinds[i], i >= first_shared, _inner(f, i)), layer, edges(around))
