"""Models whose last layers read the cache of an earlier layer and keep none of their own: Gemma 3n and Gemma 4.

Source: vLLM 0.32 model_executor/models/{gemma3n,gemma4}.py (kv_sharing_target_layer_name).
"""

from __future__ import annotations

from collections.abc import Sequence

from advisor.model.attention import (
    check_kv_heads,
    head_size,
    layer_kinds,
    num_heads,
    num_kv_heads,
    num_layers,
    plain,
    uniform,
)
from advisor.model.config_view import ConfigView
from advisor.model.spec import AttentionKind, Layer


def read_gemma3n(cfg: ConfigView) -> tuple[Layer, ...]:
    """Gemma 3n: the last `num_kv_shared_layers` layers use an earlier layer's cache and keep none of their own."""
    n = num_layers(cfg)
    kinds = layer_kinds(cfg, n, lambda i: "full" if (i + 1) % 5 == 0 else "sliding")
    layers = plain(cfg, kinds, cfg.size("sliding_window", default=512))
    return share_last(layers, kinds, cfg.count("num_kv_shared_layers", default=15))


def read_gemma4(cfg: ConfigView) -> tuple[Layer, ...]:
    """Gemma 4: sliding layers with `head_dim`, full ones with `global_head_dim` and, where K is V, fewer heads."""
    n, heads = num_layers(cfg), num_heads(cfg)
    kinds = layer_kinds(cfg, n, lambda i: "full" if (i + 1) % 6 == 0 or i == n - 1 else "sliding")
    window = cfg.size("sliding_window", default=512)
    kv, size = num_kv_heads(cfg, heads), head_size(cfg, heads)
    wide = cfg.optional_size("global_head_dim", default=512) or size
    global_kv = cfg.optional_size("num_global_key_value_heads") if cfg.flag("attention_k_eq_v") else None
    sliding = uniform(["sliding"] * n, heads, kv, size, window)
    full = uniform(["full"] * n, heads, check_kv_heads(global_kv or kv, heads), wide, None)
    layers = tuple(full[i] if kind == "full" else sliding[i] for i, kind in enumerate(kinds))
    return share_last(layers, kinds, cfg.count("num_kv_shared_layers"))


def share_last(layers: tuple[Layer, ...], kinds: Sequence[AttentionKind], shared: int) -> tuple[Layer, ...]:
    """Empty the caches of the last `shared` layers: each reads the last one of its kind that keeps its own."""
    keep = len(layers) - shared
    last = {kinds[i]: i for i in range(keep)}
    return tuple(
        layer if layer.index < keep else Layer(layer.index, (), last.get(kinds[layer.index])) for layer in layers
    )
