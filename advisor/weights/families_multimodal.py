"""Multimodal families: a language family under a prefix, and towers on every stage.

Source: vLLM 0.32 model_executor/models/ (the *_vl, *_mm and mllama4 classes).
"""

from __future__ import annotations

from collections.abc import Callable

from advisor.errors import NotUnderstood
from advisor.weights import families_dense as dense
from advisor.weights import families_gemma as gemma
from advisor.weights import families_hybrid as hybrid
from advisor.weights import families_latent as latent
from advisor.weights import families_moe as moe
from advisor.weights import towers
from advisor.weights.attention import attention, heads_of
from advisor.weights.blueprint import Blueprint
from advisor.weights.feed_forward import Moe, gated_mlp, mixture
from advisor.weights.fields import Fields
from advisor.weights.rope import rope_spec, rope_table
from advisor.weights.source import EVERYWHERE, Source, edges, edges_of
from advisor.weights.tally import Tally

LANGUAGE = "language_model."


def with_tower(plan: Blueprint, src: Source, build: Callable[[Tally], None]) -> Blueprint:
    """The same layers, and the towers on every stage."""
    if not src.towers:
        return plan

    counted: list[Tally] = []

    def add(t: Tally, first: bool, last: bool) -> None:
        plan.edges(t, first, last)
        if not counted:
            counted.append(t.like())
            build(counted[0])
        t.absorb(counted[0])

    return plan._replace(edges=add)


def vision_part(src: Source, model_type: str = "") -> Fields:
    """The vision part; `model_type` is the class whose defaults stand in for absent keys."""
    part = src.root.part("vision_config", "vision_encoder", model_type=model_type)
    if part is not None:
        return part
    defaults = Fields({}, model_type=model_type, nested=True, where="vision_config.")
    if not defaults.defaults:
        raise NotUnderstood("the config describes no vision tower", where="vision_config")
    if not isinstance(src.root.values.get("vision_config"), dict) and "vision_config" not in src.text.missing:
        src.text.missing.append("vision_config")
    return defaults


def _hidden(src: Source) -> int:
    return src.text.required("hidden_size")


def qwen2_vl(src: Source) -> Blueprint:
    """Qwen2-VL."""
    plan = dense.qwen2(src, LANGUAGE)
    return with_tower(plan, src, lambda t: towers.qwen2_vl(t, vision_part(src), _hidden(src)))


def qwen25_vl(src: Source) -> Blueprint:
    """Qwen2.5-VL."""
    plan = dense.qwen2(src, LANGUAGE)
    return with_tower(plan, src, lambda t: towers.qwen25_vl(t, vision_part(src, "qwen2_5_vl_vision"), _hidden(src)))


def qwen3_vl(src: Source) -> Blueprint:
    """Qwen3-VL."""
    plan = dense.qwen3(src, LANGUAGE, mrope_factor=1)
    return with_tower(plan, src, lambda t: towers.qwen3_vl(t, vision_part(src, "qwen3_vl_vision"), _hidden(src)))


def qwen3_vl_moe(src: Source) -> Blueprint:
    """Qwen3-VL with experts."""
    plan = moe.qwen3_moe(src, LANGUAGE, mrope_factor=1)
    return with_tower(plan, src, lambda t: towers.qwen3_vl(t, vision_part(src, "qwen3_vl_vision"), _hidden(src)))


def qwen35_vl(src: Source) -> Blueprint:
    """Qwen3.5 and 3.6 with vision, dense or with experts."""
    plan = hybrid.qwen3_5(src, LANGUAGE, mrope_factor=1)
    return with_tower(plan, src, lambda t: towers.qwen3_vl(t, vision_part(src, "qwen3_5_vision"), _hidden(src)))


def gemma3(src: Source) -> Blueprint:
    """Gemma 3 with SigLIP."""

    def build(t: Tally) -> None:
        width = towers.siglip(t, vision_part(src, "siglip_vision_model"), "vision_tower")
        t.values(width * _hidden(src) + width)

    return with_tower(gemma.gemma3(src, LANGUAGE), src, build)


def gemma4(src: Source) -> Blueprint:
    """Gemma 4 with vision and, where the config has one, audio."""

    def build(t: Tally) -> None:
        towers.gemma4_vision(t, vision_part(src, "gemma4_vision"), _hidden(src))
        audio = src.root.part("audio_config", model_type="gemma4_audio")
        if audio is not None:
            towers.gemma4_audio(t, audio, _hidden(src))

    return with_tower(gemma.gemma4(src, LANGUAGE), src, build)


def llama4_text(src: Source, base: str = "") -> Blueprint:
    """Llama 4: experts in every n-th layer, a shared expert beside them."""
    f = src.text
    layers = f.required("num_hidden_layers")
    heads = heads_of(f, bias=f.flag("attention_bias"), out_bias=f.flag("attention_bias"))
    step = f.size("interleave_moe_layer_step", 1)
    inner = f.required("intermediate_size")
    experts = Moe(
        heads.hidden, f.size("num_local_experts", 0), inner, shared_inner=inner, shared="shared_expert", gate="router"
    )
    spec = rope_spec(f)
    listed = f.get("moe_layers")

    def is_sparse(i: int) -> bool:
        if isinstance(listed, list) and listed:
            return i in listed
        return step > 0 and experts.experts > 0 and (i + 1) % step == 0

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        attention(t, f"{name}.self_attn", heads)
        t.rope(rope_table(f, heads.dim, t.element_bytes, spec=spec))
        if is_sparse(i):
            mixture(t, f"{name}.feed_forward", experts)
        else:
            gated_mlp(t, f"{name}.feed_forward", heads.hidden, f.size("intermediate_size_mlp", inner))
        t.values(2 * heads.hidden)

    return Blueprint(layers, is_sparse, layer, edges(edges_of(src, base)))


