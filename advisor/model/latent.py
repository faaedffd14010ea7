"""MLA models: one latent a token and layer, and the sparse indexer's cache beside it.

Sources: vLLM 0.32 models/deepseek_v32/attention.py and model_executor/models/deepseek_v2.py (which layers have an
indexer of their own), model_executor/layers/attention/mla_attention.py (the latent).
"""

from __future__ import annotations

from typing import Any

from advisor.errors import NotUnderstood
from advisor.model.attention import layers_under, num_heads, num_layers
from advisor.model.config_view import ConfigView
from advisor.model.spec import AttentionCache, IndexerCache, Layer, LayerCache, MlaCache

_SCALE_BYTES = 4  # one float32 scale a quantisation block of the indexer
_INDEXER_BLOCK = 128  # values of the indexer's key that share a scale


def latent_size(cfg: ConfigView) -> int:
    """kv_lora_rank + qk_rope_head_dim, the width of what MLA caches."""
    return cfg.size("kv_lora_rank", required=True) + cfg.size("qk_rope_head_dim", required=True)


def read_mla(cfg: ConfigView) -> tuple[Layer, ...]:
    """One latent a layer."""
    cache = MlaCache(head_size=latent_size(cfg), num_heads=num_heads(cfg))
    return tuple(Layer(i, (cache,)) for i in range(num_layers(cfg)))


def read_deepseek(cfg: ConfigView) -> tuple[Layer, ...]:
    """DeepSeek V2/V3 and relatives: MLA where the config has a latent rank, sparse where it has an indexer."""
    if cfg.optional_size("kv_lora_rank") is None or cfg.text_model_type == "deepseek":
        return _without_latent(cfg)
    if cfg.has("index_topk"):
        return read_sparse_mla(cfg)
    return read_mla(cfg)


def _without_latent(cfg: ConfigView) -> tuple[Layer, ...]:
    if cfg.text_model_type == "deepseek":
        from advisor.model.attention import read_full

        return read_full(cfg)
    raise NotUnderstood("an MLA family without a latent rank", where="kv_lora_rank")


def read_sparse_mla(cfg: ConfigView) -> tuple[Layer, ...]:
    """DeepSeek-V3.2 and GLM-5: the indexer's uint8 cache comes before the latent; some layers share an indexer."""
    latent = MlaCache(head_size=latent_size(cfg), num_heads=num_heads(cfg))
    width = cfg.size("index_head_dim", default=128)
    per_token = width + -(-width // _INDEXER_BLOCK) * _SCALE_BYTES
    indexer = IndexerCache(bytes_per_token=per_token)
    frequency = cfg.optional_size("index_topk_freq", default=1) or 1
    offset = cfg.count("index_skip_topk_offset", default=2)
    pattern: Any = cfg.raw("index_topk_pattern")
    layers = []
    for i in range(num_layers(cfg)):
        if pattern is None:
            shares = max(i - offset + 1, 0) % frequency != 0
        else:
            shares = i < len(pattern) and pattern[i] == "S"
        caches: tuple[LayerCache, ...] = (latent,) if shares else (indexer, latent)
        layers.append(Layer(i, caches))
    return tuple(layers)


def read_minicpm3(cfg: ConfigView) -> tuple[Layer, ...]:
    """MiniCPM3 has latent projections but caches full heads of qk_nope + qk_rope values (vLLM minicpm3.py)."""
    n, heads = num_layers(cfg), num_heads(cfg)
    size = cfg.size("qk_nope_head_dim") + cfg.size("qk_rope_head_dim")
    cache = AttentionCache(kind="full", num_heads=heads, num_kv_heads=heads, head_size=size, head_size_v=size)
    return tuple(Layer(i, (cache,)) for i in range(n))


def read_longcat(cfg: ConfigView) -> tuple[Layer, ...]:
    """LongCat Flash: two MLA sublayers in each of `num_layers` layers."""
    cache = MlaCache(head_size=latent_size(cfg), num_heads=num_heads(cfg))
    return tuple(Layer(i, (cache, cache)) for i in range(layers_under(cfg, "num_layers", "num_hidden_layers")))
