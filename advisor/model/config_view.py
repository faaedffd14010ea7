"""A config.json seen as vLLM sees it: the text part, with the config class's defaults for keys that are absent.

vLLM loads a config through transformers, so an absent key has its class default (transformers 5.19, restated in
class_defaults). A key that decides the size of the model is defaulted only in the nested text part of a multimodal
config, where publishers save nothing but differences; at top level its absence is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from advisor.errors import NotUnderstood
from advisor.model.class_defaults import CLASS_DEFAULTS

_TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")
# the text model a wrapper's config class takes where text_config names none (asked of transformers 5)
_TEXT_TYPES = {
    "mistral3": "mistral", "llava": "llama", "llava_next": "llama", "llava_next_video": "llama",
    "llava_onevision": "qwen2", "idefics3": "llama", "smolvlm": "llama", "paligemma": "gemma", "internvl": "qwen2",
    "cohere2_vision": "cohere2", "qwen2_audio": "qwen2", "voxtral": "llama", "blip-2": "opt",
    "audioflamingo3": "qwen2", "granite_speech": "granite", "lfm2_vl": "lfm2", "lighton_ocr": "qwen3",
    "kimi_vl": "deepseek_v3", "kimi_k25": "deepseek_v3",
}  # fmt: skip
_TEXT_TYPED = frozenset((
    "aria", "gemma3", "gemma3n", "gemma4", "glm4v", "glm4v_moe", "llama4", "paddleocr_vl", "qwen2_5_omni",
    "qwen2_5_vl", "qwen2_vl", "qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe",
))  # fmt: skip # there it is "gemma3_text" and so on
_LARGEST = 1 << 40  # no size in a config is larger; guards the arithmetic against nonsense


def _implied_text_type(model_type: str, *, nested: bool) -> str:
    if not nested:
        return model_type
    return f"{model_type}_text" if model_type in _TEXT_TYPED else _TEXT_TYPES.get(model_type, model_type)


class ConfigView:
    """Typed access to a config, with errors that name the key."""

    def __init__(self, root: dict[str, Any]) -> None:
        if not isinstance(root, dict):
            raise NotUnderstood("the config is not a mapping")
        self.root = root
        text, nested = _text_part(root)
        self.text = text
        self.is_nested = nested
        self.model_type = _text(root.get("model_type"))
        self.text_model_type = _text(text.get("model_type")) or _implied_text_type(self.model_type, nested=nested)
        self._defaults = CLASS_DEFAULTS.get(self.text_model_type, {})
        if "model_type" not in text and "sliding_window" in self._defaults:  # nothing to count on
            self._defaults = {key: value for key, value in self._defaults.items() if key != "sliding_window"}

    def architecture(self) -> str:
        """The first architecture the config names."""
        names = self.root.get("architectures")
        if isinstance(names, list) and names and isinstance(names[0], str):
            return names[0]
        raise NotUnderstood(
            "the config names no architecture",
            where="architectures",
            hint="vLLM chooses the model class by it",
        )

    def raw(self, key: str, default: Any = None) -> Any:
        """A value as written in the text part, else its class default, else `default`."""
        if key in self.text:
            return self.text[key]
        return self._defaults.get(key, default)

    def has(self, key: str) -> bool:
        """Whether the text part states the key with a value."""
        return self.text.get(key) is not None

    def size(self, *keys: str, default: int | None = None, required: bool = True) -> int:
        """A positive integer under the first key that is present, else the class default, else `default`."""
        for key in keys:
            if self.text.get(key) is not None:
                return self.whole(self.text[key], key)
        if self.is_nested or not required:
            for key in keys:
                value = self._defaults.get(key)
                if value is not None:
                    return self.whole(value, key)
        if default is not None:
            return default
        raise NotUnderstood("the config lacks a key that decides the model's size", where=" / ".join(keys))

    def optional_size(self, *keys: str, default: int | None = None) -> int | None:
        """A positive integer, or None where it is absent or null; class defaults apply to absent keys."""
        for key in keys:
            if key in self.text:
                value = self.text[key]
                return None if value is None or value == 0 else self.whole(value, key)
        for key in keys:
            if key in self._defaults:
                value = self._defaults[key]
                return None if value is None else self.whole(value, key)
        return default

    def count(self, *keys: str, default: int = 0) -> int:
        """A whole number that may be zero."""
        for key in keys:
            value = self.text.get(key)
            if value is None:
                continue
            if isinstance(value, list) and value:
                value = value[0]
            if isinstance(value, bool) or not isinstance(value, int) or value < 0 or value > _LARGEST:
                raise NotUnderstood(f"{value!r} is not a whole number", where=key)
            return value
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        """A boolean; the class default applies when absent."""
        value = self.raw(key, default)
        return bool(value) if value is not None else default

    def words(self, key: str, length: int | None = None) -> list[str] | None:
        """A list of strings, one a layer, or None where absent."""
        value = self.text.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise NotUnderstood("expected a list of words, one a layer", where=key)
        if length is not None and len(value) < length:
            raise NotUnderstood(f"{len(value)} entries for {length} layers", where=key)
        return value[:length] if length is not None else value

    def numbers(self, key: str) -> list[int] | None:
        """A list of integers, or None where absent."""
        value = self.text.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(v, int) for v in value):
            raise NotUnderstood("expected a list of whole numbers", where=key)
        return [int(v) for v in value]

    def mapping(self, key: str) -> dict[str, Any]:
        """A nested mapping, empty where absent."""
        value = self.text.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise NotUnderstood("expected a mapping", where=key)
        return value

    @staticmethod
    def whole(value: Any, key: str) -> int:
        """Check one positive size."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise NotUnderstood(f"{value!r} is not a whole number", where=key)
        if not 0 < value <= _LARGEST:
            raise NotUnderstood(f"{value} is not a possible size", where=key)
        return value


def pick(values: Sequence[Any], index: int, key: str) -> Any:
    """The entry of one layer of a per-layer list."""
    if index >= len(values):
        raise NotUnderstood(f"no entry for layer {index}", where=key)
    return values[index]


def _text_part(root: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    for key in _TEXT_KEYS:
        inner = root.get(key)
        if isinstance(inner, dict):
            return _text_part(inner)[0], True
    return root, False


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
