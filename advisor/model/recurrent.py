"""Hybrids: layers with a recurrent state (Mamba, gated delta net, short convolution) beside attention.

Sources: vLLM 0.32 model_executor/models/{qwen3_next,qwen3_5,nemotron_h,granitemoehybrid,jamba,falcon_h1,lfm2,zamba2,
bailing_moe_linear,olmo_hybrid,mamba,mamba2}.py, models/kimi_k3, and their get_mamba_state_shape_from_config.
"""

from __future__ import annotations

from advisor.errors import NotUnderstood
from advisor.model.attention import (
    check_kv_heads,
    head_size,
    hidden_size,
    num_heads,
    num_kv_heads,
    num_layers,
)
from advisor.model.config_view import ConfigView
from advisor.model.latent import latent_size
from advisor.model.spec import AttentionCache, Layer, LayerCache, MlaCache, StateCache


def full_cache(cfg: ConfigView, size: int | None = None) -> AttentionCache:
    """The cache of a full-attention layer of a hybrid."""
    heads = num_heads(cfg)
    width = size or head_size(cfg, heads)
    return AttentionCache(
        kind="full",
        num_heads=heads,
        num_kv_heads=num_kv_heads(cfg, heads),
        head_size=width,
        head_size_v=width,
    )


def build(words: list[str], kinds: dict[str, tuple[LayerCache, ...]], key: str) -> tuple[Layer, ...]:
    """One layer a word; an unknown word is refused by name."""
    layers = []
    for i, word in enumerate(words):
        if word not in kinds:
            raise NotUnderstood(f"layer {i} is of type {word!r}, which kvadvise does not know", where=key)
        layers.append(Layer(i, kinds[word]))
    if not layers:
        raise NotUnderstood("the config gives no layers", where=key)
    return tuple(layers)


def gated_delta_net(cfg: ConfigView) -> StateCache:
    """Gated delta net state of Qwen3-Next, Qwen3.5 and OLMo hybrid."""
    return StateCache(
        kind="gdn",
        sizes={
            "num_k_heads": cfg.size("linear_num_key_heads"),
            "num_v_heads": cfg.size("linear_num_value_heads"),
            "head_k_dim": cfg.size("linear_key_head_dim"),
            "head_v_dim": cfg.size("linear_value_head_dim"),
            "conv_kernel": cfg.size("linear_conv_kernel_dim", default=4),
        },
    )


def read_qwen3_next(cfg: ConfigView) -> tuple[Layer, ...]:
    """Qwen3-Next and Qwen3.5: every fourth layer (or `full_attention_interval`) attends, the others are recurrent."""
    n = num_layers(cfg)
    words = cfg.words("layer_types", n)
    if words is None:
        interval = cfg.optional_size("full_attention_interval", default=4) or 4
        words = ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(n)]
    kinds: dict[str, tuple[LayerCache, ...]] = {"full_attention": (full_cache(cfg),)}
    if "linear_attention" in words:
        kinds["linear_attention"] = (gated_delta_net(cfg),)
    return build(words, kinds, "layer_types")


def mamba2(inner: int, groups: int, heads: int, head_dim: int, state: int, kernel: int) -> StateCache:
    """A Mamba-2 state, by vLLM's names in mamba2_state_shape."""
    return StateCache(
        kind="mamba2",
        sizes={
            "intermediate_size": inner,
            "n_groups": groups,
            "num_heads": heads,
            "head_dim": head_dim,
            "state_size": state,
            "conv_kernel": kernel,
        },
    )


def read_nemotron_h(cfg: ConfigView) -> tuple[Layer, ...]:
    """Nemotron-H: one letter a layer (M Mamba-2, * attention, - MLP, E experts)."""
    pattern = cfg.raw("hybrid_override_pattern")
    words = cfg.words("layers_block_type")
    if isinstance(pattern, str) and pattern:
        letters = list(pattern)
    elif words:
        names = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
        letters = [names.get(word, word) for word in words]
    else:
        raise NotUnderstood("the config does not give the order of its layers", where="hybrid_override_pattern")
    heads, dim = cfg.size("mamba_num_heads"), cfg.size("mamba_head_dim")
    state = mamba2(heads * dim, cfg.size("n_groups"), heads, dim, cfg.size("ssm_state_size"), cfg.size("conv_kernel"))
    kinds: dict[str, tuple[LayerCache, ...]] = {"M": (state,), "*": (full_cache(cfg),), "-": (), "E": ()}
    return build(letters, kinds, "hybrid_override_pattern")


