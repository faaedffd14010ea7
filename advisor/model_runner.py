"""Which of vLLM's two GPU model runners serves a model when nothing is set (VLLM_USE_V2_MODEL_RUNNER unset).

It decides what the sampler's warm-up costs and how many batches are in flight. Source: config/vllm.py
`use_v2_model_runner`, `_is_default_v2_model_runner_model` in 0.21 to 0.32. Left out: features that send a model back to
the first runner (some speculative methods, external launcher with pipeline parallel) and ROCm's own list.
"""

from __future__ import annotations

from advisor.versions import Version

_LLAMA_LIKE = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"})
_MOE = frozenset({"DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM"})
_LATER_MOE = frozenset({"InklingForCausalLM", "InklingForConditionalGeneration", "LongcatFlashNgramForCausalLM"})
_KIMI = frozenset({"KimiK3ForConditionalGeneration"})
_DEEPSEEK_V4 = frozenset({"DeepseekV4ForCausalLM"})


def uses_v2_runner(
    version: Version,
    architecture: str,
    *,
    is_moe: bool,
    is_quantized: bool,
    is_hybrid: bool,
    is_pooling: bool = False,
) -> bool:
    """Whether the second model runner is the default for this model."""
    if version >= (0, 29):
        return True
    if version < (0, 22) or is_pooling:
        return False
    if version < (0, 23):
        return architecture == "Qwen3ForCausalLM" and not is_moe and not is_quantized
    if version < (0, 24):
        return architecture in _LLAMA_LIKE and not is_moe and not is_quantized
    if version < (0, 25):
        return architecture in _LLAMA_LIKE | _MOE
    listed = architecture in _listed(version)
    if is_hybrid and not (listed and version >= (0, 27)):
        return False
    return listed or not is_moe


def _listed(version: Version) -> frozenset[str]:
    names = _MOE
    if version >= (0, 26):
        names |= _LATER_MOE
    if version >= (0, 27):
        names |= _KIMI
    if version >= (0, 28):
        names |= _DEEPSEEK_V4
    return names
