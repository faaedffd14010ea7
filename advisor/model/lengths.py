"""The longest sequence a model was made for, as vLLM derives it.

Source: vLLM 0.32 config/model.py (_get_and_verify_max_len) and transformers_utils/model_arch_config_convertor.py
(derive_max_model_len_and_key). Up to 0.29 a YaRN config meant original_max_position_embeddings x factor.
"""

from __future__ import annotations

from typing import Any

from advisor.model.config_view import ConfigView
from advisor.model.spec import MaxLength
from advisor.versions import Version

_KEYS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "max_target_positions",
    "max_sequence_length", "max_seq_length", "seq_len",
)  # fmt: skip
_ALREADY_SCALED = frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})
_DEFAULT_TOKENS = 2048  # vLLM's own assumption where no key is found
_ALIASES = {"n_ctx": "n_positions"}


def read_max_length(cfg: ConfigView, version: Version, tokenizer_max: int | None = None) -> MaxLength:
    """Tokens, and the config key they come from."""
    tokens, key = _smallest(cfg)
    if tokenizer_max is not None and (tokens is None or tokenizer_max < tokens):
        tokens, key = tokenizer_max, "tokenizer_config.model_max_length"
    if tokens is None:
        return MaxLength(tokens=_DEFAULT_TOKENS, key="none (vLLM assumes it)")
    scaled = _scaled(cfg, tokens, version)
    return MaxLength(tokens=scaled, key=key if scaled == tokens else f"{key} x rope scaling")


def _smallest(cfg: ConfigView) -> tuple[int | None, str]:
    found: tuple[int | None, str] = (None, "")
    for key in _KEYS:
        value = cfg.optional_size(key)
        if value is not None and (found[0] is None or value < found[0]):
            found = (value, key)
    stated = cfg.text.get("model_max_length")
    if isinstance(stated, int) and stated > 0:
        return stated, "model_max_length"
    return found


def rope_parameters(cfg: ConfigView) -> list[dict[str, Any]]:
    """Every rope mapping of the text part: one for all layers, or one per layer type."""
    value = cfg.text.get("rope_parameters")
    if not isinstance(value, dict) or not value:
        value = cfg.text.get("rope_scaling")
    if not isinstance(value, dict):
        return []
    nested = [v for v in value.values() if isinstance(v, dict)]
    return nested or [value]


def rope_type(rope: dict[str, Any]) -> str:
    """The type under either of its names; "default" where none is given."""
    kind = rope.get("rope_type") or rope.get("type") or "default"
    return "default" if kind == "mrope" else str(kind)


def _scaled(cfg: ConfigView, tokens: int, version: Version) -> int:
    if "gemma3" in cfg.model_type:
        return tokens
    factor = 1.0
    for rope in rope_parameters(cfg):
        kind = rope_type(rope)
        stated = rope.get("factor")
        if kind == "yarn" and version < (0, 30):
            original = rope.get("original_max_position_embeddings")
            if isinstance(original, int) and isinstance(stated, int | float):
                return int(original * stated)
        if kind not in _ALREADY_SCALED and isinstance(stated, int | float) and not isinstance(stated, bool):
            factor = float(stated)
    return int(tokens * factor)


def default_max_model_len(cfg: ConfigView, longest: MaxLength) -> int:
    """What vLLM takes when nothing is set: longrope models start at the length they were first trained on."""
    if any(rope_type(rope) == "longrope" for rope in rope_parameters(cfg)):
        original = cfg.root.get("original_max_position_embeddings") or cfg.text.get("original_max_position_embeddings")
        if isinstance(original, int) and original > 0:
            return original
    return longest.tokens
