"""AWQ and GPTQ checkpoints: integers packed into words.

Source: vLLM 0.32 layers/quantization/{auto_awq,auto_gptq,moe_wna16}.py, utils/gptq_utils.py (get_dynamic_override).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.errors import NotUnderstood
from advisor.weights import quant_names as q
from advisor.weights.quant_formats import PLAIN, Format, PackedInt
from advisor.weights.quantiser import Quantiser


class PackedQuantiser(Quantiser):
    """AWQ and GPTQ (auto_awq.py, auto_gptq.py)."""

    leaves_kimi_tower = False

    def __init__(
        self, config: Mapping[str, Any], layout: str, renames: q.Renames, fused: q.Fused, notes: list[str]
    ) -> None:
        super().__init__(fused)
        bits = config.get("bits") or config.get("w_bit") or 4
        group = config.get("group_size", config.get("q_group_size"))
        if group is None:
            group = 128
            notes.append(f"the {layout} config states no group size: 128 is taken, as in nearly every such checkpoint")
        if int(bits) not in (2, 3, 4, 8):
            raise NotUnderstood(f"{bits} bits are not a known {layout} width", where="quantization_config.bits")
        zeros = config.get("zero_point", True) if layout == "awq" else not config.get("sym", True)
        self._form = PackedInt(int(bits), int(group), layout, expert_zero_points=bool(zeros))
        self._layout = layout
        self._skip = [renames(str(n)) for n in config.get("modules_to_not_convert") or []]
        self._only = _flat(config.get("modules_in_block_to_quantize") or [])
        self._dynamic: Mapping[str, Any] = config.get("dynamic") or {}
        self._has_head = bool(config.get("lm_head"))
        self._patterns = q.LayerPatterns([*self._skip, *self._dynamic])

    def _packed(self, name: str) -> Format:
        if self._layout == "awq":
            return PLAIN if q.is_skipped(name, self._skip, self.fused, q.substring) else self._form
        if self._only and not self._is_listed(name):
            return PLAIN
        form = self._form
        for pattern, override in self._dynamic.items():
            if pattern.startswith("-:"):
                if q.matches_target(name, "re:" + pattern[2:]):
                    return PLAIN
            elif isinstance(override, Mapping) and q.matches_target(name, "re:" + pattern.removeprefix("+:")):
                form = form._replace(
                    bits=int(override.get("bits", form.bits)), group=int(override.get("group_size", form.group))
                )
        return form

    def _is_listed(self, name: str) -> bool:
        leaf = name.rpartition(".")[2]
        shards = [name.replace(leaf, part) for part in self.fused.get(leaf, (leaf,))]
        return any(listed in shard for listed in self._only for shard in shards)

    def _linear(self, name: str) -> Format:
        return self._packed(name)

    def experts(self, name: str) -> Format:
        """As the linears, by the experts' name."""
        return self._packed(name)

    def head(self, name: str) -> Format:
        """Plain unless the config says the head is quantised."""
        return self._packed(name) if self._has_head else PLAIN


def _flat(values: Any) -> list[str]:
    if isinstance(values, (list, tuple)):
        return [n for v in values for n in _flat(v)]
    return [str(values)]
