"""The sums behind KV planning, small enough to do by hand: bytes per token, per request, and how many fit.

They hold for plain attention with one head size and no window (Llama, Qwen2.5, Mistral): every layer keeps a
key and a value of `head_dim` numbers for each KV head and token. Real plans use advisor.kv, which adds
blocks, windows, latents and states.
"""

from __future__ import annotations

from advisor.errors import InvalidInput


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bytes_per_value: int) -> int:
    """Bytes one token keeps: 2 (key and value) x layers x KV heads x head size x bytes a value.

    Source: vLLM v1/kv_cache_interface.py AttentionSpec, one layer's page over its block size. KV heads, not
    query heads: with grouped-query attention several query heads read the same key. Raises InvalidInput for
    anything but positive whole numbers.
    """
    _positive(layers=layers, kv_heads=kv_heads, head_dim=head_dim, bytes_per_value=bytes_per_value)
    return 2 * layers * kv_heads * head_dim * bytes_per_value


def kv_bytes_per_request(tokens: int, layers: int, kv_heads: int, head_dim: int, bytes_per_value: int) -> int:
    """Bytes a request of `tokens` (prompt and output together) keeps, before rounding up to whole blocks."""
    _positive(tokens=tokens)
    return tokens * kv_bytes_per_token(layers, kv_heads, head_dim, bytes_per_value)


def kv_bytes_for_requests(
    requests: int, tokens: int, layers: int, kv_heads: int, head_dim: int, bytes_per_value: int
) -> int:
    """Bytes that `requests` requests of `tokens` each keep at once, nothing shared between them."""
    _positive(requests=requests)
    return requests * kv_bytes_per_request(tokens, layers, kv_heads, head_dim, bytes_per_value)


def kv_bytes_left(total_bytes: int, weights_bytes: int, activation_bytes: int, overhead_bytes: int) -> int:
    """Bytes left for the KV cache once weights, activations and everything else are taken off, or 0."""
    _positive(
        total_bytes=total_bytes,
        weights_bytes=weights_bytes,
        activation_bytes=activation_bytes,
        overhead_bytes=overhead_bytes,
    )
    return max(0, total_bytes - weights_bytes - activation_bytes - overhead_bytes)


def requests_admitted(
    total_bytes: int,
    weights_bytes: int,
    activation_bytes: int,
    overhead_bytes: int,
    *,
    tokens: int,
    layers: int,
    kv_heads: int,
    head_dim: int,
    bytes_per_value: int,
) -> int:
    """Whole requests of `tokens` that fit beside the rest: what is left over one request, rounded down."""
    left = kv_bytes_left(total_bytes, weights_bytes, activation_bytes, overhead_bytes)
    return left // kv_bytes_per_request(tokens, layers, kv_heads, head_dim, bytes_per_value)


def _positive(**values: int) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInput(f"{value!r} is not a whole number", where=name, hint="give a positive integer")
        if value <= 0:
            raise InvalidInput(f"{value} is not positive", where=name, hint="give a positive integer")
