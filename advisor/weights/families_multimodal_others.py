"""More multimodal families: a language family under a prefix, and towers on every stage.

Source: vLLM 0.32 model_executor/models/ (llava_next, llava_next_video, llava_onevision, paligemma, internvl, kimi_vl,
idefics3, smolvlm, glm4_1v, cohere2_vision, exaone4_5, dots_ocr, paddleocr_vl, qwen2_5_omni_thinker, qwen2_audio, phi3v,
minicpmv, gemma3n_mm, gemma4_unified).
"""

from __future__ import annotations

from collections.abc import Callable

from advisor.errors import NotUnderstood
from advisor.weights import towers, towers_others
from advisor.weights.blueprint import Blueprint
from advisor.weights.families_multimodal import LANGUAGE, tower_depth, two_linears, vision_part, with_tower
from advisor.weights.fields import Fields
from advisor.weights.source import Source
from advisor.weights.tally import Tally


def language(src: Source, base: str = LANGUAGE) -> Blueprint:
    """The blueprint of the text part: by its own architecture, else by its model_type."""
    from advisor.model.architectures import TEXT_ARCHITECTURE
    from advisor.weights.table import FAMILIES

    text = src.text
    names = text.values.get("architectures") if text.nested else None
    kind = str(text.get("model_type") or text.kind)
    name = str(names[0]) if isinstance(names, list) and names else TEXT_ARCHITECTURE.get(kind, "")
    family = FAMILIES.get(name)
    if family is None or family.has_towers:
        raise NotUnderstood(f"the language model {name or kind!r} is not known", where=text.where + "model_type")
    plan: Blueprint = family.reader_function()(src, base)
    return plan


def _hidden(src: Source) -> int:
    return src.text.required("hidden_size")


def _from_language(src: Source, build: Callable[[Tally], None]) -> Blueprint:
    return with_tower(language(src), src, build)


def _clip_or_siglip(t: Tally, src: Source, *, post_norm: bool | None = None) -> int:
    """LLaVA's tower, cut after the layer whose output is used."""
    v = vision_part(src, "clip_vision_model")
    depth = tower_depth(src, v)
    whole = depth == v.required("num_hidden_layers") if post_norm is None else post_norm
    if v.get("model_type") == "siglip_vision_model":
        return towers.siglip(t, v, "vision_tower", layers=depth, post_norm=whole)
    return towers.clip(t, v, "vision_tower", depth, post_norm=whole)


def llava_next(src: Source) -> Blueprint:
    """LLaVA-NeXT (1.6): LLaVA with a vector that ends a line."""

    def build(t: Tally) -> None:
        two_linears(t, src, _clip_or_siglip(t, src), default=True)
        t.values(_hidden(src))

    return _from_language(src, build)


def _whole_projector(t: Tally, src: Source, width: int) -> None:
    """Two linears with biases, whole on every rank."""
    hidden = _hidden(src)
    bias = src.root.flag("multimodal_projector_bias", True)
    t.values(width * hidden + hidden * hidden + (2 * hidden if bias else 0))


def llava_next_video(src: Source) -> Blueprint:
    """LLaVA-NeXT-Video: the projector whole on every rank."""
    return _from_language(src, lambda t: _whole_projector(t, src, _clip_or_siglip(t, src)))


def llava_onevision(src: Source) -> Blueprint:
    """LLaVA-OneVision: SigLIP without its last norm, the projector whole on every rank."""

    def build(t: Tally) -> None:
        _whole_projector(t, src, _clip_or_siglip(t, src, post_norm=False))
        t.values(_hidden(src))

    return _from_language(src, build)


def paligemma(src: Source) -> Blueprint:
    """PaliGemma 1 and 2."""

    def build(t: Tally) -> None:
        v = vision_part(src, "siglip_vision_model")
        width = towers.siglip(t, v, "vision_tower")
        out = v.size("projection_dim", _hidden(src))
        t.values(width * out + out)

    return _from_language(src, build)


def internvl_chat(src: Source) -> Blueprint:
    """InternVL 2 to 3.5 in their own format."""

    def build(t: Tally) -> None:
        v = vision_part(src)
        used = int(src.root.get("select_layer", -1))
        depth = v.required("num_hidden_layers") + used + 1 if used < 0 else used + 1
        width = towers_others.intern_vit(t, v, depth)
        merged, hidden = width * int(1 / float(src.root.get("downsample_ratio", 0.5))) ** 2, _hidden(src)
        t.values(2 * merged + merged * hidden + hidden + hidden * hidden + hidden)

    return _from_language(src, build)


def internvl(src: Source) -> Blueprint:
    """InternVL 3 in transformers' format."""

    def build(t: Tally) -> None:
        width = towers_others.intern_vit_hf(t, vision_part(src, "internvl_vision"))
        merged, hidden = width * int(1 / float(src.root.get("downsample_ratio", 0.5))) ** 2, _hidden(src)
        t.values(2 * merged + merged * hidden + hidden + hidden * hidden + hidden)

    return _from_language(src, build)


def kimi_vl(src: Source) -> Blueprint:
    """Kimi-VL."""
    return _from_language(
        src, lambda t: towers_others.moon_vit(t, vision_part(src), "multi_modal_projector", _hidden(src))
    )


def idefics3(src: Source) -> Blueprint:
    """Idefics 3 and SmolVLM: the connector is one linear, whole on every rank."""
    tied = src.text.flag("tie_word_embeddings")

    def build(t: Tally) -> None:
        width = towers_others.idefics(t, v := vision_part(src, "idefics3_vision"), "model.vision_model", v_depth(v))
        t.replicated("model.connector.proj", width * src.root.size("scale_factor", 2) ** 2, _hidden(src))

    def v_depth(v: Fields) -> int:
        return v.required("num_hidden_layers")

    return _from_language(src.with_root(tie_word_embeddings=tied), build)


