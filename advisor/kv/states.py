"""Bytes of one recurrent state on one tensor-parallel rank.

Source: vLLM 0.32 model_executor/layers/mamba/mamba_utils.py (MambaStateShapeCalculator, MambaStateDtypeCalculator).
Left out: ReplaySSM rings and verification records, which only speculative decoding adds.
"""

from __future__ import annotations

from advisor.errors import EngineRefuses
from advisor.model.spec import StateCache

DTYPE_BYTES = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}


def state_bytes(state: StateCache, *, tp: int, conv_dtype: str, ssm_dtype: str, num_speculative_tokens: int = 0) -> int:
    """Bytes of one request's state in one layer: what vLLM calls the Mamba page before padding."""
    s = state.sizes
    conv, ssm = DTYPE_BYTES[conv_dtype], DTYPE_BYTES[ssm_dtype]
    rows = s.get("conv_kernel", 1) - 1 + num_speculative_tokens
    match state.kind:
        case "mamba1":
            width = divide(s["intermediate_size"], tp)
            return width * (s["conv_kernel"] - 1) * conv + width * s["state_size"] * ssm
        case "mamba2":
            groups = s["n_groups"] + _extra_groups(s["n_groups"], tp)
            width = divide(s["intermediate_size"] + 2 * groups * s["state_size"], tp)
            return width * rows * conv + divide(s["num_heads"], tp) * s["head_dim"] * s["state_size"] * ssm
        case "gdn":
            width = divide(2 * s["head_k_dim"] * s["num_k_heads"] + s["head_v_dim"] * s["num_v_heads"], tp)
            return width * rows * conv + divide(s["num_v_heads"], tp) * s["head_v_dim"] * s["head_k_dim"] * ssm
        case "kda":
            width = divide(3 * s["num_heads"] * s["head_dim"], tp)
            return width * rows * conv + divide(s["num_heads"], tp) * s["head_dim"] ** 2 * ssm
        case "linear":
            return (s["num_heads"] // tp) * s["head_dim"] ** 2 * conv
        case "short_conv":
            return divide(s["intermediate_size"], tp) * rows * conv


def _extra_groups(groups: int, tp: int) -> int:
    """Groups added so that every rank has the groups its heads need (extra_groups_for_head_shards)."""
    if groups % tp and groups != 1:
        raise EngineRefuses(
            "tp-state-groups",
            f"{groups} state groups do not divide over tensor_parallel_size {tp}; only a single group can be copied",
            hint="use a tensor_parallel_size that divides the groups",
            source="vLLM model_executor/layers/mamba/mamba_mixer2.py",
        )
    return 0 if groups % tp == 0 else tp - groups


def divide(value: int, tp: int) -> int:
    """An exact division over tensor-parallel ranks; vLLM asserts it."""
    if value % tp:
        raise EngineRefuses(
            "tp-state",
            f"the recurrent state's width {value} does not divide over tensor_parallel_size {tp}",
            hint="use a tensor_parallel_size that divides the state's heads",
            source="vLLM distributed/utils.py: divide",
        )
    return value // tp


def state_dtypes(kind: str, model_dtype: str, cache_dtype: str, ssm_cache_dtype: str) -> tuple[str, str]:
    """(convolution dtype, recurrent dtype); KDA keeps its recurrent state in float32 unless told otherwise."""
    conv = model_dtype if cache_dtype == "auto" else cache_dtype
    if ssm_cache_dtype == "auto":
        return conv, "float32" if kind == "kda" else conv
    return conv, ssm_cache_dtype
