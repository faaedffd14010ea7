"""What vLLM's model class builds for a config, on rank 0 of each stage.

Source: vLLM 0.32 config/model.py (_resolve_auto_dtype), model_executor/model_loader (initialize_model).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from advisor.errors import InvalidInput
from advisor.model.config_view import ConfigView
from advisor.model.dtypes import auto_dtype, config_dtype, normal_dtype
from advisor.versions import Version
from advisor.weights.blueprint import stage_bytes
from advisor.weights.family import Family
from advisor.weights.fields import text_fields
from advisor.weights.quant_select import read_quantiser
from advisor.weights.source import make_source
from advisor.weights.tally import Bytes, Rank

CPU = (0, 0)  # as a compute capability
_UNCHECKED = 0.02  # share either way, for classes that were read but not asked
_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of weight_bytes, for its parts."""

    config: Mapping[str, Any]
    quant_config: Mapping[str, Any] | None
    version: Version
    tp: int
    pp: int
    dp: int
    ep: bool
    dtype: str | None
    quantization: str | None
    max_model_len: int | None
    capability: tuple[int, int]
    towers: bool
    partition: tuple[int, ...] | None


def element_bytes(asked: Asked, pooling: bool) -> int:
    """Bytes of an element in the dtype vLLM loads the model in."""
    if asked.dtype and asked.dtype != "auto":
        name = normal_dtype(asked.dtype)
        if name is None:
            raise InvalidInput(
                f"{asked.dtype!r} is not a dtype", where="dtype", hint="auto, bfloat16, float16 or float32"
            )
    else:
        has_bf16 = asked.capability >= (8, 0) or asked.capability == CPU
        stated = config_dtype(ConfigView(dict(asked.config)))
        name = auto_dtype(stated, has_bf16=has_bf16, prefers_fp16=pooling)
    return _ELEMENT_BYTES[name]


class Built(NamedTuple):
    """Bytes of each stage; sizes the config leaves out, a further share either way, and notes."""

    stages: tuple[Bytes, ...]
    missing: tuple[str, ...]
    loose: float
    has_towers: bool
    notes: tuple[str, ...]


def build(asked: Asked, family: Family, *, untied: bool = False, whole: bool = False) -> Built:
    """Count the model; `whole` is all of it on one rank, `untied` with a head of its own whatever the config says."""
    config = asked.config
    text = text_fields(config)
    notes: list[str] = []
    quantiser = read_quantiser(
        config, text, asked.quant_config, asked.quantization, family.renames, family.fused, notes
    )
    tp, pp, dp = (1, 1, 1) if whole else (asked.tp, asked.pp, asked.dp)
    rank = Rank(
        tp=tp,
        expert_tp=1 if asked.ep else tp * dp,
        expert_ranks=tp * dp if asked.ep else 1,
        element_bytes=element_bytes(asked, family.pooling),
        quantiser=quantiser,
        capability=asked.capability,
    )
    source = make_source(config, text, untied=untied, max_model_len=asked.max_model_len, towers=asked.towers)
    plan = family.build(source)
    stages = stage_bytes(plan, rank, pp, None if whole else asked.partition)
    loose = quantiser.loose + (0.0 if family.is_checked else _UNCHECKED)
    return Built(tuple(stages), tuple(text.missing), loose, asked.towers and family.has_towers, tuple(notes))
