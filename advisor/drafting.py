"""Speculation with the checkpoint's own MTP layers: each keeps keys and values like the model's last attention layer.

Source: vLLM v1/worker/gpu_model_runner.py get_kv_cache_spec, which asks the drafter's layers too; the groups are formed
over both. Checked against three public logs (tests/advisor/test_drafting.py). A drafter that is a model of its own is
not known here; ngram and suffix drafters keep nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from advisor.model.spec import AttentionCache, Layer, MlaCache, ModelSpec

_NO_CACHE = frozenset({"ngram", "ngram_gpu", "suffix", "custom_class"})


def speculative_config(pins: dict[str, Any]) -> dict[str, Any] | None:
    """The pinned speculative_config, None where there is none."""
    config = pins.get("speculative_config")
    return config if isinstance(config, dict) and config else None


def draft_kind(model: ModelSpec, pins: dict[str, Any]) -> str:
    """none, nothing (a drafter without cache or weights), mtp (the checkpoint's own layers) or unknown."""
    config = speculative_config(pins)
    if config is None:
        return "none"
    method = str(config.get("method") or ("draft_model" if config.get("model") else ""))
    if method in _NO_CACHE:
        return "nothing"
    own = config.get("model") in (None, model.id)
    return "mtp" if own and method.endswith("mtp") and model.num_nextn_layers > 0 else "unknown"


def with_draft_layers(model: ModelSpec, pins: dict[str, Any]) -> ModelSpec:
    """The model with its MTP layers' caches, where the pins ask for them."""
    if draft_kind(model, pins) != "mtp":
        return model
    last = next((layer for layer in reversed(model.layers) if _attends(layer)), None)
    if last is None:
        return model
    more = (Layer(model.num_layers + i, last.caches) for i in range(model.num_nextn_layers))
    return msgspec.structs.replace(model, layers=(*model.layers, *more))


def _attends(layer: Layer) -> bool:
    return any(
        isinstance(cache, MlaCache) or (isinstance(cache, AttentionCache) and cache.kind == "full")
        for cache in layer.caches
    )
