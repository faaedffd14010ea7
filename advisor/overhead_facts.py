"""From a model and an engine to the inputs of the overheads, one pipeline stage at a time."""

from __future__ import annotations

from typing import Any

from advisor.cuda_graphs import capture_sizes
from advisor.engine import Engine
from advisor.kv.parallel import pipeline_slices
from advisor.model.spec import AttentionCache, LayerCache, MlaCache, ModelSpec, StateCache
from advisor.overhead_constants import EncoderShape
from advisor.overhead_inputs import OverheadInputs
from advisor.towers import is_multimodal_off

_VOCAB_PADDING = 64  # model_executor/layers/vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE
_MLA_HEAD_SIZE = 192  # query width per head (128 + 64), where only the latent is known
_UNKNOWN_MLP = 3.5  # hidden sizes, where a dense model's config does not state its MLP width


def overhead_inputs(
    model: ModelSpec, engine: Engine, *, stage: int | None = None, encoder: EncoderShape | None = None
) -> OverheadInputs:
    """The inputs of one pipeline stage; without `stage` the last, which also samples.

    `encoder` is the shape of a multimodal model's tower (`encoder_shape`), None where it is not known.
    """
    stages = pipeline_slices(model.num_layers, engine.pipeline_parallel_size)
    index = len(stages) - 1 if stage is None else stage
    first, end = stages[index]
    return OverheadInputs(
        version=engine.version,
        gpu=engine.gpu,
        architecture=model.architecture,
        hidden_size=model.hidden_size,
        vocab_size=-(-model.vocab_size // _VOCAB_PADDING) * _VOCAB_PADDING,
        num_layers=end - first,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_model_len=engine.max_model_len,
        intermediate_size=_dense_width(model),
        attention_width=max((_width(c) for layer in model.layers for c in layer.caches), default=0),
        dtype_bytes=4 if engine.dtype == "float32" else 2,
        num_experts=model.num_experts,
        experts_per_token=model.experts_per_token,
        moe_intermediate_size=model.moe_intermediate_size or 0,
        expert_parallel=engine.enable_expert_parallel,
        quantization=engine.quantization or model.quantization.method,
        is_multimodal=model.is_multimodal,
        multimodal_off=is_multimodal_off(engine.pinned),
        encoder=encoder,
        is_hybrid=model.is_hybrid,
        uses_gdn=any(isinstance(c, StateCache) and c.kind == "gdn" for layer in model.layers for c in layer.caches),
        is_pooling=model.is_pooling,
        tensor_parallel_size=engine.tensor_parallel_size,
        pipeline_parallel_size=engine.pipeline_parallel_size,
        is_last_stage=index == len(stages) - 1,
        enforce_eager=engine.enforce_eager,
        num_speculative_tokens=engine.num_speculative_tokens,
        capture_sizes=_pinned_sizes(model, engine),
    )


def encoder_shape(config: dict[str, Any], known: dict[str, EncoderShape]) -> EncoderShape | None:
    """The vision tower of a config: the known processor's item with the config's own widths, else an image of the
    size the config states, else None."""
    vision = config.get("vision_config")
    vision = vision if isinstance(vision, dict) else {}
    shape = known.get(str(config.get("model_type")))
    hidden = _positive(vision, "hidden_size")
    inner = _positive(vision, "intermediate_size")
    levels = vision.get("deepstack_visual_indexes")
    depth = 1 + len(levels) if isinstance(levels, list) else None
    if shape is not None:
        return EncoderShape(
            item_tokens=shape.item_tokens,
            item_patches=shape.item_patches,
            hidden_size=hidden or shape.hidden_size,
            intermediate_size=inner or shape.intermediate_size,
            levels=depth or shape.levels,
        )
    side, patch = _positive(vision, "image_size"), _positive(vision, "patch_size")
    if not (hidden and inner and side and patch):
        return None
    patches = (side // patch) ** 2
    merge = _positive(vision, "spatial_merge_size") or _positive(config, "spatial_merge_size") or 1
    return EncoderShape(
        item_tokens=max(1, patches // merge**2),
        item_patches=max(1, patches),
        hidden_size=hidden,
        intermediate_size=inner,
        levels=depth or 1,
    )


def _positive(mapping: dict[str, Any], key: str) -> int | None:
    value = mapping.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _dense_width(model: ModelSpec) -> int:
    """The widest dense MLP: the model's own, or the shared experts'."""
    width = max(model.intermediate_size or 0, model.shared_expert_size)
    if width == 0 and model.num_experts == 0:
        return round(_UNKNOWN_MLP * model.hidden_size)
    return width


def _width(cache: LayerCache) -> int:
    """What the layer's mixer projects the hidden states to, whole model."""
    if isinstance(cache, AttentionCache):
        return cache.num_heads * cache.head_size + cache.num_kv_heads * (cache.head_size + cache.head_size_v)
    if isinstance(cache, MlaCache):
        return cache.num_heads * _MLA_HEAD_SIZE + cache.head_size
    if isinstance(cache, StateCache):
        return _state_width(cache.sizes)
    return 0


def _state_width(sizes: dict[str, int]) -> int:
    """Input projection of a recurrent layer: keys, values and gates, or Mamba's inner width twice."""
    if "num_v_heads" in sizes:
        keys = sizes["head_k_dim"] * sizes["num_k_heads"]
        return 2 * keys + 2 * sizes["head_v_dim"] * sizes["num_v_heads"]
    inner = sizes.get("intermediate_size") or sizes.get("num_heads", 0) * sizes.get("head_dim", 0)
    return 2 * inner + 2 * sizes.get("n_groups", 0) * sizes.get("state_size", 0)


def _pinned_sizes(model: ModelSpec, engine: Engine) -> tuple[int, ...] | None:
    """Capture sizes that the user set, by their own flag or in compilation_config."""
    compilation = engine.pinned.get("compilation_config")
    settings = {**(compilation if isinstance(compilation, dict) else {}), **engine.pinned}
    if str(settings.get("cudagraph_mode", "")).upper() == "NONE":
        return ()
    sizes = settings.get("cudagraph_capture_sizes")
    if isinstance(sizes, list) and all(isinstance(n, int) for n in sizes):
        return tuple(sorted(n for n in set(sizes) if 0 < n <= engine.max_num_batched_tokens))
    top = settings.get("max_cudagraph_capture_size")
    if not isinstance(top, int):
        return None
    return capture_sizes(
        engine.version,
        engine.gpu,
        architecture=model.architecture,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        num_speculative_tokens=engine.num_speculative_tokens,
        max_capture_size=top,
    )
