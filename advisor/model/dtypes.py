"""The dtype vLLM computes in when it is told `auto`.

Source: vLLM 0.32 config/model.py (_resolve_auto_dtype) and transformers_utils (get_torch_dtype): the config's dtype,
float32 brought down to the device's preferred 16-bit dtype, bfloat16 to float16 where the GPU lacks it.
"""

from __future__ import annotations

from typing import Any

from advisor.model.config_view import ConfigView

_NAMES = {
    "bfloat16": "bfloat16", "torch.bfloat16": "bfloat16", "bf16": "bfloat16",
    "float16": "float16", "torch.float16": "float16", "half": "float16", "fp16": "float16",
    "float32": "float32", "torch.float32": "float32", "float": "float32", "fp32": "float32",
}  # fmt: skip


# numerically unstable in float16, which vLLM refuses (config/model.py: _FLOAT16_NOT_SUPPORTED_MODELS)
NO_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4", "plamo2"})


def config_dtype(cfg: ConfigView) -> str | None:
    """The dtype the config states, at the root, in the text part or in the vision part; None where it states none."""
    for holder in (cfg.root, cfg.text, cfg.root.get("vision_config"), cfg.root.get("encoder_config")):
        if not isinstance(holder, dict):
            continue
        stated: Any = holder.get("dtype") or holder.get("torch_dtype")
        if isinstance(stated, str) and stated in _NAMES:
            return _NAMES[stated]
    return None


def normal_dtype(text: str) -> str | None:
    """The full name of a dtype as users write it, or None."""
    return _NAMES.get(text.lower())


def auto_dtype(stated: str | None, *, has_bf16: bool, has_fp16: bool = True, prefers_fp16: bool = False) -> str:
    """What `dtype=auto` becomes: on a device without bfloat16, for a model that may not run in float16."""
    halves = [name for name, has in (("bfloat16", has_bf16), ("float16", has_fp16)) if has]
    preferred = "float16" if prefers_fp16 and has_fp16 else halves[0] if halves else "float32"
    return stated if stated in halves else preferred
