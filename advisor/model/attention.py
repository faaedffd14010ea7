"""Decoder layers made of ordinary attention: how many heads, how large, and which layers look at a window only.

Sources: vLLM 0.32 model_executor/models/*.py (each family's attention class) and transformers 5.19 config classes for
what an absent `layer_types` becomes.
"""

from __future__ import annotations

from collections.abc import Callable

from advisor.errors import NotUnderstood
from advisor.model.config_view import ConfigView
from advisor.model.spec import AttentionCache, AttentionKind, Layer

_MOST_LAYERS = 4096
FULL_NAMES = frozenset({"full_attention", "attention", "global", "full", "global_attention", "dense_attention"})
SLIDING_NAMES = frozenset({"sliding_attention", "sliding", "local", "local_attention", "swa", "sliding_window"})
CHUNKED_NAMES = frozenset({"chunked_attention"})


def num_layers(cfg: ConfigView) -> int:
    """Decoder layers, under the key the family uses; refused where no model has so many."""
    return layers_under(cfg, "num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")


def layers_under(cfg: ConfigView, *keys: str) -> int:
    """A number of layers under the first of these keys that is present."""
    n = cfg.size(*keys)
    if n > _MOST_LAYERS:
        raise NotUnderstood(f"{n} layers are more than any model has", where=" / ".join(keys))
    return n


def num_heads(cfg: ConfigView) -> int:
    """Query heads of the whole model."""
    return cfg.size("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads")


def hidden_size(cfg: ConfigView) -> int:
    """Width of the residual stream."""
    return cfg.size("hidden_size", "n_embd", "n_embed", "d_model")


def num_kv_heads(cfg: ConfigView, heads: int) -> int:
    """Key/value heads of the whole model; equal to the query heads where the config says nothing."""
    kv = cfg.optional_size(
        "num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", "num_attention_groups"
    )
    return check_kv_heads(heads if kv is None else kv, heads)


def check_kv_heads(kv: int, heads: int) -> int:
    """Query heads must be shared out evenly over KV heads; vLLM's Attention asserts it."""
    if heads % kv:
        raise NotUnderstood(f"{heads} attention heads cannot share {kv} key/value heads", where="num_key_value_heads")
    return kv


def head_size(cfg: ConfigView, heads: int) -> int:
    """Size of one head: the config's own `head_dim`, else hidden size over heads."""
    given = cfg.optional_size("head_dim", "hidden_size_per_head", "attention_head_dim")
    if given is not None:
        return given
    width = hidden_size(cfg)
    if width % heads:
        raise NotUnderstood(f"hidden size {width} does not divide into {heads} heads", where="head_dim")
    return width // heads


def plain(cfg: ConfigView, kinds: list[AttentionKind] | None = None, window: int | None = None) -> tuple[Layer, ...]:
    """Layers of equal heads; `kinds` says which of them see a window or a chunk (all full by default)."""
    n, heads = num_layers(cfg), num_heads(cfg)
    kv, size = num_kv_heads(cfg, heads), head_size(cfg, heads)
    return uniform(kinds or ["full"] * n, heads, kv, size, window)


def uniform(kinds: list[AttentionKind], heads: int, kv: int, size: int, span: int | None) -> tuple[Layer, ...]:
    """One attention cache a layer, all with the same heads."""
    made: dict[AttentionKind, AttentionCache] = {}
    for kind in set(kinds):
        if kind != "full" and span is None:
            raise NotUnderstood(
                "layers see a window, but the config does not say how long it is", where="sliding_window"
            )
        made[kind] = AttentionCache(
            kind=kind,
            num_heads=heads,
            num_kv_heads=kv,
            head_size=size,
            head_size_v=size,
            span_tokens=None if kind == "full" else span,
        )
    return tuple(Layer(i, (made[kind],)) for i, kind in enumerate(kinds))


def layer_kinds(cfg: ConfigView, n: int, fallback: Callable[[int], AttentionKind] | None) -> list[AttentionKind]:
    """The kind of each layer from `layer_types`, else from the family's rule; refuses words it does not know."""
    words = cfg.words("layer_types", n)
    if words is None:
        if fallback is None:
            raise NotUnderstood("the config does not give the order of its layers", where="layer_types")
        return [fallback(i) for i in range(n)]
    return [_kind(word, i) for i, word in enumerate(words)]