def read_granite_hybrid(cfg: ConfigView) -> tuple[Layer, ...]:
    """Granite 4: `layer_types` of "mamba" and "attention"."""
    n = num_layers(cfg)
    words = cfg.words("layer_types", n) or cfg.words("layers_block_type", n)
    if words is None:
        raise NotUnderstood("the config does not give the order of its layers", where="layer_types")
    kinds: dict[str, tuple[LayerCache, ...]] = {}
    if "mamba" in words:
        kinds["mamba"] = (_mamba2_d(cfg),)
    if set(words) - {"mamba"}:
        kinds["attention"] = kinds["full_attention"] = (full_cache(cfg),)
    return build(words, kinds, "layer_types")


def _mamba2_d(cfg: ConfigView) -> StateCache:
    """Mamba-2 with the key names of Granite, Bamba and Falcon-H1."""
    inner = cfg.optional_size("mamba_d_ssm") or cfg.size("mamba_expand", default=2) * hidden_size(cfg)
    return mamba2(
        inner,
        cfg.size("mamba_n_groups", default=1),
        cfg.size("mamba_n_heads"),
        _head_dim(cfg, inner),
        cfg.size("mamba_d_state"),
        cfg.size("mamba_d_conv", default=4),
    )


def _head_dim(cfg: ConfigView, inner: int) -> int:
    value = cfg.raw("mamba_d_head")
    if value is None or value == "auto":
        return inner // cfg.size("mamba_n_heads")
    return ConfigView.whole(value, "mamba_d_head")


def read_bamba(cfg: ConfigView) -> tuple[Layer, ...]:
    """Bamba: Mamba-2 everywhere but in `attn_layer_indices`."""
    n = num_layers(cfg)
    words = cfg.words("layers_block_type", n)
    if words is None:
        indices = cfg.numbers("attn_layer_indices")
        if indices is None:
            raise NotUnderstood("the config does not give the order of its layers", where="attn_layer_indices")
        words = ["attention" if i in set(indices) else "mamba" for i in range(n)]
    return build(words, {"mamba": (_mamba2_d(cfg),), "attention": (full_cache(cfg),)}, "layers_block_type")


def read_falcon_h1(cfg: ConfigView) -> tuple[Layer, ...]:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    caches: tuple[LayerCache, ...] = (full_cache(cfg), _mamba2_d(cfg))
    return tuple(Layer(i, caches) for i in range(num_layers(cfg)))


def read_jamba(cfg: ConfigView) -> tuple[Layer, ...]:
    """Jamba: Mamba-1, with attention every `attn_layer_period` layers from `attn_layer_offset` on."""
    n = num_layers(cfg)
    words = cfg.words("layers_block_type", n)
    if words is None:
        period, offset = cfg.size("attn_layer_period", default=8), cfg.count("attn_layer_offset", default=4)
        words = ["attention" if i % period == offset else "mamba" for i in range(n)]
    state = StateCache(
        kind="mamba1",
        sizes={
            "intermediate_size": cfg.size("mamba_expand", default=2) * hidden_size(cfg),
            "state_size": cfg.size("mamba_d_state", default=16),
            "conv_kernel": cfg.size("mamba_d_conv", default=4),
        },
    )
    return build(words, {"mamba": (state,), "attention": (full_cache(cfg),)}, "layers_block_type")


def read_lfm2(cfg: ConfigView) -> tuple[Layer, ...]:
    """LFM2: short convolutions, with attention where `layer_types` or `full_attn_idxs` says."""
    n = num_layers(cfg)
    words = cfg.words("layer_types", n)
    if words is None:
        indices = cfg.numbers("full_attn_idxs")
        if indices is None:
            raise NotUnderstood("the config does not give the order of its layers", where="layer_types")
        words = ["full_attention" if i in set(indices) else "conv" for i in range(n)]
    width = cfg.optional_size("conv_dim") or hidden_size(cfg)
    state = StateCache(
        kind="short_conv",
        sizes={"intermediate_size": width, "conv_kernel": cfg.size("conv_L_cache", default=3)},
    )
    return build(words, {"conv": (state,), "full_attention": (full_cache(cfg),)}, "layer_types")


