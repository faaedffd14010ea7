"""Models whose layers differ in heads: Nemotron NAS, Step-3.5, MiMo-V2, Step-3.

Sources: vLLM 0.32 model_executor/models/{nemotron_nas,step3p5,mimo_v2,step3_text}.py.
"""

from __future__ import annotations

from typing import Any

from advisor.errors import NotUnderstood
from advisor.model.attention import (
    check_kv_heads,
    head_size,
    layer_kinds,
    num_heads,
    num_kv_heads,
    num_layers,
)
from advisor.model.config_view import ConfigView, pick
from advisor.model.spec import AttentionCache, AttentionKind, Layer


def read_nemotron_nas(cfg: ConfigView) -> tuple[Layer, ...]:
    """Nemotron NAS: `block_configs` say for each layer how many query heads share a KV head, or that it has none."""
    blocks: Any = cfg.text.get("block_configs")
    if not isinstance(blocks, list) or not blocks:
        raise NotUnderstood("the config does not describe its blocks", where="block_configs")
    heads = num_heads(cfg)
    size = head_size(cfg, heads)
    layers = []
    for i, block in enumerate(blocks):
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise NotUnderstood(f"block {i} has no attention entry", where="block_configs")
        if attention.get("no_op") or attention.get("replace_with_linear"):
            layers.append(Layer(i, ()))
            continue
        shared = ConfigView.whole(attention.get("n_heads_in_group"), f"block_configs[{i}].attention.n_heads_in_group")
        kv = check_kv_heads(max(1, heads // shared), heads)
        cache = AttentionCache(kind="full", num_heads=heads, num_kv_heads=kv, head_size=size, head_size_v=size)
        layers.append(Layer(i, (cache,)))
    return tuple(layers)


def read_step3p5(cfg: ConfigView) -> tuple[Layer, ...]:
    """Step-3.5: sliding layers may have their own numbers of heads (`attention_other_setting`)."""
    n, heads = num_layers(cfg), num_heads(cfg)
    kinds = layer_kinds(cfg, n, None)
    window = cfg.size("sliding_window")
    kv, size = num_kv_heads(cfg, heads), head_size(cfg, heads)
    if not cfg.has("num_attention_groups") and not cfg.has("num_key_value_heads"):
        raise NotUnderstood("the config does not give its key/value heads", where="num_attention_groups")
    other = cfg.mapping("attention_other_setting")
    other_heads = ConfigView.whole(other.get("num_attention_heads", heads), "attention_other_setting")
    other_kv = ConfigView.whole(other.get("num_attention_groups", kv), "attention_other_setting")
    other_size = ConfigView.whole(other.get("head_dim", size), "attention_other_setting")
    full = AttentionCache(kind="full", num_heads=heads, num_kv_heads=kv, head_size=size, head_size_v=size)
    sliding = AttentionCache(
        kind="sliding",
        num_heads=other_heads,
        num_kv_heads=check_kv_heads(other_kv, other_heads),
        head_size=other_size,
        head_size_v=other_size,
        span_tokens=window,
    )
    return tuple(Layer(i, (sliding if kind == "sliding" else full,)) for i, kind in enumerate(kinds))


def read_step3(cfg: ConfigView) -> tuple[Layer, ...]:
    """Step-3 (multi-matrix factorisation attention): one key/value head of `head_dim`."""
    n, heads = num_layers(cfg), num_heads(cfg)
    groups = cfg.size("num_attention_groups", "share_q_dim", required=False, default=0)
    if not cfg.has("num_attention_groups"):
        raise NotUnderstood("the config does not give its key/value heads", where="num_attention_groups")
    size = head_size(cfg, heads)
    cache = AttentionCache(kind="full", num_heads=heads, num_kv_heads=groups, head_size=size, head_size_v=size)
    return tuple(Layer(i, (cache,)) for i in range(n))


def read_mimo_v2(cfg: ConfigView) -> tuple[Layer, ...]:
    """MiMo-V2: `hybrid_layer_pattern` (1 sliding), each kind with its own heads and a narrower value."""
    n, heads = num_layers(cfg), num_heads(cfg)
    pattern = cfg.numbers("hybrid_layer_pattern")
    if pattern is None:
        raise NotUnderstood("the config does not give the order of its layers", where="hybrid_layer_pattern")
    size = head_size(cfg, heads)
    full = AttentionCache(
        kind="full",
        num_heads=heads,
        num_kv_heads=num_kv_heads(cfg, heads),
        head_size=size,
        head_size_v=cfg.size("v_head_dim", default=size),
    )
    swa_heads = cfg.size("swa_num_attention_heads", default=heads)
    swa_size = cfg.size("swa_head_dim", default=size)
    sliding = AttentionCache(
        kind="sliding",
        num_heads=swa_heads,
        num_kv_heads=check_kv_heads(cfg.size("swa_num_key_value_heads", default=full.num_kv_heads), swa_heads),
        head_size=swa_size,
        head_size_v=cfg.size("swa_v_head_dim", default=swa_size),
        span_tokens=cfg.size("sliding_window_size", "sliding_window"),
    )
    kinds: list[AttentionKind] = [
        "sliding" if pick(pattern, i, "hybrid_layer_pattern") == 1 else "full" for i in range(n)
    ]
    return tuple(Layer(i, (sliding if kind == "sliding" else full,)) for i, kind in enumerate(kinds))
