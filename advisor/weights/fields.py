"""Reading the keys of a config that decide sizes, with transformers' class defaults for keys that are absent.

vLLM loads a config through its transformers class, so an absent key has that class's default. A key that decides the
model's size and is absent from the top level, where publishers always write it, is defaulted as vLLM would but recorded
in `missing`: the config is then likely a fragment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.errors import NotUnderstood
from advisor.model.class_defaults import CLASS_DEFAULTS
from advisor.weights.defaults import WEIGHT_DEFAULTS

_TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")
_TEXT_TYPES = {"mistral3": "mistral", "llava": "llama", "lfm2_vl": "lfm2", "kimi_k25": "deepseek_v3"}
_LARGEST = 1 << 40
_TELLING = ("intermediate_size", "_experts")  # keys that every publisher of such a model writes


class Fields:
    """One part of a config: its keys, its class defaults, and whether it is nested in another."""

    __slots__ = ("defaults", "kind", "missing", "nested", "values", "where")

    def __init__(
        self, values: Mapping[str, Any], *, model_type: str = "", nested: bool = False, where: str = ""
    ) -> None:
        kind = self.kind = str(values.get("model_type") or model_type)
        self.values = values
        self.nested = nested
        self.where = where
        self.missing: list[str] = []
        self.defaults: Mapping[str, Any] = {
            **CLASS_DEFAULTS.get(kind, {}),
            **WEIGHT_DEFAULTS.get(kind, {}),
        }

    def get(self, key: str, default: Any = None) -> Any:
        """The value as written (null included), else the class default, else `default`."""
        if key in self.values:
            return self.values[key]
        return self.defaults.get(key, default)

    def flag(self, key: str, default: bool = False) -> bool:
        """A boolean; null counts as `default`."""
        value = self.get(key, default)
        return default if value is None else bool(value)

    def required(self, *keys: str) -> int:
        """A positive size the model cannot be without, under the first of `keys` that is stated."""
        for key in keys:
            if self.values.get(key) is not None:
                return self._whole(self.values[key], key)
        for key in keys:
            if self.defaults.get(key) is not None:
                self._note_missing(key)
                return self._whole(self.defaults[key], key)
        raise NotUnderstood("the config lacks a key that decides the model's size", where=self.where + " / ".join(keys))

    def size(self, key: str, default: int | None = None, *others: str) -> int:
        """A size that may be left to the class default or to `default`; zero is a size."""
        for holder in (self.values, self.defaults):
            for name in (key, *others):
                if holder.get(name) is not None:
                    if holder is self.defaults and name.endswith(_TELLING):
                        self._note_missing(name)
                    return self._whole(holder[name], name, least=0)
        if default is None:
            raise NotUnderstood("the config lacks a key that decides the model's size", where=self.where + key)
        return default

    def optional(self, key: str) -> int | None:
        """A positive size, or None where it is null, absent or zero."""
        value = self.get(key)
        return self._whole(value, key) if value else None

    def entries(self, key: str, layers: int) -> list[Any] | None:
        """A list with one entry a layer, or None where absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, (list, tuple, str)) or len(value) < layers:
            raise NotUnderstood(f"expected {layers} entries, one a layer", where=self.where + key)
        return list(value)[:layers]

    def part(self, *keys: str, model_type: str = "") -> Fields | None:
        """A nested mapping, such as `vision_config`, or None where absent."""
        for key in keys:
            inner = self.values.get(key)
            if isinstance(inner, Mapping) and inner:
                return Fields(inner, model_type=model_type, nested=True, where=f"{self.where}{key}.")
        return None

    def _note_missing(self, key: str) -> None:
        if not self.nested and key not in self.missing:
            self.missing.append(key)

    def _whole(self, value: Any, key: str, *, least: int = 1) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
            raise NotUnderstood(f"{value!r} is not a possible size", where=self.where + key)
        return value


def text_fields(root: Mapping[str, Any]) -> Fields:
    """The part that describes the language model: the nested text config of a multimodal model, else the root."""
    values, where, nested = root, "", False
    kind = _TEXT_TYPES.get(str(root.get("model_type")), f"{root.get('model_type')}_text")
    while True:
        key = next((k for k in _TEXT_KEYS if isinstance(values.get(k), Mapping) and values[k]), None)
        if key is None:
            return Fields(values, model_type=kind if nested else "", nested=nested, where=where)
        values, where, nested = values[key], f"{where}{key}.", True