def llama4(src: Source) -> Blueprint:
    """Llama 4 with vision."""
    plan = llama4_text(src, LANGUAGE)
    return with_tower(plan, src, lambda t: towers.llama4(t, vision_part(src, "llama4_vision_model"), _hidden(src)))


def tower_depth(src: Source, v: Fields) -> int:
    """Layers a tower is built with: up to the one whose output is used."""
    layers = v.required("num_hidden_layers")
    used = src.root.get("vision_feature_layer", -1)
    if isinstance(used, list):
        used = max((u if u >= 0 else layers + u + 1) for u in used)
    if not isinstance(used, int):
        return layers
    return used if used >= 0 else layers + used + 1


def two_linears(t: Tally, src: Source, width: int, *, default: bool) -> None:
    """The projector of LLaVA: two linears, divided."""
    bias = src.root.flag("multimodal_projector_bias", default)
    hidden = _hidden(src)
    t.column("multi_modal_projector.linear_1", width, hidden, bias=bias)
    t.row("multi_modal_projector.linear_2", hidden, hidden, bias=bias)


def mistral3(src: Source) -> Blueprint:
    """Mistral Small 3.1 and later, Ministral 3, Devstral 2: Pixtral with a patch merger."""

    def build(t: Tally) -> None:
        v = vision_part(src, "mistral3_vision")
        width = towers.pixtral(t, v, "vision_tower", tower_depth(src, v))
        t.values(width + width * width * src.root.size("spatial_merge_size", 2) ** 2)
        two_linears(t, src, width, default=False)

    return with_tower(dense.llama(src, LANGUAGE), src, build)


def llava(src: Source) -> Blueprint:
    """LLaVA 1.5 and 1.6 and Pixtral in transformers' format."""
    f = src.text
    build_text = {"mistral": dense.llama, "llama": dense.llama, "qwen2": dense.qwen2}.get(
        str(f.get("model_type", "llama"))
    )
    if build_text is None:
        raise NotUnderstood("this language model inside LLaVA is not known", where=f.where + "model_type")

    def build(t: Tally) -> None:
        v = vision_part(src, "clip_vision_model")
        kind, depth = v.get("model_type"), tower_depth(src, v)
        is_whole = depth == v.required("num_hidden_layers")
        if kind == "pixtral":
            width = towers.pixtral(t, v, "vision_tower", depth)
        elif kind == "siglip_vision_model":
            width = towers.siglip(
                t, v, "vision_tower", layers=depth, post_norm=depth == v.required("num_hidden_layers")
            )
        else:
            width = towers.clip(t, v, "vision_tower", depth, post_norm=is_whole)
        two_linears(t, src, width, default=True)

    return with_tower(build_text(src, LANGUAGE), src, build)


def lfm2_vl(src: Source) -> Blueprint:
    """LFM2-VL: SigLIP 2 and a projector whole on every rank."""

    def build(t: Tally) -> None:
        width = towers.siglip2(t, vision_part(src, "siglip2_vision_model"), "vision_tower")
        merged = width * src.root.size("downsample_factor", 2) ** 2
        middle, bias = src.root.size("projector_hidden_size", 2560), src.root.flag("projector_bias", True)
        if src.root.flag("projector_use_layernorm", True):
            t.values(2 * merged)
        t.values(merged * middle + middle * _hidden(src) + (middle + _hidden(src) if bias else 0))

    return with_tower(hybrid.lfm2(src, LANGUAGE), src, build)


def kimi_k25(src: Source) -> Blueprint:
    """Kimi K2.5."""
    plan = latent.deepseek(src, LANGUAGE)
    return with_tower(plan, src, lambda t: towers.kimi_k25(t, vision_part(src), _hidden(src)))


def muse_glimmer_text(src: Source, base: str = "") -> Blueprint:
    """Muse Glimmer: four norms a layer, a gate on the attention output; every stage builds embeddings and head."""
    f = src.text
    bias = f.flag("attention_bias")
    heads = heads_of(f, bias=bias, out_bias=bias)
    spec = rope_spec(f)

    def layer(t: Tally, i: int) -> None:
        name = f"{base}model.layers.{i}"
        attention(t, f"{name}.self_attn", heads)
        t.column(f"{name}.self_attn.output_gate_proj", heads.hidden, heads.queries * heads.dim)
        gated_mlp(t, f"{name}.mlp", heads.hidden, f.required("intermediate_size"))
        t.values(4 * heads.hidden)
        t.rope(rope_table(f, heads.dim, t.element_bytes, spec=spec))

    return Blueprint(
        f.required("num_hidden_layers"), lambda _: None, layer, edges(edges_of(src, base, tied=False, **EVERYWHERE))
    )


def muse_glimmer(src: Source) -> Blueprint:
    """Muse Glimmer with vision."""
    plan = muse_glimmer_text(src)
    vision = "muse_glimmer_vision"
    return with_tower(plan, src, lambda t: towers.muse_glimmer(t, vision_part(src, vision), src.root, _hidden(src)))
