"""More vision and audio towers. Unless said otherwise their linears are divided like any other.

Source: vLLM 0.32 model_executor/models/ (intern_vit, interns1_vit, moonvit, glm4_1v, dots_ocr, paddleocr_vl, phi3v,
minicpmv, idefics2_vision_model, qwen2_5_omni_thinker, qwen2_audio, gemma4_unified) and transformers' audio encoders.
"""

from __future__ import annotations

from advisor.weights.fields import Fields
from advisor.weights.tally import Tally
from advisor.weights.towers import encoder, square_attention

_ROTARY_ROWS = 8192


def _pair(value: object) -> tuple[int, int]:
    """A size that may be one number or two."""
    if isinstance(value, (list, tuple)):
        return int(value[0]), int(value[1])
    return int(str(value)), int(str(value))


def intern_vit(t: Tally, v: Fields, depth: int) -> int:
    """InternViT: scaled residuals, norms over all heads where asked; returns the hidden size.

    Heads that do not divide keep the attention whole on every rank.
    """
    hidden, inner, heads = v.required("hidden_size"), v.required("intermediate_size"), v.required("num_attention_heads")
    divides = heads % t.tp == 0
    rms = v.get("norm_type", "layer_norm") == "rms_norm"
    for i in range(depth):
        name = f"vision_model.encoder.layers.{i}"
        if divides:
            t.column(f"{name}.attn.qkv", hidden, hidden, hidden, hidden, bias=v.flag("qkv_bias"))
            t.row(f"{name}.attn.proj", hidden, hidden, bias=True)
        else:
            t.replicated(f"{name}.attn.qkv", hidden, hidden, hidden, hidden, bias=v.flag("qkv_bias"))
            t.replicated(f"{name}.attn.proj", hidden, hidden, bias=True)
        if v.flag("qk_normalization"):
            t.values(2 * hidden)
        t.column(f"{name}.mlp.fc1", hidden, inner, bias=True)
        t.row(f"{name}.mlp.fc2", inner, hidden, bias=True)
        t.values((2 if rms else 4) * hidden + 2 * hidden)
    patch = v.size("patch_size", 14)
    grid = (v.size("image_size", 448) // patch) ** 2
    t.values(hidden + (grid + 1) * hidden + 3 * patch * patch * hidden + hidden)
    return hidden


def intern_vit_hf(t: Tally, v: Fields) -> int:
    """InternViT in transformers' format: attention whole on every rank; returns the hidden size."""
    hidden, inner = v.required("hidden_size"), v.required("intermediate_size")
    bias = v.flag("attention_bias")
    rms = v.get("norm_type", "layer_norm") == "rms_norm"
    for i in range(v.required("num_hidden_layers")):
        name = f"vision_tower.encoder.layer.{i}"
        for part in ("q_proj", "k_proj", "v_proj"):
            t.replicated(f"{name}.attention.{part}", hidden, hidden, bias=bias)
        t.replicated(f"{name}.attention.projection_layer", hidden, hidden, bias=True)
        if v.flag("use_qk_norm"):
            t.values(2 * hidden)
        t.column(f"{name}.mlp.fc1", hidden, inner, bias=True)
        t.row(f"{name}.mlp.fc2", inner, hidden, bias=True)
        t.values((2 if rms else 4) * hidden + 2 * hidden)
    high, wide = _pair(v.get("image_size", 224))
    rows, columns = _pair(v.get("patch_size", 14))
    grid = (high // rows) * (wide // columns)
    t.values(hidden + (3 * rows * columns + 1) * hidden)
    if v.flag("use_absolute_position_embeddings", True):
        t.values((grid + 1) * hidden)
    if not v.flag("use_mean_pooling", True):
        t.values(2 * hidden)
    return hidden


def moon_vit(t: Tally, v: Fields, projector: str, text_hidden: int) -> None:
    """MoonViT of Kimi-VL and a patch-merging projector; not quantised."""
    hidden, inner, patch = v.required("hidden_size"), v.required("intermediate_size"), v.size("patch_size", 14)
    for i in range(v.required("num_hidden_layers")):
        name = f"vision_tower.encoder.blocks.{i}"
        t.column(f"{name}.wqkv", hidden, hidden, hidden, hidden, bias=True, quantised=False)
        t.row(f"{name}.wo", hidden, hidden, bias=True, quantised=False)
        t.column(f"{name}.mlp.fc0", hidden, inner, bias=True, quantised=False)
        t.row(f"{name}.mlp.fc1", inner, hidden, bias=True, quantised=False)
        t.values(4 * hidden)
    grid = v.size("init_pos_emb_height", 64) * v.size("init_pos_emb_width", 64)
    t.values(3 * patch * patch * hidden + hidden + grid * hidden + 2 * hidden)
    rows, columns = _pair(v.get("merge_kernel_size") or (2, 2))
    merged = hidden * rows * columns
    t.values(2 * hidden)
    t.replicated(f"{projector}.linear_1", merged, merged, bias=True, quantised=False)
    t.replicated(f"{projector}.linear_2", merged, text_hidden, bias=True, quantised=False)


def glm4v(t: Tally, v: Fields) -> None:
    """GLM-4.1V to 4.6V: RMS norms, a gated MLP, a convolution that halves the grid, a gated merger."""
    hidden, out = v.required("hidden_size"), v.required("out_hidden_size")
    heads, inner, patch = v.size("num_heads", 12), v.required("intermediate_size"), v.size("patch_size", 14)
    bias = v.flag("attention_bias")
    for i in range(v.required("depth")):
        name = f"visual.blocks.{i}"
        square_attention(t, f"{name}.attn", hidden, "qkv", "proj", bias=bias)
        t.column(f"{name}.mlp.gate_up_proj", hidden, out, out)
        t.row(f"{name}.mlp.down_proj", out, hidden)
        t.values(2 * hidden)
    grid = (v.size("image_size", 336) // patch) ** 2
    t.values(3 * v.size("temporal_patch_size", 2) * patch * patch * hidden + hidden)
    t.values(grid * hidden + 2 * hidden)
    t.values(grid, 8)
    t.values(v.size("spatial_merge_size", 2) ** 2 * hidden * out + out)
    t.column("visual.merger.proj", out, out)
    t.column("visual.merger.gate_up_proj", out, inner, inner)
    t.row("visual.merger.down_proj", inner, out)
    t.values(2 * out)
    t.values(_ROTARY_ROWS * (hidden // heads // 2))


def dots(t: Tally, v: Fields) -> None:
    """dots.ocr: RMS norms, a gated MLP, a merger of two linears."""
    hidden, inner, heads = v.required("embed_dim"), v.required("intermediate_size"), v.required("num_attention_heads")
    patch, bias = v.size("patch_size", 14), v.flag("use_bias")
    for i in range(v.required("num_hidden_layers")):
        name = f"vision_tower.blocks.{i}"
        square_attention(t, f"{name}.attn", hidden, "qkv", "proj", bias=bias)
        t.column(f"{name}.mlp.fc13", hidden, inner, inner, bias=bias)
        t.row(f"{name}.mlp.fc2", inner, hidden, bias=bias)
        t.values(2 * hidden)
    t.values(v.size("num_channels", 3) * patch * patch * hidden + 2 * hidden)
    t.values(hidden if v.flag("post_norm", True) else 0)
    merged, out = hidden * v.size("spatial_merge_size", 2) ** 2, v.required("hidden_size")
    t.values(2 * hidden)
    t.column("vision_tower.merger.mlp.0", merged, merged, bias=True)
    t.row("vision_tower.merger.mlp.2", merged, out, bias=True)
    t.values(hidden // heads // 4, 4)


def paddle_ocr(t: Tally, v: Fields, text_hidden: int) -> None:
    """PaddleOCR-VL: SigLIP with rotary frequencies, a projector whole on every rank."""
    hidden = encoder(t, "visual.vision_model.encoder.layers", v, v.required("num_hidden_layers"))
    patch = v.size("patch_size", 14)
    grid = (v.size("image_size", 384) // patch) ** 2
    t.values(v.size("num_channels", 3) * patch * patch * hidden + hidden + grid * hidden + 2 * hidden)
    t.values(grid, 8)
    t.values(hidden // v.required("num_attention_heads") // 4, 4)
    merged = hidden * v.size("spatial_merge_size", 2) ** 2
    t.values(2 * hidden)
    t.replicated("mlp_AR.linear_1", merged, merged, bias=True)
    t.replicated("mlp_AR.linear_2", merged, text_hidden, bias=True)


def idefics(t: Tally, v: Fields, base: str, depth: int, *, post_norm: bool = True) -> int:
    """SigLIP as Idefics 2 and 3 and MiniCPM-V have it, without position ids; returns the hidden size."""
    hidden = encoder(t, f"{base}.encoder.layers", v, depth)
    patch = v.size("patch_size", 14)
    grid = (v.size("image_size", 980) // patch) ** 2
    t.values(v.size("num_channels", 3) * patch * patch * hidden + hidden + grid * hidden)
    t.values(2 * hidden if post_norm else 0)
    return hidden


def minicpm_v(t: Tally, v: Fields, root: Fields, text_hidden: int) -> None:
    """MiniCPM-V 2.5 to 4: SigLIP and a resampler, the latter whole on every rank."""
    depth = v.required("num_hidden_layers") - (1 if root.flag("drop_vision_last_layer") else 0)
    width = idefics(t, v, "vpm", depth)
    h = text_hidden
    t.values(root.size("query_num", 64) * h + h * h + h * width)
    t.values(3 * h * h + 3 * h + h * h + h + 6 * h)
    t.values(70 * 70 * h)  # positions of a grid of 70 by 70


def whisper_encoder(t: Tally, a: Fields, *, positions: int) -> int:
    """The audio encoder of Qwen's audio models, whole on every rank; returns its width.

    `positions` is the size of an element of the position table, which is a parameter or a float32 buffer.
    """
    width, inner = a.size("d_model", 1280), a.size("encoder_ffn_dim", 5120)
    bins, rows = a.size("num_mel_bins", 128), a.size("max_source_positions", 1500)
    layer = 4 * width * width + 3 * width + 2 * width * inner + inner + width + 4 * width
    t.values(a.size("encoder_layers", 32) * layer)
    t.values(3 * bins * width + width + 3 * width * width + width + 2 * width)
    t.values(rows * width, positions)
    return width


def gemma4_unified(t: Tally, v: Fields, audio: Fields | None, text_hidden: int) -> None:
    """Gemma 4 Unified has no tower: patches are projected and placed, audio frames projected."""
    width = v.size("mm_embed_dim", 3840)
    patch = v.size("model_patch_size", 48) ** 2 * 3
    t.values(2 * patch + 4 * width + v.size("mm_posemb_size", 1120) * 2 * width)
    t.column("vision_embedder.patch_dense", patch, width, bias=True)
    t.replicated("embed_vision.embedding_projection", v.size("output_proj_dims", width), text_hidden)
    if audio is not None:
        t.replicated("embed_audio.embedding_projection", audio.size("audio_embed_dim", 640), text_hidden)