def _kind(word: str, index: int) -> AttentionKind:
    if word in FULL_NAMES:
        return "full"
    if word in SLIDING_NAMES:
        return "sliding"
    if word in CHUNKED_NAMES:
        return "chunked"
    raise NotUnderstood(f"layer {index} is of type {word!r}, which kvadvise does not know", where="layer_types")


def read_llama_like(cfg: ConfigView) -> tuple[Layer, ...]:
    """The common decoder: full attention, or `layer_types`, or one window for all layers (Mistral, Phi-3).

    vLLM puts a model-wide window into the cache config only where no layer type differs (engine/arg_utils), so a
    window beside mixed layer types counts for the sliding layers alone.
    """
    n = num_layers(cfg)
    window = cfg.optional_size("sliding_window")
    if cfg.words("layer_types", n) is not None:
        return plain(cfg, layer_kinds(cfg, n, None), window)
    return plain(cfg, ["sliding"] * n if window else None, window)


def read_full(cfg: ConfigView) -> tuple[Layer, ...]:
    """Full attention whatever the config says of windows: the family's vLLM class ignores them."""
    return plain(cfg)


def read_qwen2(cfg: ConfigView) -> tuple[Layer, ...]:
    """Qwen2 and Qwen3: the window counts only with `use_sliding_window`, from layer `max_window_layers` on."""
    n = num_layers(cfg)
    if not cfg.flag("use_sliding_window"):
        return plain(cfg)
    window = cfg.optional_size("sliding_window")
    words = cfg.words("layer_types", n)
    if window is None or words is not None:
        return plain(cfg, layer_kinds(cfg, n, None) if words else None, window)
    first = cfg.count("max_window_layers", default=28)
    if first >= n:
        return plain(cfg)
    if first > 0:
        raise NotUnderstood(
            f"a sliding window from layer {first} of {n} on is not supported by vLLM for this family",
            where="max_window_layers",
        )
    return plain(cfg, ["sliding"] * n, window)


def every_nth_full(n: int) -> Callable[[ConfigView], tuple[Layer, ...]]:
    """Families whose absent layer_types means: layer n, 2n, ... (counted from 1) full, the others sliding."""

    def read(cfg: ConfigView) -> tuple[Layer, ...]:
        pattern = cfg.optional_size("sliding_window_pattern", default=n) if _numeric_pattern(cfg) else n
        period = pattern or n
        layers = num_layers(cfg)
        kinds = layer_kinds(cfg, layers, lambda i: "sliding" if (i + 1) % period else "full")
        return plain(cfg, kinds, cfg.optional_size("sliding_window"))

    return read


def _numeric_pattern(cfg: ConfigView) -> bool:
    return isinstance(cfg.raw("sliding_window_pattern"), int)


def read_cohere2(cfg: ConfigView) -> tuple[Layer, ...]:
    """Cohere2 sees one token more than its window (vLLM commandr.py adds 1); every fourth layer is full."""
    period = cfg.optional_size("sliding_window_pattern", default=4) or 4
    n = num_layers(cfg)
    window = cfg.size("sliding_window", default=4096)
    kinds = layer_kinds(cfg, n, lambda i: "sliding" if (i + 1) % period else "full")
    return plain(cfg, kinds, window + 1)


def read_exaone4(cfg: ConfigView) -> tuple[Layer, ...]:
    """EXAONE 4: a pattern such as LLLG, or layer_types; no window at all in the small models."""
    n = num_layers(cfg)
    window = cfg.optional_size("sliding_window")
    if window is None:
        return plain(cfg)
    pattern = cfg.raw("sliding_window_pattern", 4)
    if isinstance(pattern, str) and pattern:
        kinds = layer_kinds(cfg, n, lambda i: "sliding" if pattern[i % len(pattern)] == "L" and i != n - 1 else "full")
    else:
        period = ConfigView.whole(pattern, "sliding_window_pattern")
        kinds = layer_kinds(cfg, n, lambda i: "sliding" if (i + 1) % period else "full")
    return plain(cfg, kinds, window)


def read_gpt_oss(cfg: ConfigView) -> tuple[Layer, ...]:
    """gpt-oss: vLLM's class gives every even layer the window, whatever layer_types says."""
    n = num_layers(cfg)
    return plain(cfg, ["sliding" if i % 2 == 0 else "full" for i in range(n)], cfg.size("sliding_window", default=128))


