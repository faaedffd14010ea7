"""Vision and audio towers of multimodal models, and the projectors into the language model.

A tower is built on every pipeline stage. Unless said otherwise its linears are divided like any other.
Source: vLLM 0.32 model_executor/models/ (qwen2_vl, qwen2_5_vl, qwen3_vl, siglip, siglip2, clip, pixtral, mllama4,
kimi_k25_vit, muse_glimmer, gemma4_mm, lfm2_vl) and transformers 5.19 models/gemma4.
"""

from __future__ import annotations

from advisor.weights.fields import Fields
from advisor.weights.tally import Tally

_QWEN_POSITIONS = 8192  # rows of the rotary table of Qwen's towers


def qwen2_vl(t: Tally, v: Fields, text_hidden: int) -> None:
    """Qwen2-VL: norms with biases, a plain MLP."""
    hidden, heads = v.size("embed_dim", 1280), v.size("num_heads", 16)
    inner = int(hidden * float(v.get("mlp_ratio", 4)))
    merged = hidden * v.size("spatial_merge_size", 2) ** 2
    depth = v.size("depth", 32)
    block = t.like()
    square_attention(block, "visual.blocks.0.attn", hidden, "qkv", "proj")
    block.column("visual.blocks.0.mlp.fc1", hidden, inner, bias=True)
    block.row("visual.blocks.0.mlp.fc2", inner, hidden, bias=True)
    block.values(4 * hidden)
    t.absorb(block, depth)
    t.values(_patches(v, hidden) + 2 * hidden)
    t.column("visual.merger.mlp.0", merged, merged, bias=True)
    t.row("visual.merger.mlp.2", merged, text_hidden, bias=True)
    t.values(_QWEN_POSITIONS * (hidden // heads // 2))


def qwen25_vl(t: Tally, v: Fields, text_hidden: int, *, grouped: bool = False) -> None:
    """Qwen2.5-VL: norms without biases, a gated MLP with biases; `grouped` attention has its own KV heads."""
    hidden, heads = v.required("hidden_size"), v.size("num_heads", 16)
    inner = v.required("intermediate_size")
    merged = hidden * v.size("spatial_merge_size", 2) ** 2
    block = t.like()
    if grouped:
        block.qkv(
            "visual.blocks.0.attn.qkv", hidden, heads, v.size("num_key_value_heads", heads), hidden // heads, bias=True
        )
        block.row("visual.blocks.0.attn.proj", hidden, hidden, bias=True)
    else:
        square_attention(block, "visual.blocks.0.attn", hidden, "qkv", "proj")
    block.column("visual.blocks.0.mlp.gate_up_proj", hidden, inner, inner, bias=True)
    block.row("visual.blocks.0.mlp.down_proj", inner, hidden, bias=True)
    block.values(2 * hidden)
    t.absorb(block, v.size("depth", 32))
    t.values(_patches(v, hidden) + hidden)
    t.column("visual.merger.mlp.0", merged, merged, bias=True)
    t.row("visual.merger.mlp.2", merged, v.size("out_hidden_size", text_hidden), bias=True)
    t.values(_QWEN_POSITIONS * (hidden // heads // 2))


def qwen3_vl(t: Tally, v: Fields, text_hidden: int) -> None:
    """Qwen3-VL and Qwen3.5: learned positions, a merger for each deep layer that is handed on."""
    hidden, heads = v.required("hidden_size"), v.size("num_heads", 16)
    inner = v.required("intermediate_size")
    merged = hidden * v.size("spatial_merge_size", 2) ** 2
    out = v.size("out_hidden_size", text_hidden)
    deep = v.get("deepstack_visual_indexes") or ()
    for i in range(v.size("depth", 27)):
        name = f"visual.blocks.{i}"
        square_attention(t, f"{name}.attn", hidden, "qkv", "proj")
        t.column(f"{name}.mlp.linear_fc1", hidden, inner, bias=True)
        t.row(f"{name}.mlp.linear_fc2", inner, hidden, bias=True)
        t.values(4 * hidden)
    names = ["visual.merger", *(f"visual.deepstack_merger_list.{i}" for i in range(len(deep)))]
    for name in names:
        t.column(f"{name}.linear_fc1", merged, merged, bias=True)
        t.row(f"{name}.linear_fc2", merged, out, bias=True)
        t.values(2 * (hidden if name == "visual.merger" else merged))
    t.values(_patches(v, hidden) + hidden)
    t.values(v.size("num_position_embeddings", 2304) * hidden)
    t.values(_QWEN_POSITIONS * (hidden // heads // 2))


def square_attention(t: Tally, name: str, hidden: int, qkv: str, out: str, *, bias: bool = True) -> None:
    """Attention whose heads add up to the hidden size, none of them shared."""
    t.column(f"{name}.{qkv}", hidden, hidden, hidden, hidden, bias=bias)
    t.row(f"{name}.{out}", hidden, hidden, bias=bias)


def _patches(v: Fields, hidden: int) -> int:
    """Elements of a patch embedding over time and two directions, without its bias."""
    patch = v.size("patch_size", 14)
    channels = v.size("in_channels", 3, "in_chans")
    return hidden * channels * v.size("temporal_patch_size", 2) * patch * patch


def encoder(t: Tally, name: str, v: Fields, layers: int, *, out: str = "out_proj") -> int:
    """The layers SigLIP and CLIP share; returns the hidden size."""
    hidden, inner = v.required("hidden_size"), v.required("intermediate_size")
    for i in range(layers):
        square_attention(t, f"{name}.{i}.self_attn", hidden, "qkv_proj", out)
        t.column(f"{name}.{i}.mlp.fc1", hidden, inner, bias=True)
        t.row(f"{name}.{i}.mlp.fc2", inner, hidden, bias=True)
        t.values(4 * hidden)
    return hidden


def siglip(t: Tally, v: Fields, base: str, *, layers: int | None = None, post_norm: bool = True) -> int:
    """SigLIP with a grid of learned positions; returns the hidden size."""
    count = v.required("num_hidden_layers") if layers is None else layers
    hidden = encoder(t, f"{base}.vision_model.encoder.layers", v, count)
    patch = v.size("patch_size", 16)
    grid = (v.size("image_size", 224) // patch) ** 2
    t.values(hidden * v.size("num_channels", 3) * patch * patch + hidden + grid * hidden)
    t.values(2 * hidden if post_norm else 0)
    t.values(grid, 8)  # position ids
    return hidden


def siglip2(t: Tally, v: Fields, base: str) -> int:
    """SigLIP 2 with a number of patches in place of an image size; returns the hidden size."""
    hidden = encoder(t, f"{base}.vision_model.encoder.layers", v, v.required("num_hidden_layers"))
    patch = v.size("patch_size", 16)
    t.values(hidden * v.size("num_channels", 3) * patch * patch + hidden)
    t.values(v.size("num_patches", 256) * hidden + 2 * hidden)
    return hidden


def clip(t: Tally, v: Fields, base: str, layers: int, *, post_norm: bool) -> int:
    """CLIP with a class token; returns the hidden size."""
    hidden = encoder(t, f"{base}.vision_model.encoder.layers", v, layers)
    patch = v.size("patch_size", 14)
    grid = (v.size("image_size", 336) // patch) ** 2 + 1
    t.values(hidden + hidden * v.size("num_channels", 3) * patch * patch + grid * hidden)
    t.values((4 if post_norm else 2) * hidden)
    t.values(grid, 8)
    return hidden


def pixtral(t: Tally, v: Fields, base: str, layers: int) -> int:
    """Pixtral in transformers' format: RMS norms, a gated MLP, no biases; returns the hidden size."""
    hidden, inner = v.required("hidden_size"), v.required("intermediate_size")
    dim = v.size("head_dim", hidden // v.required("num_attention_heads"))
    patch = v.size("patch_size", 16)
    for i in range(layers):
        name = f"{base}.transformer.layers.{i}"
        square_attention(t, f"{name}.attention", hidden, "qkv_proj", "o_proj", bias=False)
        t.column(f"{name}.feed_forward.gate_up_proj", hidden, inner, inner)
        t.row(f"{name}.feed_forward.down_proj", inner, hidden)
        t.values(2 * hidden)
    t.values(hidden * v.size("num_channels", 3) * patch * patch + hidden)
    t.values(2 * (dim // 2), 4)
    return hidden


def llama4(t: Tally, v: Fields, text_hidden: int) -> None:
    """Llama 4: a class token, a complex rotary table, a pixel-shuffle adapter, and the projector."""
    hidden, inner = v.required("hidden_size"), v.required("intermediate_size")
    heads, patch = v.required("num_attention_heads"), v.size("patch_size", 14)
    grid = (v.size("image_size", 448) // patch) ** 2 + 1
    for i in range(v.required("num_hidden_layers")):
        name = f"vision_model.model.layers.{i}"
        square_attention(t, f"{name}.self_attn", hidden, "qkv_proj", "o_proj")
        t.column(f"{name}.mlp.fc1", hidden, inner, bias=True)
        t.row(f"{name}.mlp.fc2", inner, hidden, bias=True)
        t.values(4 * hidden)
    t.column("vision_model.patch_embedding.linear", v.size("num_channels", 3) * patch * patch, hidden, quantised=False)
    t.values(hidden + grid * hidden + 4 * hidden)
    middle, out = v.size("projector_input_dim", 4096), v.size("projector_output_dim", 4096)
    t.column("vision_model.vision_adapter.mlp.fc1", inner, middle)
    t.row("vision_model.vision_adapter.mlp.fc2", middle, out)
    t.column("multi_modal_projector.linear_1", v.size("vision_output_dim", out), text_hidden)
    t.values(grid * (hidden // heads // 2), 8)


def kimi_k25(t: Tally, v: Fields, text_hidden: int) -> None:
    """Kimi K2.5: MoonViT over time and space, and a patch-merging projector.

    vLLM reads it with transformers' class, to which the keys of the published config (vt_...) are unknown: defaults.
    """
    hidden, inner = v.size("hidden_size", 1152), v.size("intermediate_size", 4304)
    patch = v.size("patch_size", 14)
    quantised = not t.rank.quantiser.leaves_kimi_tower
    for i in range(v.size("num_hidden_layers", 27)):
        name = f"vision_tower.encoder.blocks.{i}"
        t.column(f"{name}.wqkv", hidden, hidden, hidden, hidden, bias=True, quantised=quantised)
        t.row(f"{name}.wo", hidden, hidden, bias=True, quantised=quantised)
        t.column(f"{name}.mlp.fc0", hidden, inner, bias=True, quantised=quantised)
        t.row(f"{name}.mlp.fc1", inner, hidden, bias=True, quantised=quantised)
        t.values(4 * hidden)
    times = v.size("pos_emb_time", 4)
    grid = v.size("pos_emb_height", 64) * v.size("pos_emb_width", 64)
    t.values(hidden * 3 * patch * patch + hidden + grid * hidden + 2 * hidden)
    t.values(times * hidden, 4 if quantised else None)
    kernel = v.get("merge_kernel_size") or (2, 2)
    merged = hidden * int(kernel[0]) * int(kernel[1])
    t.values(2 * hidden)
    t.replicated("mm_projector.linear_1", merged, merged, bias=True, quantised=quantised)
    t.replicated("mm_projector.linear_2", merged, text_hidden, bias=True, quantised=quantised)


def muse_glimmer(t: Tally, v: Fields, root: Fields, text_hidden: int) -> None:
    """Muse Glimmer: attention divided, MLPs and the adapter whole on every rank."""
    hidden, inner = v.required("hidden_size"), v.required("intermediate_size")
    patch = v.size("patch_size", 14)
    for i in range(v.required("num_hidden_layers")):
        name = f"vision_encoder.transformer.{i}"
        square_attention(t, f"{name}.attn", hidden, "qkv_proj", "o_proj")
        t.replicated(f"{name}.mlp.c_fc", hidden, inner, bias=True)
        t.replicated(f"{name}.mlp.c_proj", inner, hidden, bias=True)
        t.values(4 * hidden)
    t.values(v.size("max_position_embeddings", 1024) * hidden + 4 * hidden)
    t.values(hidden * 3 * v.size("patch_temporal", 2) * patch * patch)
    middle = root.size("projector_hidden_size", 4096)
    merged = root.size("out_hidden_size", hidden * v.size("merge_size", 2) ** 2)
    t.replicated("vision_adapter.c_fc", merged, middle)
    t.replicated("vision_adapter.c_proj", middle, middle)
    t.replicated("vision_projection", middle, text_hidden)


def gemma4_vision(t: Tally, v: Fields, text_hidden: int) -> None:
    """Gemma 4's vision encoder, whole on every rank."""
    hidden, inner = v.required("hidden_size"), v.required("intermediate_size")
    heads = v.required("num_attention_heads")
    keys = v.size("num_key_value_heads", heads)
    dim = v.size("head_dim", hidden // heads)
    layers = v.required("num_hidden_layers")
    t.values(2 * v.size("position_embedding_size", 10240) * hidden)
    t.values(hidden * 3 * v.size("patch_size", 16) ** 2)
    for i in range(layers):
        name = f"vision_tower.encoder.layers.{i}"
        t.replicated(f"{name}.self_attn.q_proj.linear", hidden, heads * dim)
        t.replicated(f"{name}.self_attn.k_proj.linear", hidden, keys * dim)
        t.replicated(f"{name}.self_attn.v_proj.linear", hidden, keys * dim)
        t.replicated(f"{name}.self_attn.o_proj.linear", heads * dim, hidden)
        t.replicated(f"{name}.mlp.gate_proj.linear", hidden, inner)
        t.replicated(f"{name}.mlp.up_proj.linear", hidden, inner)
        t.replicated(f"{name}.mlp.down_proj.linear", inner, hidden)
        t.values(2 * dim + 4 * hidden)
    if v.flag("standardize"):
        t.values(2 * hidden)
    if v.flag("use_clipped_linears"):
        t.values(layers * 7 * 4)
    t.values(2 * (dim // 4), 4)
    t.replicated("embed_vision.embedding_projection", hidden, text_hidden)


def gemma4_audio(t: Tally, a: Fields, text_hidden: int) -> None:
    """Gemma 4's audio encoder (a conformer), whole on every rank."""
    hidden, heads = a.required("hidden_size"), a.required("num_attention_heads")
    channels = a.get("subsampling_conv_channels") or (128, 32)
    first, second = int(channels[0]), int(channels[1])
    kernel, out = a.size("conv_kernel_size", 5), a.size("output_proj_dims", 1536)
    clips = 4 if a.flag("use_clipped_linears", True) else 0
    t.values(9 * first + first + 9 * first * second + second + (first // 4) * second * hidden)
    t.values(hidden // 2)  # time scales
    square = hidden * hidden
    feed_forward = 8 * square + 2 * hidden + 2 * clips
    attention = 5 * square + hidden // heads + 1 + 4 * clips
    convolution = 3 * square + hidden * kernel + 2 * hidden + 2 * clips
    t.values(a.required("num_hidden_layers") * (2 * feed_forward + attention + convolution + 3 * hidden))
    t.values(hidden * out + out)
    t.replicated("embed_audio.embedding_projection", out, text_hidden)
