"""What the cache's own arguments become: KV dtype, the recurrent states' mode and dtype, prefix caching.

Source: vLLM 0.32 config/model.py, model_executor/models/config.py (per-model hooks),
model_executor/layers/attention/mla_attention.py (_canonicalize_sparse_mla_kv_cache_dtype); boundaries from
layout-by-version.
"""

from __future__ import annotations

from typing import Any

from advisor.arguments import Violation
from advisor.drafting import speculative_config
from advisor.gpu import Gpu
from advisor.model.spec import ModelSpec
from advisor.versions import Version

_MODE_ALL_KINDS = frozenset({"mamba1", "mamba2"})
_FP8 = frozenset({"fp8", "fp8_e4m3"})
_ALIGN_WITH_DRAFTS = (0, 17)
_WIDE_STATES = (0, 26)
_WIDE_BY_AVX512 = (0, 29)
# where 16-bit states that are asked for are kept (asked of 0.32 with transformers 5, which names their layers linear)
_TAKES_16_BITS = ("Qwen3Next", "Qwen3_5", "Jamba", "GraniteMoeHybrid", "Mamba", "FalconMamba", "NemotronH")
_PACKS_EVERY_FP8 = (0, 18)  # up to here the model's own hook packed every fp8 cache


def prefix_caching(model: ModelSpec, version: Version) -> bool:
    """Whether prefixes are cached when nothing is set."""
    if model.is_attention_free or model.is_encoder_decoder:
        return False
    return version >= (0, 28) if model.is_hybrid else True


def cache_dtype(model: ModelSpec, gpu: Gpu, version: Version, asked: str) -> str:
    """What `auto` becomes by the checkpoint and the model's own hook; sparse MLA has a packed fp8 layout of its own."""
    resolved = asked
    if asked == "auto":
        resolved = model.quantization.kv.dtype or "auto"
    major = (gpu.compute_capability or (0, 0))[0]
    if model.architecture == "GlmMoeDsaForCausalLM" and resolved == "auto" and major == 10:
        resolved = "fp8_e4m3"
    if model.packs_pages:
        return "fp8_ds_mla" if resolved == "auto" or resolved.startswith("fp8") else resolved
    return _sparse(resolved, major, version) if model.is_sparse_mla else resolved


def _sparse(resolved: str, major: int, version: Version) -> str:
    if resolved == "bfloat16":
        return "auto"
    if version < _PACKS_EVERY_FP8:
        return "fp8_ds_mla" if resolved.startswith("fp8") else resolved
    if major == 12:
        return "fp8_ds_mla" if resolved in _FP8 | {"auto"} else resolved
    return "fp8_ds_mla" if resolved == "fp8" and major != 10 else resolved


def mamba_mode(model: ModelSpec, version: Version, *, prefix: bool) -> str:
    """none, align (state at block ends) or all (a state for every block), by version."""
    if not (model.is_hybrid or model.is_attention_free) or not prefix or version < (0, 11):
        return "none"
    if version >= (0, 28):
        return "align"
    kinds = {getattr(c, "kind", "") for layer in model.layers for c in layer.caches}
    if kinds & _MODE_ALL_KINDS:
        return "all"
    return "align" if version >= (0, 15) else "none"


def ssm_dtype(model: ModelSpec, gpu: Gpu, version: Version, pins: dict[str, Any]) -> str:
    """The dtype of the recurrent part of a state, where something but the model's own decides it."""
    if gpu.is_cpu and widens_states(model, gpu, version, pins) is not False:
        return "float32"
    return _stated_ssm_dtype(model, version, pins)


def _stated_ssm_dtype(model: ModelSpec, version: Version, pins: dict[str, Any]) -> str:
    asked = pins.get("mamba_ssm_cache_dtype")
    if asked is not None and asked != "auto":
        return str(asked)
    if model.architecture.startswith("NemotronH"):
        return (model.state_dtype or "float32") if version >= (0, 13) else "auto"
    if model.architecture.startswith("Qwen3_5"):
        return model.state_dtype or "auto"
    return "auto"


def widens_states(model: ModelSpec, gpu: Gpu, version: Version, pins: dict[str, Any]) -> bool | None:
    """Whether the CPU backend keeps states in float32 for the sake of its kernels; None where the CPU is not known.

    Source: vLLM 0.26 to 0.32 platforms/cpu.py: check_and_update_config. Then the wider state is planned with.
    """
    stated = _stated_ssm_dtype(model, version, pins)
    if version < _WIDE_STATES or stated == "float32" or not (model.is_hybrid or model.is_attention_free):
        return False
    asked_16 = stated in ("float16", "bfloat16")
    if version >= _WIDE_BY_AVX512 and asked_16 and model.architecture.startswith(_TAKES_16_BITS):
        return False
    needed = "avx512_bf16" if version >= _WIDE_BY_AVX512 else "amx_tile"
    return None if gpu.instructions is None else needed in gpu.instructions


def state_violations(mode: str, version: Version, pins: dict[str, Any]) -> tuple[Violation, ...]:
    """What cannot be together with states that are kept at the ends of blocks (cache mode align)."""
    found = []
    source = "vLLM model_executor/models/config.py: MambaModelConfig"
    if mode == "align" and pins.get("enable_chunked_prefill") is False:
        found.append(
            Violation(
                code="states-need-chunks",
                key="enable_chunked_prefill",
                message="a model with recurrent states and prefix caching needs chunked prefill",
                hint="leave enable_chunked_prefill on, or set enable_prefix_caching: false",
                source=source,
            )
        )
    if mode == "align" and version < _ALIGN_WITH_DRAFTS and speculative_config(pins) is not None:
        found.append(
            Violation(
                code="states-speculation",
                key="speculative_config",
                message=f"vLLM {version} does not speculate in a model with recurrent states and prefix caching",
                hint="set enable_prefix_caching: false, or use vLLM 0.17 or newer",
                source=source,
            )
        )
    return tuple(found)
