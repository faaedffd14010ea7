"""What the checkpoint's quantisation config says: the weight method, and what its KV cache becomes under `auto`.

Sources: vLLM 0.32 transformers_utils/model_arch_config_convertor.py (_normalize_quantization_config),
utils/torch_utils.py (get_kv_cache_quant_algo_string), layers/attention/attention.py (compressed-tensors).
"""

from __future__ import annotations

from typing import Any

from advisor.model.spec import KvScheme, Quantization

_MODELOPT_KV = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}
_MODELOPT_METHOD = {
    "FP8": "modelopt",
    "NVFP4": "modelopt_fp4",
    "MIXED_PRECISION": "modelopt_mixed",
    "MXFP8": "modelopt_mxfp8",
}
_BITS = {
    "fp8": 8, "modelopt": 8, "fbgemm_fp8": 8, "modelopt_fp4": 4, "mxfp4": 4, "gpt_oss_mxfp4": 4, "awq": 4,
    "awq_marlin": 4,     "bitsandbytes": 4, "modelopt_mxfp8": 8,
}  # fmt: skip


def find_quantization(
    root: dict[str, Any], text: dict[str, Any], extra: dict[str, Any] | None
) -> dict[str, Any] | None:
    """The mapping vLLM would use: the root's, the text part's, or hf_quant_config.json beside the config."""
    for holder in (root, text):
        for key in ("quantization_config", "compression_config"):
            value = holder.get(key)
            if isinstance(value, dict) and value:
                return value
    return extra if isinstance(extra, dict) and extra else None


def read_quantization(root: dict[str, Any], text: dict[str, Any], extra: dict[str, Any] | None = None) -> Quantization:
    """Method, bits and KV scheme; all None for an unquantised checkpoint."""
    config = find_quantization(root, text, extra)
    if config is None:
        return Quantization()
    method = _method(config)
    group = config.get("group_size")
    bits = config.get("bits") or config.get("w_bit") or config.get("weight_bits") or _BITS.get(method or "")
    return Quantization(
        method=method,
        weight_bits=bits if isinstance(bits, int) and not isinstance(bits, bool) else None,
        group_size=group if isinstance(group, int) and group > 0 else None,
        kv=_kv_scheme(config, method),
    )


def _inner(config: dict[str, Any]) -> dict[str, Any]:
    inner = config.get("quantization")
    return inner if isinstance(inner, dict) else config


def _is_modelopt(config: dict[str, Any]) -> bool:
    producer = config.get("producer")
    return isinstance(producer, dict) and producer.get("name") == "modelopt"


def _method(config: dict[str, Any]) -> str | None:
    stated = config.get("quant_method")
    method = str(stated).lower().replace("compressed_tensors", "compressed-tensors") if stated else ""
    if _is_modelopt(config) or method.startswith("modelopt"):
        algo = str(_inner(config).get("quant_algo") or config.get("quant_algo") or "").upper()
        for name, vllm_name in _MODELOPT_METHOD.items():
            if algo.startswith(name):
                return vllm_name
        return method or "modelopt"
    return method or None


def _kv_scheme(config: dict[str, Any], method: str | None) -> KvScheme:
    inner = _inner(config)
    stated: Any = (
        inner.get("kv_cache_scheme")
        or config.get("kv_cache_scheme")
        or inner.get("kv_cache_quant_algo")
        or config.get("kv_cache_quant_algo")
    )
    if method == "compressed-tensors":
        return KvScheme(dtype="fp8", calibrated=True) if isinstance(stated, dict) else KvScheme()
    if method is None or not method.startswith("modelopt"):
        return KvScheme()
    if isinstance(stated, dict):
        if stated.get("type") == "float" and stated.get("num_bits") == 8 and stated.get("dynamic") is False:
            return KvScheme(dtype="fp8_e4m3", calibrated=True)
        if stated.get("type") == "float" and stated.get("num_bits") == 4:
            return KvScheme(dtype="nvfp4", calibrated=True)
        return KvScheme()
    if isinstance(stated, str) and stated.lower() in _MODELOPT_KV:
        return KvScheme(dtype=_MODELOPT_KV[stated.lower()], calibrated=True)
    return KvScheme()
