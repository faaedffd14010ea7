"""`hf_overrides`: what vLLM writes over the model's config before anything is read from it.

Source: vLLM 0.32 transformers_utils/config.py get_config, which calls the config's own update() with the mapping: a
value replaces the key's whole value. Nested mappings under a sub-config are merged there in ways that depend on the
config's class, so they are refused here, but for rope settings, which are mappings themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from advisor.errors import NotUnderstood
from advisor.facts import ModelFacts

_ROPE = ("rope_scaling", "rope_parameters")


def with_overrides(facts: ModelFacts, overrides: Any) -> ModelFacts:
    """The facts as vLLM would read them. Raises NotUnderstood for an override of a sub-config, or of a text model's key
    beside one.
    """
    if not isinstance(overrides, Mapping) or not overrides:
        return facts
    for key, value in overrides.items():
        if isinstance(value, Mapping) and key not in _ROPE:
            raise NotUnderstood(
                "is a mapping, and what becomes of it depends on the config's class",
                where=f"engine.hf_overrides.{key}",
                hint="write the change into a copy of the model's config.json and plan that directory",
            )
        nested = next((name for name, part in facts.config.items() if isinstance(part, Mapping) and key in part), None)
        if nested is not None and key not in facts.config:
            raise NotUnderstood(
                f"is a key of {nested}, and vLLM would set it beside it",
                where=f"engine.hf_overrides.{key}",
                hint="write the change into a copy of the model's config.json and plan that directory",
            )
    named = ", ".join(sorted(overrides))
    return msgspec.structs.replace(
        facts, config={**facts.config, **overrides}, notes=(*facts.notes, f"config with hf_overrides: {named}")
    )
