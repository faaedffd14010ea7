"""Where alternatives are looked for when a workload does not fit: GPUs in common use, and a model's family.

Only what the catalogues hold: nothing is fetched to suggest it.
"""

from __future__ import annotations

import contextlib
import re

from advisor.errors import InvalidInput
from advisor.facts import ModelFacts
from advisor.gpu import Gpu
from kvadvise.surroundings import Surroundings, here

# Ids in profiles/gpus that are rented or bought new in numbers; a suggestion should be something one can get.
COMMON_GPUS = (
    *("l4", "rtx-4090", "rtx-5090", "l40s", "rtx-pro-6000", "a100-sxm4-40gb", "a100-sxm4-80gb"),
    *("h100-80gb", "h200", "b200", "b300", "mi300x", "mi325x", "mi355x"),
)
_MOST_SIBLINGS = 12
_SIZE = re.compile(r"(?<![a-z0-9.])\d+(?:\.\d+)?(?:x\d+)?[bm](?![a-z0-9])")
_TUNED = ("instruct", "chat", "-it", "base", "coder", "math", "vl", "embedding", "thinking")


def common_gpus() -> list[Gpu]:
    """The GPUs in common use, one of each."""
    from kvadvise.gpu_build import gpu_of_row
    from kvadvise.gpu_rows import bundled_folder, load_row

    return [gpu_of_row(load_row(bundled_folder() / f"{gpu_id}.yaml")) for gpu_id in COMMON_GPUS]


def siblings(facts: ModelFacts, around: Surroundings | None = None) -> list[ModelFacts]:
    """Catalogue entries of the same family and tuning: other sizes, and quantised checkpoints of this one.

    A family is what a name has before its size: `Qwen2.5-` of Qwen2.5-72B-Instruct. An entry that cannot be read is
    no sibling; saying what is wrong with it is for `kvadvise models`.
    """
    from kvadvise.catalogue import find_facts, model_ids

    around = around or here()
    found = []
    for other in model_ids(around):
        if other != facts.id and is_sibling(facts.id, other):
            with contextlib.suppress(InvalidInput):
                found.append(find_facts(other, around))
    known = [other for other in found if other is not None]
    return sorted(known, key=lambda other: (-_bytes(other), other.id))[:_MOST_SIBLINGS]


def family_of(model_id: str) -> str:
    """What a model's name has before its size, in lower case; empty where it states none."""
    name = model_id.rpartition("/")[2].lower()
    size = _SIZE.search(name)
    return name[: size.start()] if size else ""


def is_sibling(model_id: str, other: str) -> bool:
    """Whether `other` is of the same family, tuned to the same purpose."""
    family, name = family_of(model_id), other.rpartition("/")[2].lower()
    if not family or family_of(other).removeprefix("meta-") != family.removeprefix("meta-"):
        return False
    own = model_id.rpartition("/")[2].lower()
    return all((word in own) == (word in name) for word in _TUNED)


def _bytes(facts: ModelFacts) -> int:
    return facts.weights.total_bytes if facts.weights is not None else 0
