"""Plain decoders that differ from Llama in more than a bias.

Source: vLLM 0.32 model_executor/models/ (apertus, hyperclovax, orion, plamo3, telechat2, iquest_loopcoder, hrm_text,
nemotron_nas).
"""

from __future__ import annotations

from advisor.errors import NotUnderstood
from advisor.weights.attention import Heads, attention, heads_of
from advisor.weights.blueprint import Blueprint
from advisor.weights.decoder import Layers, decoder, dense
from advisor.weights.feed_forward import gated_mlp, plain_mlp
from advisor.weights.rope import rope_spec, rope_table
from advisor.weights.source import EVERYWHERE, Edges, Source, edges, edges_of, with_values
from advisor.weights.tally import Tally


def _decoder(
    src: Source, base: str, heads: Heads, norms: int, around: Edges | None = None, **more: object
) -> Blueprint:
    f = src.text
    plan = Layers(
        f.required("num_hidden_layers"),
        heads,
        dense(f, bias=f.flag("mlp_bias")),
        prefix=f"{base}model.layers",
        norm_values=norms * heads.hidden,
        rope=rope_spec(f),
    )
    return decoder(f, plan._replace(**more), around or edges_of(src, base))  # type: ignore[arg-type]


def apertus(src: Source, base: str = "") -> Blueprint:
    """Apertus: a plain MLP whose activation has two parameters and two buffers, norms over each head."""
    f = src.text
    bias = f.flag("attention_bias")
    heads = heads_of(f, norm="head", bias=bias, out_bias=bias)

    def mlp(t: Tally, name: str, _: int) -> None:
        plain_mlp(t, f"{name}.mlp", heads.hidden, f.required("intermediate_size"), bias=f.flag("mlp_bias"))
        t.values(4)

    return _decoder(src, base, heads, 2, feed_forward=mlp)


def hyperclova_x(src: Source, base: str = "") -> Blueprint:
    """HyperCLOVA X SEED: two more norms where the config says so."""
    f = src.text
    bias = f.flag("attention_bias")
    return _decoder(src, base, heads_of(f, bias=bias, out_bias=bias), 4 if f.flag("use_post_norm") else 2)


def orion(src: Source, base: str = "") -> Blueprint:
    """Orion: norms with biases; embeddings, norm and head on every stage."""
    heads = heads_of(src.text)
    return _decoder(src, base, heads, 4, edges_of(src, base, norm=2 * heads.hidden, **EVERYWHERE))


def telechat2(src: Source, base: str = "") -> Blueprint:
    """TeleChat 2: biases on the output and down projections, keys of its own."""
    f = src.text
    named = with_values(
        f,
        {
            "num_hidden_layers": f.required("n_layer", "num_hidden_layers"),
            "num_attention_heads": f.required("n_head", "num_attention_heads"),
            "intermediate_size": f.required("ffn_hidden_size", "intermediate_size"),
        },
    )
    heads = heads_of(named, out_bias=True)
    inner = named.required("intermediate_size")

    def mlp(t: Tally, name: str, _: int) -> None:
        t.column(f"{name}.mlp.gate_up_proj", heads.hidden, inner, inner)
        t.row(f"{name}.mlp.down_proj", inner, heads.hidden, bias=True)

    return _decoder(src._replace(text=named), base, heads, 2, feed_forward=mlp)


def plamo3(src: Source, base: str = "") -> Blueprint:
    """PLaMo 3: four norms a layer, norms over each head; one rotary table a base frequency."""
    f = src.text
    heads = heads_of(f, norm="head")
    layers = f.required("num_hidden_layers")
    local = f.get("rope_local_theta")
    kinds = f.entries("layer_types", layers) or ["full_attention"] * layers
    longest = f.size("max_position_embeddings", 8192)
    length = longest if src.max_model_len is None else min(longest, src.max_model_len)
    spec = rope_spec(f)
    theta = spec.values.get("rope_theta", f.get("rope_theta"))

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.layers.{i}"
        attention(t, f"{name}.mixer", heads)
        gated_mlp(t, f"{name}.mlp", heads.hidden, f.required("intermediate_size"))
        t.values(4 * heads.hidden)
        is_local = kinds[i] == "sliding_attention"
        key = local if is_local else theta
        t.rope(rope_table(f, heads.dim, t.element_bytes, spec=spec, positions=length, key=key))

    return Blueprint(layers, lambda i: kinds[i], layer, edges(edges_of(src, base, **EVERYWHERE)))


