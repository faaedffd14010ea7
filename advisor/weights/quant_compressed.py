"""compressed-tensors: schemes by target, and the modules left alone.

Source: vLLM 0.32 layers/quantization/compressed_tensors/ (get_scheme_dict, _get_scheme_from_parts, get_moe_method).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.errors import NotUnderstood
from advisor.weights import quant_names as q
from advisor.weights.quant_formats import (
    PLAIN,
    Format,
    Fp8Block,
    Fp8Channel,
    Fp8Tensor,
    Mxfp4,
    Mxfp8,
    Nvfp4,
    PackedInt,
)
from advisor.weights.quantiser import Quantiser

_WHERE = "quantization_config.config_groups"


class CompressedQuantiser(Quantiser):
    """quant_method compressed-tensors."""

    def __init__(self, config: Mapping[str, Any], renames: q.Renames, fused: q.Fused) -> None:
        super().__init__(fused)
        ignored = [_rename(str(n), renames) for n in config.get("ignore") or []]
        self._ignored = q.Ignored(ignored)
        self._targets: dict[str, Format] = {}
        groups = config.get("config_groups")
        if not isinstance(groups, Mapping):
            raise NotUnderstood("no groups say what is quantised", where=_WHERE)
        for group in groups.values():
            targets = [str(t) for t in group.get("targets") or []]
            if len(targets) == 1 and targets[0].endswith("Attention"):
                continue
            form = _scheme(group, str(group.get("format") or config.get("format") or ""))
            for target in targets:
                self._targets[_rename(target, renames)] = form
        self._patterns = q.LayerPatterns([*ignored, *self._targets])

    def _find(self, name: str, kind: str) -> Format:
        """`kind` is the class vLLM builds: a target may be a name, a pattern or a part of a class name."""
        if self._ignored.has(name, self.fused):
            return PLAIN
        for target, form in self._targets.items():
            if q.matches_target(name, target):
                return form
        leaf = name.rpartition(".")[2]
        for part in self.fused.get(leaf, ()):
            for target, form in self._targets.items():
                if q.matches_target(name.replace(leaf, part), target):
                    return form
        for target, form in self._targets.items():
            if kind and q.matches_target(kind, target, contains=True):
                return form
        return PLAIN

    def _linear(self, name: str) -> Format:
        return self._find(name, "ColumnParallelLinear")

    def experts(self, name: str) -> Format:
        """By the name of the first expert's projections; the target Linear covers experts too."""
        return self._find(f"{name}.0.down_proj", "RoutedExpertsLinear")

    def head(self, name: str) -> Format:
        """Only when named by a target."""
        return self._find(name, "ParallelLMHead")

    def kv_scale_bytes(self, latent: bool, element_bytes: int) -> int:
        """Three scales and three zero points an attention layer; none for MLA."""
        return 0 if latent else 12 + 3 * element_bytes


def _rename(target: str, renames: q.Renames) -> str:
    return renames(target) if "." in target and not target.startswith("re:") else target


def _scheme(group: Mapping[str, Any], layout: str) -> Format:
    weights = group.get("weights")
    if not isinstance(weights, Mapping):
        raise NotUnderstood("a group says nothing of its weights", where=_WHERE)
    inputs = group.get("input_activations")
    inputs = inputs if isinstance(inputs, Mapping) else None
    bits, kind = weights.get("num_bits", 8), weights.get("type", "int")
    strategy, size = _strategy(weights), weights.get("group_size")
    if kind == "float" and bits == 4:
        if strategy == "group" and size == 32:
            return Mxfp4()
        return Nvfp4(int(size or 16), "none" if inputs is None else "float")
    if kind == "float" and bits == 8:
        return _fp8(weights, inputs, strategy)
    if kind == "int" and layout == "pack-quantized" and strategy in ("group", "channel"):
        zeros = not weights.get("symmetric", True)
        return PackedInt(int(bits), int(size or -1) if strategy == "group" else -1, "packed", zeros)
    if kind == "int" and bits == 8:
        static = inputs is not None and not inputs.get("dynamic")
        return Fp8Channel(static) if strategy == "channel" else Fp8Tensor(static)
    raise NotUnderstood(
        f"{bits}-bit {kind} weights by {strategy} ({layout or 'no format'}) are not known", where=_WHERE
    )


def _strategy(weights: Mapping[str, Any]) -> str:
    stated = weights.get("strategy")
    if stated:
        return str(stated)
    if weights.get("block_structure"):
        return "block"
    return "group" if (weights.get("group_size") or -1) > 0 else ("channel" if weights.get("group_size") else "tensor")


def _fp8(weights: Mapping[str, Any], inputs: Mapping[str, Any] | None, strategy: str) -> Format:
    static = inputs is not None and not inputs.get("dynamic")
    if strategy == "block":
        block = weights.get("block_structure") or [128, 128]
        return Fp8Block(int(block[0]), int(block[1]), refines=False)
    if strategy == "group" and weights.get("group_size") == 32:
        return Mxfp8()
    return Fp8Channel(static) if strategy == "channel" else Fp8Tensor(static)