def glm4v(src: Source) -> Blueprint:
    """GLM-4.1V to 4.6V, dense or with experts."""
    return _from_language(src, lambda t: towers_others.glm4v(t, vision_part(src, "glm4v_moe_vision")))


def cohere2_vision(src: Source) -> Blueprint:
    """Command A Vision, Aya Vision 2: SigLIP and a gated projector."""

    def build(t: Tally) -> None:
        width = towers.siglip(t, vision_part(src, "siglip_vision_model"), "vision_tower")
        middle = src.root.size("alignment_intermediate_size", 36864)
        merged = width * src.root.size("downsample_factor", 2) ** 2
        t.column("multi_modal_projector.linear_1", merged, middle // 2, middle // 2, bias=True)
        t.row("multi_modal_projector.linear_2", middle // 2, _hidden(src), bias=True)

    return _from_language(src, build)


def exaone4_5(src: Source) -> Blueprint:
    """EXAONE 4.5: Qwen2.5-VL's tower with fewer KV heads."""
    return _from_language(
        src, lambda t: towers.qwen25_vl(t, vision_part(src, "exaone4_5_vision"), _hidden(src), grouped=True)
    )


def dots_ocr(src: Source) -> Blueprint:
    """dots.ocr: the config of the language model holds the tower's."""
    from advisor.weights import families_dense

    plan = families_dense.qwen2(src, LANGUAGE)
    return with_tower(plan, src, lambda t: towers_others.dots(t, vision_part(src)))


def paddle_ocr(src: Source) -> Blueprint:
    """PaddleOCR-VL: the config of the language model holds the tower's; its class ties the head."""
    from advisor.weights import families_dense

    plan = families_dense.ernie45(src.with_root(tie_word_embeddings=True), LANGUAGE)
    return with_tower(plan, src, lambda t: towers_others.paddle_ocr(t, vision_part(src), _hidden(src)))


def minicpm_v(src: Source) -> Blueprint:
    """MiniCPM-V 2.5 to 4.5: the version says which language model."""
    from advisor.weights import families_dense

    kinds = {
        "2.5": families_dense.llama,
        "2.6": families_dense.qwen2,
        "4.0": families_dense.llama,
        "4.5": families_dense.qwen3,
    }
    version = str(src.root.get("version"))
    if version not in kinds:
        raise NotUnderstood(f"MiniCPM-V {version} is not known", where="version")
    plan = kinds[version](src.with_root(tie_word_embeddings=False), "llm.")
    return with_tower(plan, src, lambda t: towers_others.minicpm_v(t, vision_part(src), src.root, _hidden(src)))


_CLIP_LARGE = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "image_size": 336,
    "patch_size": 14,
}


def phi3_v(src: Source) -> Blueprint:
    """Phi-3.5 vision: CLIP large but for its last layer, a projector of two linears, the embeddings twice."""
    from advisor.weights import families_dense

    plan = families_dense.phi3(src, "")

    def build(t: Tally) -> None:
        hidden = _hidden(src)
        width = towers.clip(t, Fields(_CLIP_LARGE), "vision_embed_tokens.img_processor", 23, post_norm=False)
        t.embedding("model.embed_tokens", src.text.required("vocab_size"), hidden)
        t.values(2 * 4 * width)
        t.values(4 * width * hidden + hidden + hidden * hidden + hidden)

    return with_tower(plan, src, build)


def qwen2_audio(src: Source) -> Blueprint:
    """Qwen2-Audio: Whisper's encoder and one linear, whole on every rank."""

    def build(t: Tally) -> None:
        a = src.root.part("audio_config", model_type="qwen2_audio_encoder")
        width = towers_others.whisper_encoder(t, a or Fields({}, model_type="qwen2_audio_encoder"), positions=2)
        t.values(width * _hidden(src) + _hidden(src))

    return _from_language(src, build)


def qwen25_omni(src: Source) -> Blueprint:
    """Qwen2.5-Omni's thinker: Qwen2.5-VL with Whisper's encoder."""
    from advisor.weights import families_dense

    thinker = src.root.part("thinker_config")
    if thinker is None:
        raise NotUnderstood("the config describes no thinker", where="thinker_config")
    src = src._replace(root=thinker)
    plan = families_dense.qwen2(src, LANGUAGE)

    def build(t: Tally) -> None:
        a = thinker.part("audio_config", model_type="qwen2_5_omni_audio_encoder") or Fields({})
        width = towers_others.whisper_encoder(t, a, positions=4)
        out = a.size("output_dim", _hidden(src))
        t.values(2 * out + width * out + out)
        towers.qwen25_vl(t, vision_part(src, "qwen2_5_omni_vision_encoder"), _hidden(src))

    return with_tower(plan, src, build)


def gemma3n(src: Source) -> Blueprint:
    """Gemma 3n without its towers, which are another library's (timm)."""
    from advisor.weights import families_gemma

    if src.towers:
        raise NotUnderstood("the vision and audio towers of Gemma 3n are not counted", where="vision_config")
    return families_gemma.gemma3n(src, LANGUAGE)


def gemma4_unified(src: Source) -> Blueprint:
    """Gemma 4 Unified: Gemma 4 with projections in place of towers."""
    from advisor.weights import families_gemma

    def build(t: Tally) -> None:
        audio = src.root.part("audio_config")
        towers_others.gemma4_unified(t, vision_part(src, "gemma4_unified_vision"), audio, _hidden(src))

    return with_tower(families_gemma.gemma4(src, LANGUAGE), src, build)