def read_llama4(cfg: ConfigView) -> tuple[Layer, ...]:
    """Llama 4: layers with RoPE attend in chunks, layers without (every fourth) attend to everything."""
    n = num_layers(cfg)
    chunk = cfg.optional_size("attention_chunk_size")
    no_rope = cfg.numbers("no_rope_layers")
    interval = cfg.optional_size("no_rope_layer_interval", default=4) or 4
    if not no_rope:
        no_rope = [int((i + 1) % interval != 0) for i in range(n)]
    if len(no_rope) < n:
        raise NotUnderstood(f"{len(no_rope)} entries for {n} layers", where="no_rope_layers")
    return plain(cfg, ["chunked" if no_rope[i] and chunk else "full" for i in range(n)], chunk)


def read_muse_glimmer(cfg: ConfigView) -> tuple[Layer, ...]:
    """Muse Glimmer: layers without RoPE are full, the others slide."""
    n = num_layers(cfg)
    no_rope = cfg.numbers("no_rope_layers")
    window = cfg.size("sliding_window", default=2048)
    if no_rope:
        kinds: list[AttentionKind] = ["sliding" if no_rope[i] == 1 else "full" for i in range(n)]
    else:
        kinds = layer_kinds(cfg, n, lambda i: "sliding" if (i + 1) % 4 else "full")
    return plain(cfg, kinds, window)


def read_laguna(cfg: ConfigView) -> tuple[Layer, ...]:
    """Laguna: layer_types decide; without them every layer is full. Query heads may differ by layer, KV heads not."""
    n = num_layers(cfg)
    if cfg.words("layer_types", n) is None:
        return plain(cfg)
    return plain(cfg, layer_kinds(cfg, n, None), cfg.optional_size("sliding_window"))


def read_falcon(cfg: ConfigView) -> tuple[Layer, ...]:
    """Falcon: multi-query models keep one KV head although the config class reports as many as query heads.

    vLLM's class hands its rotary and ALiBi attention no cache config, so kv_cache_dtype has no effect.
    """
    n, heads = num_layers(cfg), num_heads(cfg)
    if not cfg.flag("new_decoder_architecture") and cfg.flag("multi_query", default=True):
        kv = 1
    else:
        kv = check_kv_heads(cfg.size("num_kv_heads", "n_head_kv", "num_key_value_heads", default=heads), heads)
    size = head_size(cfg, heads)
    cache = AttentionCache(
        kind="full", num_heads=heads, num_kv_heads=kv, head_size=size, head_size_v=size, ignores_cache_dtype=True
    )
    return tuple(Layer(i, (cache,)) for i in range(n))


def read_mha(cfg: ConfigView) -> tuple[Layer, ...]:
    """Families with one KV head a query head (GPT-2, OPT, BLOOM, GPT-J, GPT-NeoX, Qwen 1)."""
    n, heads = num_layers(cfg), num_heads(cfg)
    return uniform(["full"] * n, heads, heads, head_size(cfg, heads), None)


def read_multi_query(cfg: ConfigView) -> tuple[Layer, ...]:
    """GPTBigCode: one KV head when `multi_query` (the class default), else as many as query heads."""
    n, heads = num_layers(cfg), num_heads(cfg)
    return uniform(["full"] * n, heads, 1 if cfg.flag("multi_query", True) else heads, head_size(cfg, heads), None)


def read_chatglm(cfg: ConfigView) -> tuple[Layer, ...]:
    """ChatGLM 2/3 and GLM-4: `multi_query_group_num` KV heads of `kv_channels`."""
    n, heads = num_layers(cfg), num_heads(cfg)
    kv = cfg.size("multi_query_group_num") if cfg.flag("multi_query_attention") else heads
    size = cfg.optional_size("kv_channels") or head_size(cfg, heads)
    return uniform(["full"] * n, heads, check_kv_heads(kv, heads), size, None)


def read_attn_config(cfg: ConfigView) -> tuple[Layer, ...]:
    """MPT and DBRX keep the KV heads in `attn_config.kv_n_heads`."""
    n, heads = num_layers(cfg), num_heads(cfg)
    kv = cfg.mapping("attn_config").get("kv_n_heads")
    kv = heads if kv is None else ConfigView.whole(kv, "attn_config.kv_n_heads")
    return uniform(["full"] * n, heads, check_kv_heads(kv, heads), head_size(cfg, heads), None)
