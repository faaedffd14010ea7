"""NVIDIA ModelOpt checkpoints: one algorithm for all modules, or one a module (MIXED_PRECISION).

Source: vLLM 0.32 layers/quantization/modelopt.py (the config classes, is_layer_excluded, _resolve_quant_algo).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.errors import NotUnderstood
from advisor.weights import quant_names as q
from advisor.weights.quant_formats import PLAIN, Format, Fp8Block, Fp8Channel, Fp8Tensor, Mxfp8, Nvfp4
from advisor.weights.quantiser import Quantiser

_MODELOPT: dict[str, Format] = {
    "FP8": Fp8Tensor(static=True),
    "FP8_PER_CHANNEL_PER_TOKEN": Fp8Channel(),
    "FP8_PB_WO": Fp8Block(128, 128),
    "FP8_BLOCK_SCALES": Fp8Block(128, 128),
    "MXFP8": Mxfp8(),
}


def _has_inputs(group: object) -> bool:
    return not isinstance(group, Mapping) or group.get("input_activations") is not None


def _modelopt_format(algo: str, group: int) -> Format | None:
    if algo == "NVFP4":
        return Nvfp4(group)
    if algo == "W4A16_NVFP4":
        return Nvfp4(group, "model")
    return _MODELOPT.get(algo)


class ModelOptQuantiser(Quantiser):
    """NVIDIA ModelOpt: one algorithm for all but the excluded modules."""

    leaves_kimi_tower = False

    def __init__(self, config: Mapping[str, Any], renames: q.Renames, fused: q.Fused) -> None:
        super().__init__(fused)
        inner = config.get("quantization")
        legacy = isinstance(inner, Mapping)
        values: Mapping[str, Any] = inner if isinstance(inner, Mapping) else config
        algo = str(values.get("quant_algo", "")).upper()
        groups = config.get("config_groups")
        if algo == "NVFP4" and isinstance(groups, Mapping) and groups and not any(map(_has_inputs, groups.values())):
            algo = "W4A16_NVFP4"
        form = _modelopt_format(algo, int(values.get("group_size") or 16))
        if form is None:
            raise NotUnderstood(f"the ModelOpt algorithm {algo!r} is not known", where="quantization_config.quant_algo")
        self._form = form
        names = values.get("exclude_modules" if legacy else "ignore") or []
        excluded = [renames(n) for n in q.split_wildcards(map(str, names))]
        self._excluded = q.Excluded(excluded, fused)
        self._patterns = q.LayerPatterns(excluded)

    def _is_plain(self, name: str) -> bool:
        tower = "vision_tower" in name or "vision_model" in name or "vit_large_projector" in name
        return tower or self._excluded.has(name)

    def _linear(self, name: str) -> Format:
        return PLAIN if self._is_plain(name) else self._form

    def experts(self, name: str) -> Format:
        """As the linears, by the experts' name."""
        return PLAIN if self._is_plain(name) else self._form

    def head(self, name: str) -> Format:
        """ModelOpt quantises the head unless it is excluded."""
        return PLAIN if self._is_plain(name) else self._form

    def kv_scale_bytes(self, latent: bool, element_bytes: int) -> int:
        """Four scalars an attention layer, MLA too."""
        del latent
        return 4 * element_bytes


class MixedModelOptQuantiser(Quantiser):
    """ModelOpt MIXED_PRECISION: an algorithm a module, the others plain."""

    leaves_kimi_tower = False

    def __init__(self, config: Mapping[str, Any], renames: q.Renames, fused: q.Fused) -> None:
        super().__init__(fused)
        inner = config.get("quantization")
        legacy = isinstance(inner, Mapping)
        values: Mapping[str, Any] = inner if isinstance(inner, Mapping) else config
        layers = values.get("quantized_layers")
        if not isinstance(layers, Mapping) or not layers:
            raise NotUnderstood("MIXED_PRECISION lists no layers", where="quantization_config.quantized_layers")
        group = values.get("group_size")
        self._algos: dict[str, str] = {}
        self._parents: dict[str, str] = {}
        seen = None
        for name, recipe in layers.items():
            if seen is not None and name.startswith(seen):
                continue  # another expert of the layer: the first speaks for all
            algo = str(recipe.get("quant_algo", "")).upper()
            group = group or (recipe.get("group_size") if "NVFP4" in algo else None)
            parent, found, _ = str(name).partition(".experts.")
            seen = parent + found if found else None
            if found:
                self._parents.setdefault(renames(parent + ".experts"), algo)
            else:
                self._algos[renames(str(name))] = algo
        self._group = int(group or 16)
        names = values.get("exclude_modules" if legacy else "ignore") or []
        excluded = [renames(n) for n in q.split_wildcards(map(str, names))]
        self._excluded = q.Excluded(excluded, fused)
        recipes = [f"{n}={a}" for part in (self._algos, self._parents) for n, a in part.items()]
        self._patterns = q.LayerPatterns([*excluded, *recipes])
        self._scales = _has_kv_scales(config, values)

    def _format(self, name: str) -> Format:
        if self._excluded.has(name):
            return PLAIN
        algo = self._algo(name)
        form = None if algo is None else _modelopt_format(algo, self._group)
        return PLAIN if form is None else form

    def _algo(self, name: str) -> str | None:
        names = [name]
        if name.endswith(".lm_head"):
            names.append("lm_head")
        if name.startswith("language_model.model."):
            names.append("model.language_model." + name.removeprefix("language_model.model."))
        for candidate in names:
            if candidate in self._algos:
                return self._algos[candidate]
            base, _, leaf = candidate.rpartition(".")
            for part in self.fused.get(leaf) or q.COMMON_FUSED.get(leaf, ()):
                if f"{base}.{part}" in self._algos:
                    return self._algos[f"{base}.{part}"]
        for candidate in names:
            if candidate in self._parents:
                return self._parents[candidate]
        return None

    def _linear(self, name: str) -> Format:
        return self._format(name)

    def experts(self, name: str) -> Format:
        """By any expert listed under the name."""
        return self._format(name)

    def head(self, name: str) -> Format:
        """As the linears."""
        return self._format(name)

    def kv_scale_bytes(self, latent: bool, element_bytes: int) -> int:
        """Four scalars an attention layer where the KV cache is quantised; none for MLA."""
        return 0 if latent or not self._scales else 4 * element_bytes


def _has_kv_scales(config: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    if values.get("kv_cache_quant_algo"):
        return True
    scheme = config.get("kv_cache_scheme")
    return isinstance(scheme, Mapping) and scheme.get("type") == "float" and scheme.get("num_bits") == 8
