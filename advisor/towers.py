"""The vision and audio parts of multimodal models: whether a start builds them, and whether their heads divide.

Source: vLLM 0.32 model_executor/models/{llava,pixtral,siglip,qwen2_vl,qwen2_5_vl,qwen3_vl,moonvit}.py (asked of each
with 4 heads over 8 ranks). Left out: towers that copy or pad their heads (InternVL, Kimi K2.5, MiniCPM-V, Gemma 4).
"""

from __future__ import annotations

from typing import Any

from advisor.model.spec import ModelSpec


def is_multimodal_off(pinned: dict[str, Any]) -> bool:
    """Whether the pins switch vision and audio off: their towers are then not even built."""
    if pinned.get("language_model_only"):
        return True
    limits = pinned.get("limit_mm_per_prompt")
    return isinstance(limits, dict) and bool(limits) and all(limit == 0 for limit in limits.values())


def tower_refused(model: ModelSpec, tp: int, pins: dict[str, Any]) -> str:
    """Why the vision tower cannot be divided over so many ranks; empty where it can, or where nothing divides it."""
    heads = model.tower_heads
    if heads is None or heads % tp == 0 or is_multimodal_off(pins) or pins.get("mm_encoder_tp_mode") == "data":
        return ""
    return f"the vision tower's {heads} heads do not divide over tensor_parallel_size {tp}"
