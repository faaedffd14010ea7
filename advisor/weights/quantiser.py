"""Which format each module of a model is built in, from the checkpoint's quantisation config or `--quantization`.

Source: vLLM 0.32 layers/quantization/*.py (`get_quant_method` of each config class), config/quantization.py (online
shorthands), transformers_utils/config.py (hf_quant_config.json is read only when config.json has no such mapping).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
)


class Quantiser:
    """An unquantised model; the base of the others."""

    leaves_kimi_tower = True  # Kimi K2.5 hands its tower no method, or one of other kinds than compressed-tensors
    loose = 0.0  # share of the bytes that the formats leave unknown, either way

    def __init__(self, fused: q.Fused = q.COMMON_FUSED) -> None:
        self.fused = fused
        self._linears: dict[str, Format] = {}
        self._patterns = q.LayerPatterns(())

    def linear(self, name: str) -> Format:
        """The format of a linear layer."""
        form = self._linears.get(name)
        if form is None:
            form = self._linears[name] = self._linear(name)
        return form

    def _linear(self, name: str) -> Format:
        del name
        return PLAIN

    def experts(self, name: str) -> Format:
        """The format of a layer's routed experts."""
        del name
        return PLAIN

    def embedding(self, name: str) -> Format:
        """The format of the token embeddings."""
        del name
        return PLAIN

    def head(self, name: str) -> Format:
        """The format of the output head."""
        del name
        return PLAIN

    def kv_scale_bytes(self, latent: bool, element_bytes: int) -> int:
        """Parameters that load an attention layer's KV scales; MLA (`latent`) has them in fewer formats."""
        del latent, element_bytes
        return 0

    def signature(self, layer: int) -> object:
        """Equal for layers whose modules are all quantised alike."""
        return self._patterns.signature(layer)


class Fp8Quantiser(Quantiser):
    """quant_method fp8: per tensor, or in blocks (fp8.py)."""

    leaves_kimi_tower = False

    def __init__(
        self, config: Mapping[str, Any], renames: q.Renames, fused: q.Fused, *, form: Format | None = None
    ) -> None:
        super().__init__(fused)
        ignored = config.get("ignored_layers") or config.get("modules_to_not_convert") or []
        self._ignored = [renames(str(i)) for i in ignored]
        self._patterns = q.LayerPatterns(self._ignored)
        block = config.get("weight_block_size")
        self._form: Format
        if form is not None:
            self._form = form
        elif block:
            self._form = Fp8Block(int(block[0]), int(block[1]))
        else:
            self._form = Fp8Tensor(config.get("activation_scheme") == "static")

    def _linear(self, name: str) -> Format:
        return PLAIN if q.is_skipped(name, self._ignored, self.fused) else self._form

    def experts(self, name: str) -> Format:
        """As the linears, by the experts' name."""
        return PLAIN if q.is_skipped(name, self._ignored, self.fused) else self._form

    def kv_scale_bytes(self, latent: bool, element_bytes: int) -> int:
        """Four scalars an attention layer; none for MLA."""
        return 0 if latent else 4 * element_bytes


class DeepseekV4Quantiser(Fp8Quantiser):
    """DeepSeek V4's own fp8: scales of one byte, experts in MXFP4 or NVFP4 (models/deepseek_v4/quantization)."""

    def __init__(self, config: Mapping[str, Any], expert_dtype: str, renames: q.Renames, fused: q.Fused) -> None:
        super().__init__(config, renames, fused)
        if isinstance(self._form, Fp8Block):
            self._form = self._form._replace(scale_bytes=1)
        self._experts: Format = self._form
        if expert_dtype == "fp4":
            nvidia = str(config.get("moe_quant_algo") or "").upper() == "NVFP4"
            self._experts = Nvfp4(int(config.get("group_size") or 16)) if nvidia else Mxfp4(128, 256)

    def experts(self, name: str) -> Format:
        """Four bits unless the config says otherwise."""
        del name
        return self._experts

    def kv_scale_bytes(self, latent: bool, element_bytes: int) -> int:
        """None."""
        del latent, element_bytes
        return 0


class ExpertsOnlyQuantiser(Quantiser):
    """Formats that touch routed experts only: gpt-oss MXFP4, experts_int8, int8 and NVFP4 made while loading."""

    leaves_kimi_tower = False

    def __init__(self, form: Format) -> None:
        super().__init__()
        self._form = form

    def experts(self, name: str) -> Format:
        """The one format."""
        del name
        return self._form


class OnlineQuantiser(Quantiser):
    """Quantised while loading: every linear and all experts in one format, the head and embeddings plain."""

    leaves_kimi_tower = False

    def __init__(self, form: Format) -> None:
        super().__init__()
        self._form = form

    def _linear(self, name: str) -> Format:
        del name
        return self._form

    def experts(self, name: str) -> Format:
        """The one format."""
        del name
        return self._form


ONLINE: dict[str, Format] = {
    "fp8": Fp8Tensor(static=False),
    "fp8_per_tensor": Fp8Tensor(static=False),
    "fp8_per_block": Fp8Block(128, 128, refines=False),
    "fp8_per_channel": Fp8Channel(),
    "mxfp8": Mxfp8(),
    "mxfp4": Mxfp4(),
}
ONLINE_EXPERTS: dict[str, Format] = {
    "experts_int8": Fp8Channel(),
    "int8_per_channel_weight_only": Fp8Channel(),
    "nvfp4_per_token": Nvfp4(),
}
