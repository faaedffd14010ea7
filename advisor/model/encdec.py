"""Models with an encoder: Whisper caches its own and the encoder's states; encoder-only models cache nothing."""

from __future__ import annotations

from advisor.errors import NoKvCache
from advisor.model.attention import layers_under
from advisor.model.config_view import ConfigView
from advisor.model.spec import AttentionCache, Layer


def read_whisper(cfg: ConfigView) -> tuple[Layer, ...]:
    """Each decoder layer: its own keys and values, then those of the encoder's states (cross attention)."""
    heads = cfg.size("decoder_attention_heads")
    size = cfg.size("d_model") // heads
    own = AttentionCache(kind="full", num_heads=heads, num_kv_heads=heads, head_size=size, head_size_v=size)
    cross = AttentionCache(kind="cross", num_heads=heads, num_kv_heads=heads, head_size=size, head_size_v=size)
    return tuple(Layer(i, (own, cross)) for i in range(layers_under(cfg, "decoder_layers")))


def read_pooling(cfg: ConfigView) -> tuple[Layer, ...]:
    """A decoder used for embedding, ranking or scoring: nothing is generated, so no request grows."""
    raise NoKvCache(
        "a pooling model generates nothing: a KV plan does not apply to it",
        where=f"architectures: {cfg.root.get('architectures')}",
        hint="vLLM serves it with --runner pooling; every prompt is read once and leaves",
    )


def read_encoder_only(cfg: ConfigView) -> tuple[Layer, ...]:
    """No layer keeps keys and values between steps."""
    raise NoKvCache(
        "an encoder-only model keeps no KV cache: a KV plan does not apply to it",
        where=f"architectures: {cfg.root.get('architectures')}",
        hint="vLLM serves it with --runner pooling; memory is weights and activations",
    )
