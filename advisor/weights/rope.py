"""The rotary tables vLLM keeps as buffers: rows, width, and which layers share one.

Source: vLLM 0.32 layers/rotary_embedding/__init__.py (get_rope and its cache) and the classes it makes;
transformers 5.19 modeling_rope_utils.py (how old keys become rope_parameters).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from advisor.errors import NotUnderstood
from advisor.weights.fields import Fields
from advisor.weights.tally import Rope

_ORIGINAL_KINDS = frozenset({"yarn", "deepseek_yarn", "deepseek_llama_scaling"})
_PARTIAL_KEYS = ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction", "rope_pct")


class RopeSpec(NamedTuple):
    """The parameters of one rotary embedding, as far as they decide its table."""

    kind: str
    values: Mapping[str, Any]
    partial: float


def rope_spec(fields: Fields, layer_type: str | None = None) -> RopeSpec:
    """The parameters in force for one kind of layer."""
    stated = fields.values.get("rope_parameters") or fields.values.get("rope_scaling")
    values = stated or fields.defaults.get("rope_parameters") or {}
    if not isinstance(values, Mapping):
        raise NotUnderstood("expected a mapping", where=fields.where + "rope_parameters")
    if layer_type is not None and isinstance(values.get(layer_type), Mapping):
        values = values[layer_type]
    kind = str(values.get("rope_type", values.get("type", "default")) or "default")
    kind = {"su": "longrope", "mrope": "default"}.get(kind, kind)
    partial = values.get("partial_rotary_factor")
    if partial is None:
        partial = next((fields.get(k) for k in _PARTIAL_KEYS if fields.get(k) is not None), 1.0)
    return RopeSpec(kind, values, float(partial))


def rope_table(
    fields: Fields,
    head_dim: int,
    element_bytes: int,
    *,
    spec: RopeSpec | None = None,
    positions: int | None = None,
    mrope_factor: int = 4,
    key: object = None,
) -> Rope:
    """The table of a rotary embedding over heads of `head_dim`, for `positions` (the config's length by default)."""
    spec = rope_spec(fields) if spec is None else spec
    longest = fields.size("max_position_embeddings", 8192) if positions is None else positions
    stated = spec.values.get("rope_dim")
    rotary = int(stated) if stated else int(head_dim * spec.partial)
    width = 2 * math.ceil((head_dim if spec.kind == "proportional" else rotary) / 2)
    rows = _rows(spec, fields, longest, mrope_factor)
    return Rope((head_dim, rotary, rows, spec.kind, key), rows * width * element_bytes)


def _rows(spec: RopeSpec, fields: Fields, longest: int, mrope_factor: int) -> int:
    factor = float(spec.values.get("factor") or 1.0)
    times = mrope_factor if "mrope_section" in spec.values and spec.kind in ("default", "yarn") else 1
    if spec.kind in _ORIGINAL_KINDS:
        return math.ceil(_original(spec, fields, longest) * times * factor)
    if spec.kind == "linear":
        return math.ceil(longest * factor)
    if spec.kind == "longrope":
        return longest + _original(spec, fields, longest)
    return longest * times


def _original(spec: RopeSpec, fields: Fields, longest: int) -> int:
    for value in (
        fields.values.get("original_max_position_embeddings"),
        spec.values.get("original_max_position_embeddings"),
    ):
        if isinstance(value, int) and value > 0:
            return value
    return longest
