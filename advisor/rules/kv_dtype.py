"""Rules of the KV cache's precision: what runs, what it costs in quality, what it does not buy."""

from __future__ import annotations

from advisor.kv.dtypes import FP8_DTYPES, is_quantized
from advisor.kv_quantization import NATIVE_FP8, e5m2_refused, e5m2_runs
from advisor.model.spec import AttentionCache, MlaCache
from advisor.rules.table import Hit, InputRule, Planned, PlanRule
from advisor.sizing import Problem
from advisor.steps import is_fragile, is_lossy

_LONG_PROMPT_TOKENS = 16384


def _pinned(problem: Problem) -> str:
    return str(problem.pins.get("kv_cache_dtype") or "auto")


def _capability(problem: Problem) -> Hit | None:
    gpu, dtype = problem.gpu, _pinned(problem)
    cap = gpu.compute_capability
    if cap is None or dtype not in FP8_DTYPES | {"fp8_per_token_head"} or cap >= NATIVE_FP8:
        return None
    if not problem.model.heeds_kv_cache_dtype:
        return None
    can_e5m2 = e5m2_runs(cap, problem.version)
    if dtype == "fp8_e5m2" and can_e5m2:
        return None
    needs = "fp8 e4m3 needs" if can_e5m2 else f"8-bit floats need, with vLLM {problem.version},"
    return Hit(
        f"{gpu.name} (compute capability {cap[0]}.{cap[1]}) cannot keep a {dtype} KV cache: {needs} 8.9",
        ("fp8_e5m2 runs with unquantised checkpoints, or use auto" if can_e5m2 else "use auto")
        + f": 16 bits, {_bytes_at_16_bits(problem)} bytes a token over all layers, before tensor parallel",
    )


def _bytes_at_16_bits(problem: Problem) -> int:
    caches = [cache for layer in problem.model.layers for cache in layer.caches]
    latents = sum(2 * cache.head_size for cache in caches if isinstance(cache, MlaCache))
    heads = (c for c in caches if isinstance(c, AttentionCache))
    return latents + sum(2 * c.num_kv_heads * (c.head_size + c.head_size_v) for c in heads)


def _e5m2_checkpoint(problem: Problem) -> Hit | None:
    refused = e5m2_refused(problem.model, problem.version) if _pinned(problem) == "fp8_e5m2" else ""
    return Hit(refused, "use kv_cache_dtype: auto, or fp8 on compute capability 8.9 and newer") if refused else None


def _lossy(planned: Planned) -> bool:
    return is_lossy(planned.sized)


def _uncalibrated(planned: Planned) -> Hit | None:
    engine = planned.sized.engine
    if engine.cache_dtype not in FP8_DTYPES | {"fp8_ds_mla"} or planned.problem.model.quantization.kv.calibrated:
        return None
    if is_fragile(planned.problem):
        return None
    return Hit(
        f"the checkpoint carries no KV scales, so {engine.kv_cache_dtype} uses 1.0 (uncalibrated)",
        "let verify's quality probe judge it, or use a checkpoint with kv_cache_scheme",
    )


def _fragile(planned: Planned) -> Hit | None:
    if not _lossy(planned) or not is_fragile(planned.problem):
        return None
    return Hit(
        f"{planned.problem.model.model_type} with an uncalibrated 8-bit KV cache has lost its answers altogether "
        "(accuracy near 0, repeated characters): its keys are not normed",
        "keep 16 bits (kv_cache_quantization: never) unless a quality probe at the real prompt length passes",
    )


def _mla(planned: Planned) -> Hit | None:
    if not _lossy(planned) or not planned.problem.model.uses_mla:
        return None
    return Hit(
        "MLA with an 8-bit KV cache was fine in one turn and unreadable in several (vLLM 0.18.1)",
        "probe multi-turn conversations with a system prompt before trusting it",
    )


def _long_context(planned: Planned) -> Hit | None:
    problem, engine = planned.problem, planned.sized.engine
    if not _lossy(planned) or problem.prompt_tokens < _LONG_PROMPT_TOKENS:
        return None
    return Hit(
        f"8-bit KV caches lose more on long prompts ({problem.prompt_tokens} tokens at p95), and differently with "
        f"tensor_parallel_size {engine.tensor_parallel_size}",
        "probe quality at the p95 prompt length and with the final tensor_parallel_size",
    )


def _speed(planned: Planned) -> Hit | None:
    if not _lossy(planned):
        return None
    return Hit(
        f"{planned.sized.engine.kv_cache_dtype} buys capacity; weights and activations stay, and speed is not promised "
        "(an A100 lost 2 to 23 %, an H100 nothing)",
        "measure latency with verify",
    )


def _from_checkpoint(planned: Planned) -> Hit | None:
    engine = planned.sized.engine
    if engine.kv_cache_dtype != "auto" or not is_quantized(engine.cache_dtype):
        return None
    return Hit(
        f"kv_cache_dtype auto becomes {engine.cache_dtype} here: the checkpoint or the model's own rule says so",
        "",
    )


INPUTS = (
    InputRule(
        code="kv-fp8-capability",
        severity="error",
        check=_capability,
        consequence="invalid",
        source="vLLM v1/attention/backends/triton_attn.py; vllm#47549, vllm#26431",
    ),
    InputRule(
        code="kv-fp8-e5m2-checkpoint",
        severity="error",
        check=_e5m2_checkpoint,
        consequence="invalid",
        source="vLLM model_executor/layers/attention/attention.py; vllm#45040",
    ),
)
PLANS = (
    PlanRule(
        code="kv-fp8-fragile-family",
        severity="warning",
        check=_fragile,
        source="verl#4435, vllm#41343",
    ),
    PlanRule(
        code="kv-fp8-uncalibrated",
        severity="warning",
        check=_uncalibrated,
        source="vLLM model_executor/layers/quantization/kv_cache.py; verl#4435, sgl-cookbook#237",
    ),
    PlanRule(code="kv-fp8-mla", severity="warning", check=_mla, source="vllm#38652"),
    PlanRule(code="kv-fp8-long-context", severity="note", check=_long_context, source="vllm#23813"),
    PlanRule(code="kv-fp8-speed", severity="note", check=_speed, source="vllm#49077"),
    PlanRule(
        code="kv-dtype-from-checkpoint",
        severity="note",
        check=_from_checkpoint,
        source="vLLM utils/torch_utils.py: resolve_kv_cache_dtype_string",
    ),
)