def iquest_loop(src: Source, base: str = "") -> Blueprint:
    """IQuest Loop Coder: Llama whose layers run more than once, with a gate a head and a cache a loop."""
    f = src.text
    heads = heads_of(f)
    mlp = dense(f)

    def feed_forward(t: Tally, name: str, i: int) -> None:
        mlp(t, name, i)
        t.values(t.share(heads.queries, "the number of attention heads") * (heads.dim + 1))
        for _ in range(1, f.size("loop_num", 2)):
            t.attention_scales()

    return _decoder(src, base, heads, 2, edges_of(src, base, **EVERYWHERE), feed_forward=feed_forward)


def hrm_text(src: Source, base: str = "") -> Blueprint:
    """HRM-Text: two stacks of layers without norms, attention gated and never grouped."""
    f = src.text
    hidden, queries = f.required("hidden_size"), f.required("num_attention_heads")
    dim = f.size("head_dim", hidden // queries)
    wide = queries * dim
    bias = f.flag("attention_bias")
    layers = f.size("num_layers_per_stack", None, "num_hidden_layers")
    loops = f.size("H_cycles", 2) * (f.size("L_cycles", 3) + 1)

    def layer(t: Tally, i: int) -> None:
        for stack in ("L_module", "H_module"):
            name = f"{base}model.{stack}.layers.{i}"
            t.column(f"{name}.self_attn.gqkv_proj", hidden, wide, wide, wide, wide, bias=bias)
            t.row(f"{name}.self_attn.o_proj", wide, hidden, bias=bias)
            gated_mlp(t, f"{name}.mlp", hidden, f.required("intermediate_size"), bias=f.flag("mlp_bias"))
        for _ in range(loops):
            t.attention_scales()
        t.rope(rope_table(f, dim, t.element_bytes))

    def more(t: Tally, _first: bool, _last: bool) -> None:
        t.values(hidden)

    return Blueprint(layers, lambda _: None, layer, edges(edges_of(src, base, norm=0, more=more, **EVERYWHERE)))


def nemotron_nas(src: Source, base: str = "") -> Blueprint:
    """Llama-Nemotron Super and Ultra: attention and MLP of each layer as the search left them, or left out."""
    f = src.text
    blocks = f.entries("block_configs", f.required("num_hidden_layers"))
    if blocks is None:
        raise NotUnderstood("no key says what each layer is", where=f.where + "block_configs")
    bias = f.flag("attention_bias") or f.flag("bias")
    usual = heads_of(f, bias=bias, out_bias=bias)
    spec = rope_spec(f)

    def sizes(i: int) -> tuple[int, int]:
        """KV heads and the MLP's inner size, 0 where left out."""
        block = blocks[i]
        heads, ffn = block.get("attention") or {}, block.get("ffn") or {}
        keys = 0 if heads.get("no_op") else usual.queries // int(heads["n_heads_in_group"])
        if ffn.get("no_op"):
            return keys, 0
        if ffn.get("ffn_mult") is None:
            return keys, int(ffn["intermediate_size"])
        inner = int(2 * float(ffn["ffn_mult"]) * usual.hidden / 3)
        return keys, -(-inner // 256) * 256

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        keys, inner = sizes(i)
        if keys:
            attention(t, f"{name}.self_attn", usual._replace(keys=keys))
            t.values(usual.hidden)
            t.rope(rope_table(f, usual.dim, t.element_bytes, spec=spec))
        if inner:
            gated_mlp(t, f"{name}.mlp", usual.hidden, inner, bias=f.flag("mlp_bias"))
            t.values(usual.hidden)

    return Blueprint(len(blocks), sizes, layer, edges(edges_of(src, base)))
