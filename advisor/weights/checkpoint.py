"""A checkpoint's size set beside what the config says, and a rank's part of it where the config says too little."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from advisor.errors import KvadviseError
from advisor.estimate import Estimate, estimated
from advisor.facts import WeightFacts
from advisor.weights.fields import text_fields

_FLOATS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")


class Checkpoint(NamedTuple):
    """What a checkpoint weighs once loaded; `has_head` None where nothing says whether it has an output head."""

    n_bytes: int
    has_head: bool | None = None
    is_downcast: bool = False


def read_checkpoint(facts: WeightFacts, element_bytes: int, layers: int | None) -> Checkpoint:
    """Size in elements of `element_bytes`, without layers past the model's own (multi-token prediction).

    With headers, each floating tensor is counted in the loaded dtype; without, the parameters of a checkpoint that has
    two or four bytes for each.
    """
    if facts.tensors is None:
        count = facts.num_parameters
        stored_as = next((n for n in (2, 4) if count and abs(facts.total_bytes / count - n) < 0.1), None)
        if stored_as is None or not count or facts.basis == "gguf":
            return Checkpoint(facts.total_bytes)
        return Checkpoint(count * element_bytes, None, element_bytes < stored_as)
    total, stored, head = 0, 0, False
    for name, tensor in facts.tensors.items():
        found = _LAYER.search(name)
        is_tower = "vis" in name or "audio" in name
        if name.startswith("mtp.") or (layers and found and not is_tower and int(found[1]) >= layers):
            continue
        head = head or name.endswith("lm_head.weight")
        size = _FLOATS.get(tensor.dtype)
        stored += tensor.n_bytes
        total += tensor.n_bytes if size is None else tensor.n_bytes // size * element_bytes
    return Checkpoint(total, head, total < 0.75 * stored)


def embedding_bytes(config: Mapping[str, Any], element_bytes: int) -> int:
    """Bytes of the token embeddings, 0 where the config does not size them."""
    try:
        text = text_fields(config)
        return text.size("vocab_size", 0) * text.size("hidden_size", 0, "n_embd", "d_model") * element_bytes
    except KvadviseError:
        return 0


def divided_evenly(n_bytes: int, embedding: int, tp: int, pp: int) -> tuple[Estimate, ...]:
    """Each stage's part of a checkpoint of an unknown architecture, divided evenly but for the embeddings.

    Over 259 bundled models of known architecture, cut into 1 to 8 ranks and stages, what vLLM builds is below the
    upper end on the heaviest rank in 97 of 100 cases, and within the band on every stage in 93; outside lie models
    whose embeddings outweigh their layers, and those that keep most of a tower on every rank.
    """
    whole = n_bytes / tp
    ends = 0.0 if pp == 1 else min(embedding / tp, whole / 4)
    middle = (whole - 2 * ends) / pp
    replicated = 0.05 + (0.0 if tp == 1 else 0.02 * tp)
    result = []
    for stage in range(pp):
        value = middle + ends * ((stage == 0) + (stage == pp - 1)) if pp > 1 else whole
        uneven = (middle * 0.1 + 2 * ends) if pp > 1 else 0.0
        result.append(
            estimated(
                round(value),
                round(0.93 * value - uneven * 0.75),
                round((1 + replicated) * value + uneven),
            )
        )
    return tuple(result)
