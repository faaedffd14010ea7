"""Values that vLLM takes for `quantization`, and which of them need the checkpoint to describe itself.

Source: vLLM 0.32 model_executor/layers/quantization/__init__.py QuantizationMethods, and each class's
get_config_filenames, which is empty where a 16-bit checkpoint is converted while loading. Names of releases before are
their union; which release had which was not read.
"""

from __future__ import annotations

from advisor.versions import Version

_READ = (0, 32, 0)
_NOW = frozenset(
    {
        "auto_awq", "auto_gptq", "awq", "awq_marlin", "compressed-tensors", "deepseek_v4_fp8", "experts_int8",
        "fbgemm_fp8", "fp8", "fp8_per_block", "fp8_per_channel", "fp8_per_tensor", "fp_quant", "gpt_oss_mxfp4", "gptq",
        "gptq_marlin", "humming", "inc", "int8_per_channel_weight_only", "modelopt", "modelopt_fp4", "modelopt_mixed",
        "modelopt_mxfp8", "moe_wna16", "mxfp4", "mxfp8", "nvfp4_per_token", "online", "quark", "torchao",
    }
)  # fmt: skip
_PLUGINS = frozenset({"bitsandbytes", "gguf"})  # left the core; packages of their own register them
_BEFORE = frozenset(
    {
        "aqlm", "auto-round", "bitblas", "cpu_awq", "cpu_gptq", "deepspeedfp", "gptq_bitblas", "gptq_marlin_24", "hqq",
        "ipex", "marlin", "neuron_quant", "nvfp4", "petit_nvfp4", "ptpc_fp8", "qqq", "rtn", "squeezellm", "tpu_int8",
        "fp8_e4m3", "modelopt_fp8", "w8a8_fp8",
    }
)  # fmt: skip
# get_config_filenames is not empty: without a description there is nothing to load
NEEDS_DESCRIPTION = frozenset(
    {
        "auto_awq", "auto_gptq", "awq", "awq_marlin", "gptq", "gptq_marlin", "inc", "modelopt", "modelopt_fp4",
        "modelopt_mixed", "modelopt_mxfp8", "moe_wna16",
    }
)  # fmt: skip


def names_of(version: Version) -> frozenset[str]:
    """What this release takes."""
    return _NOW | _PLUGINS | (_BEFORE if version < _READ else frozenset())
