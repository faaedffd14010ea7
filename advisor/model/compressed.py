"""DeepSeek-V4: a window of latents in every layer, compressed latents where the layer compresses, and the states of the
compressors, pages of several sizes side by side in one block.

Source: vLLM 0.32 models/deepseek_v4/{attention,compressor}.py, v1/attention/backends/mla/sparse_swa.py
(get_kv_cache_spec), with the fp8_ds_mla layout that these models require.
"""

from __future__ import annotations

from advisor.errors import NotUnderstood
from advisor.model.attention import num_layers
from advisor.model.config_view import ConfigView
from advisor.model.spec import FixedPageCache, Layer

_ALIGNMENT = 576  # pages are whole multiples of it
_LATENT_BYTES = 584  # 448 values without position, 64 with it in 16 bit, 8 scales
_BLOCK = 256
_WINDOW_BLOCK = 64
_STATE_BLOCK = {4: 4, 128: 8}  # tokens in a block of compressor states
_INDEXED = 4  # layers that compress by four have an indexer
_HEAD = 512


def read_deepseek_v4(cfg: ConfigView) -> tuple[Layer, ...]:
    """The caches of each layer in the order vLLM registers them."""
    ratios = cfg.numbers("compress_ratios")
    n = num_layers(cfg)
    if ratios is None or len(ratios) < n:
        raise NotUnderstood("the config does not give how far each layer compresses", where="compress_ratios")
    if cfg.size("head_dim") != _HEAD:
        raise NotUnderstood(f"a latent of {cfg.size('head_dim')} values has no known layout", where="head_dim")
    window = FixedPageCache(
        block_size=_WINDOW_BLOCK,
        page_bytes=_aligned(_WINDOW_BLOCK * _LATENT_BYTES),
        span_tokens=cfg.size("sliding_window"),
    )
    return tuple(Layer(i, (window, *_compressed(cfg, ratios[i], i))) for i in range(n))


def _compressed(cfg: ConfigView, ratio: int, index: int) -> tuple[FixedPageCache, ...]:
    if ratio <= 1:
        return ()
    if ratio not in _STATE_BLOCK:
        raise NotUnderstood(f"layer {index} compresses by {ratio}, which has no known layout", where="compress_ratios")
    latents = FixedPageCache(block_size=_BLOCK, page_bytes=_aligned(_BLOCK // ratio * _LATENT_BYTES))
    states = _states(ratio, _HEAD)
    if ratio != _INDEXED:
        return latents, states
    key = cfg.size("index_head_dim", default=128)
    indexer = FixedPageCache(block_size=_BLOCK, page_bytes=_aligned(_BLOCK // ratio * (key + key // 128 * 4)))
    return indexer, _states(ratio, key), latents, states


def _states(ratio: int, width: int) -> FixedPageCache:
    """Keys and scores of the tokens that are still being compressed, in float32; ratio 4 keeps two groups of them."""
    groups = 2 if ratio == _INDEXED else 1
    block = _STATE_BLOCK[ratio]
    return FixedPageCache(
        block_size=block, page_bytes=_aligned(block * 2 * groups * width * 4), span_tokens=groups * ratio
    )


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT
