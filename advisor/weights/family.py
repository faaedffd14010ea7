"""One family of architectures: which function reads it, and how its modules are named."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from advisor.weights.blueprint import Blueprint
from advisor.weights.quant_names import COMMON_FUSED, Fused, Renames
from advisor.weights.source import Source


class Family(NamedTuple):
    """How one architecture is built and how its quantisation names modules.

    `reader` names a function in a module `families_...`.
    """

    reader: str
    renames: Renames = Renames()
    fused: Fused = COMMON_FUSED
    pooling: bool = False
    is_checked: bool = True  # set beside vLLM itself; not so for classes that 0.32 no longer has

    @property
    def has_towers(self) -> bool:
        """Whether a model of the family sees or hears."""
        return self.reader.startswith("multimodal") and not self.reader.endswith("_text")

    def build(self, source: Source) -> Blueprint:
        """The blueprint of a config of this family."""
        read: Callable[[Source], Blueprint] = self.reader_function()
        return read(source)

    def reader_function(self) -> Any:
        """The function that reads a config; those of language models take a prefix besides."""
        module, _, function = self.reader.partition(".")
        return getattr(_families(module), function)


def _families(name: str) -> ModuleType:
    """The module of that name. Only the one that is needed is imported: all of them take longer than a count."""
    match name:
        case "dense":
            from advisor.weights import families_dense

            return families_dense
        case "moe":
            from advisor.weights import families_moe

            return families_moe
        case "latent":
            from advisor.weights import families_latent

            return families_latent
        case "hybrid":
            from advisor.weights import families_hybrid

            return families_hybrid
        case "gemma":
            from advisor.weights import families_gemma

            return families_gemma
        case "multimodal":
            from advisor.weights import families_multimodal

            return families_multimodal
        case "transformers":
            from advisor.weights import families_transformers

            return families_transformers
        case _:
            return _rarer_families(name)


def _rarer_families(name: str) -> ModuleType:
    match name:
        case "multimodal_others":
            from advisor.weights import families_multimodal_others

            return families_multimodal_others
        case "dense_others":
            from advisor.weights import families_dense_others

            return families_dense_others
        case "moe_others":
            from advisor.weights import families_moe_others

            return families_moe_others
        case "recurrent":
            from advisor.weights import families_recurrent

            return families_recurrent
        case "compressed":
            from advisor.weights import families_compressed

            return families_compressed
        case "step":
            from advisor.weights import families_step

            return families_step
        case "encoder":
            from advisor.weights import families_encoder

            return families_encoder
        case "older":
            from advisor.weights import families_older

            return families_older
        case _:
            from advisor.weights import families_legacy

            return families_legacy
