"""Finding the quantisation vLLM would use, and the quantiser for it.

Source: vLLM 0.32 transformers_utils/config.py and model_arch_config_convertor.py (where the mapping is looked for, and
how ModelOpt's legacy file is recognised), config/model.py (_verify_quantization), weight_utils.py (get_quant_config).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.errors import NotUnderstood
from advisor.weights import quant_names as q
from advisor.weights.fields import Fields
from advisor.weights.quant_compressed import CompressedQuantiser
from advisor.weights.quant_formats import Fp8Channel, Mxfp4, Nf4
from advisor.weights.quant_modelopt import MixedModelOptQuantiser, ModelOptQuantiser
from advisor.weights.quant_packed import PackedQuantiser
from advisor.weights.quantiser import (
    ONLINE,
    ONLINE_EXPERTS,
    DeepseekV4Quantiser,
    ExpertsOnlyQuantiser,
    Fp8Quantiser,
    OnlineQuantiser,
    Quantiser,
)

_AWQ = frozenset({"awq", "auto_awq", "awq_marlin"})
_GPTQ = frozenset({"gptq", "auto_gptq", "gptq_marlin", "auto-round", "auto_round", "inc"})
_ONLINE_LOOSE = 0.02  # what loading leaves of a model quantised on the way was read, not asked
_MODELOPT_FILE = {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "NVFP4", "MIXED_PRECISION"}


def find_config(root: Mapping[str, Any], text: Fields, extra: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The quantisation mapping: the root's, else hf_quant_config.json, else the text part's."""
    for value in (root.get("quantization_config"), extra, text.values.get("quantization_config")):
        if isinstance(value, Mapping) and value:
            return value
    value = root.get("compression_config")
    return value if isinstance(value, Mapping) and value else None


def method_of(config: Mapping[str, Any], notes: list[str]) -> str:
    """The method's name, empty where vLLM would see none."""
    stated = str(config.get("quant_method") or "").lower().replace("compressed_tensors", "compressed-tensors")
    inner = config.get("quantization")
    if isinstance(inner, Mapping):
        producer = config.get("producer")
        known = isinstance(producer, Mapping) and producer.get("name") == "modelopt"
        if known or "modelopt_quant_config" in inner or stated.startswith("modelopt"):
            return "modelopt"
        if not stated and str(inner.get("quant_algo", "")).upper() in _MODELOPT_FILE:
            notes.append(
                "hf_quant_config.json names no producer: vLLM takes the checkpoint for unquantised, as does this"
            )
    return "modelopt" if stated.startswith("modelopt") else stated


def read_quantiser(
    root: Mapping[str, Any],
    text: Fields,
    extra: Mapping[str, Any] | None,
    asked: str | None,
    renames: q.Renames,
    fused: q.Fused,
    notes: list[str],
) -> Quantiser:
    """The quantiser of the checkpoint, or of `--quantization` where the checkpoint has none."""
    config = find_config(root, text, extra)
    method = method_of(config, notes) if config is not None else ""
    if config is None or not method:
        return _online(asked, fused, notes)
    if method == "fp8" and root.get("model_type") == "deepseek_v4":
        return DeepseekV4Quantiser(config, str(root.get("expert_dtype") or "fp4"), renames, fused)
    if method == "fp8":
        return Fp8Quantiser(config, renames, fused)
    if method == "fbgemm_fp8":
        return Fp8Quantiser(config, renames, fused, form=Fp8Channel())
    if method == "modelopt":
        return _modelopt(config, renames, fused)
    if method == "compressed-tensors":
        return CompressedQuantiser(config, renames, fused)
    if method in _AWQ:
        return PackedQuantiser(config, "awq", renames, fused, notes)
    if method in _GPTQ:
        return PackedQuantiser(config, "gptq", renames, fused, notes)
    if method in ("mxfp4", "gpt_oss_mxfp4"):
        return ExpertsOnlyQuantiser(Mxfp4(128, 256, 2))
    if method == "mxfp8":
        return ModelOptQuantiser({**config, "quant_algo": "MXFP8"}, renames, fused)
    if method == "bitsandbytes":
        return _bitsandbytes(8 if config.get("load_in_8bit") else 4, notes)
    if method in ONLINE_EXPERTS:
        return ExpertsOnlyQuantiser(ONLINE_EXPERTS[method])
    raise NotUnderstood(f"the quantisation method {method!r} is not known", where="quantization_config.quant_method")


def _modelopt(config: Mapping[str, Any], renames: q.Renames, fused: q.Fused) -> Quantiser:
    inner = config.get("quantization")
    values: Mapping[str, Any] = inner if isinstance(inner, Mapping) else config
    if str(values.get("quant_algo", "")).upper() == "MIXED_PRECISION":
        return MixedModelOptQuantiser(config, renames, fused)
    return ModelOptQuantiser(config, renames, fused)


def _bitsandbytes(bits: int, notes: list[str]) -> Quantiser:
    notes.append(f"bitsandbytes is counted as {bits} bits and a scale a block of 64, its other states in the band")
    quantiser = OnlineQuantiser(Nf4(bits))
    quantiser.loose = 0.05
    return quantiser


def _online(asked: str | None, fused: q.Fused, notes: list[str]) -> Quantiser:
    if asked is None or asked == "none":
        return Quantiser(fused)
    if asked == "bitsandbytes":
        return _bitsandbytes(4, notes)
    if asked in ONLINE or asked in ONLINE_EXPERTS:
        every = asked in ONLINE
        quantiser = OnlineQuantiser(ONLINE[asked]) if every else ExpertsOnlyQuantiser(ONLINE_EXPERTS[asked])
        quantiser.loose = _ONLINE_LOOSE
        return quantiser
    if asked in _AWQ | _GPTQ or asked.startswith(("modelopt", "compressed")):
        raise NotUnderstood(
            f"quantization {asked!r} is for checkpoints quantised that way, and this config describes none",
            where="quantization",
        )
    raise NotUnderstood(f"the quantisation {asked!r} is not known", where="quantization")