def read_zamba2(cfg: ConfigView) -> tuple[Layer, ...]:
    """Zamba2: Mamba-2 in every layer, shared attention (its own cache) before it in the hybrid ones."""
    n = num_layers(cfg)
    words = cfg.words("layers_block_type", n)
    if words is None:
        raise NotUnderstood("the config does not give the order of its layers", where="layers_block_type")
    width = hidden_size(cfg)
    heads = cfg.size("n_mamba_heads", default=8)
    inner = cfg.size("mamba_expand", default=2) * width
    state = mamba2(
        inner,
        cfg.size("mamba_ngroups", default=1),
        heads,
        cfg.optional_size("mamba_headdim") or inner // heads,
        cfg.size("mamba_d_state", default=64),
        cfg.size("mamba_d_conv", default=4),
    )
    q_heads = num_heads(cfg)
    size = cfg.optional_size("attention_head_dim") or 2 * width // q_heads
    kv = check_kv_heads(cfg.size("num_key_value_heads", default=q_heads), q_heads)
    attention = AttentionCache(kind="full", num_heads=q_heads, num_kv_heads=kv, head_size=size, head_size_v=size)
    layers = build(words, {"mamba": (state,), "hybrid": (attention, state)}, "layers_block_type")
    # vLLM makes the shared attention modules before the layers: their caches come first
    shared = tuple(Layer(layer.index, (attention,)) for layer in layers if attention in layer.caches)
    return shared + tuple(Layer(layer.index, (state,)) for layer in layers)


def read_kimi_linear(cfg: ConfigView) -> tuple[Layer, ...]:
    """Kimi Linear: KDA states and MLA layers, listed from 1 in `linear_attn_config`."""
    n = num_layers(cfg)
    linear = cfg.mapping("linear_attn_config")
    kda, full = linear.get("kda_layers"), linear.get("full_attn_layers")
    if not isinstance(kda, list) or not isinstance(full, list):
        raise NotUnderstood("the config does not give the order of its layers", where="linear_attn_config.kda_layers")
    state = StateCache(
        kind="kda",
        sizes={
            "num_heads": ConfigView.whole(linear.get("num_heads"), "linear_attn_config.num_heads"),
            "head_dim": ConfigView.whole(linear.get("head_dim"), "linear_attn_config.head_dim"),
            "conv_kernel": ConfigView.whole(
                linear.get("short_conv_kernel_size", 4), "linear_attn_config.short_conv_kernel_size"
            ),
        },
    )
    latent = MlaCache(head_size=latent_size(cfg), num_heads=num_heads(cfg))
    words = ["kda" if i + 1 in kda else "full" if i + 1 in full else "neither" for i in range(n)]
    return build(words, {"kda": (state,), "full": (latent,)}, "linear_attn_config")


def lightning(heads: int, dim: int) -> StateCache:
    """The square state of linear ("lightning") attention."""
    return StateCache(kind="linear", sizes={"num_heads": heads, "head_dim": dim})


def read_minimax_01(cfg: ConfigView) -> tuple[Layer, ...]:
    """MiniMax-01 and M1: `attn_type_list`, 0 lightning and 1 softmax attention."""
    n = num_layers(cfg)
    kinds = cfg.numbers("attn_type_list") or cfg.numbers("decoder_attention_types")
    if kinds is None:
        words = cfg.words("layer_types", n)
        if words is None:
            raise NotUnderstood("the config does not give the order of its layers", where="attn_type_list")
    else:
        words = ["linear_attention" if kind == 0 else "full_attention" for kind in kinds[:n]]
    heads = num_heads(cfg)
    state = lightning(heads, head_size(cfg, heads))
    return build(words, {"linear_attention": (state,), "full_attention": (full_cache(cfg),)}, "attn_type_list")


def read_mamba(cfg: ConfigView) -> tuple[Layer, ...]:
    """Mamba-1 models without attention."""
    inner = cfg.optional_size("intermediate_size") or cfg.size("expand", default=2) * hidden_size(cfg)
    state = StateCache(
        kind="mamba1",
        sizes={
            "intermediate_size": inner,
            "state_size": cfg.size("state_size", default=16),
            "conv_kernel": cfg.size("conv_kernel", default=4),
        },
    )
    return tuple(Layer(i, (state,)) for i in range(num_layers(cfg)))


def read_mamba2(cfg: ConfigView) -> tuple[Layer, ...]:
    """Mamba-2 models without attention."""
    state = mamba2(
        cfg.size("expand", default=2) * hidden_size(cfg),
        cfg.size("n_groups", default=8),
        cfg.size("num_heads"),
        cfg.size("head_dim", default=64),
        cfg.size("state_size", default=128),
        cfg.size("conv_kernel", default=4),
    )
    return tuple(Layer(i, (state,)) for i in range(num_layers(cfg)))
