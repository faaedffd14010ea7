"""Rules of device and checkpoint: dtypes the GPU lacks, weight formats it only emulates."""

from __future__ import annotations

from advisor.cache_settings import widens_states
from advisor.model.dtypes import NO_FLOAT16, normal_dtype
from advisor.quantization_names import NEEDS_DESCRIPTION
from advisor.rules.table import Hit, InputRule, Planned, PlanRule
from advisor.sizing import Problem

_BF16 = (8, 0)
_NATIVE_FP4 = (10, 0)
# the least compute capability of any release, by method (vLLM quantization/*.py: get_min_capability)
_LEAST: dict[str, tuple[int, int]] = {
    "awq": (7, 5),
    "awq_marlin": (7, 5),
    "gptq": (6, 0),
    "fp8": (7, 5),
    "fbgemm_fp8": (8, 0),
    "modelopt": (7, 5),
    "modelopt_fp4": (7, 5),
    "mxfp4": (8, 0),
    "compressed-tensors": (7, 0),
    "bitsandbytes": (7, 0),
    "experts_int8": (8, 0),
}
_FP4 = frozenset({"modelopt_fp4", "nvfp4"})


def _bf16(problem: Problem) -> Hit | None:
    cap, dtype = problem.gpu.compute_capability, normal_dtype(str(problem.pins.get("dtype", "auto")))
    if cap is None or cap >= _BF16 or dtype != "bfloat16":
        return None
    return Hit(
        f"{problem.gpu.name} (compute capability {cap[0]}.{cap[1]}) has no bfloat16; it needs 8.0",
        f"set dtype: {'float32' if problem.model.model_type in NO_FLOAT16 else 'half'}",
    )


def _fp16(problem: Problem) -> Hit | None:
    if normal_dtype(str(problem.pins.get("dtype", "auto"))) != "float16" or problem.model.model_type not in NO_FLOAT16:
        return None
    return Hit(
        f"{problem.model.model_type} models are unstable in float16, and vLLM refuses it",
        "set dtype: bfloat16, or float32 on a GPU without it",
    )


def _bf16_replaced(planned: Planned) -> Hit | None:
    problem, engine = planned.problem, planned.sized.engine
    cap = problem.gpu.compute_capability
    if cap is None or cap >= _BF16 or problem.model.dtype != "bfloat16" or engine.dtype == "bfloat16":
        return None
    if engine.dtype == "float32":
        return Hit(
            f"{problem.gpu.name} has no bfloat16, and {problem.model.model_type} models are unstable in float16: the "
            "model runs in float32, with twice the bytes of weights and of its 16-bit KV cache",
            "choose a GPU of compute capability 8.0 or newer, or another model",
        )
    return Hit(
        f"{problem.gpu.name} has no bfloat16: the model runs in {engine.dtype}, which its training did not use",
        "check the answers: values beyond 65,504 become infinite",
    )


def _method(problem: Problem) -> str | None:
    pinned = problem.pins.get("quantization")
    return str(pinned) if isinstance(pinned, str) else problem.model.quantization.method


def _weights_capability(problem: Problem) -> Hit | None:
    cap, method = problem.gpu.compute_capability, _method(problem)
    least = _LEAST.get(method or "")
    if cap is None or least is None or cap >= least:
        return None
    return Hit(
        f"{method} weights need compute capability {least[0]}.{least[1]}; {problem.gpu.name} has {cap[0]}.{cap[1]}",
        "use another checkpoint or a newer GPU",
    )


def _fp4(problem: Problem) -> Hit | None:
    cap, method = problem.gpu.compute_capability, _method(problem) or ""
    is_fp4 = method in _FP4 or "nvfp4" in problem.model.id.lower()
    if cap is None or cap >= _NATIVE_FP4 or not is_fp4:
        return None
    return Hit(
        f"{problem.gpu.name} has no 4-bit float: NVFP4 weights are unpacked by a fallback (Marlin), slower and with "
        "more memory than native kernels",
        "check the answers under load; an AWQ or FP8 checkpoint suits this GPU better",
    )


def _gguf(problem: Problem) -> Hit | None:
    weights = problem.facts.weights
    is_gguf = (weights is not None and weights.basis == "gguf") or _method(problem) == "gguf"
    if not is_gguf:
        return None
    return Hit(
        "GGUF weights: prefill is several times slower than with AWQ or GPTQ, and what is unpacked while loading is "
        "only known roughly",
        "verify latency, give the tokenizer's own path, and prefer AWQ or GPTQ",
    )


def _weights_guessed(problem: Problem) -> Hit | None:
    if problem.facts.weights is not None or problem.workload.model.weights_gib_per_gpu is not None:
        return None
    return Hit(
        "no checkpoint was seen: the weights are counted from the config, as vLLM builds them",
        "state model.weights_gib_per_gpu (a start-up log prints it), or let kvadvise read the checkpoint's headers",
    )


def _undescribed(problem: Problem) -> Hit | None:
    asked = problem.pins.get("quantization")
    if asked not in NEEDS_DESCRIPTION or problem.model.quantization.method is not None:
        return None
    return Hit(
        f"quantization {asked} is for checkpoints that were quantised that way, and this one's config describes none",
        "leave quantization out, name a quantised checkpoint as the model, or fp8 to convert this one while loading",
    )


def _online(problem: Problem) -> Hit | None:
    asked = problem.pins.get("quantization")
    if not isinstance(asked, str) or problem.model.quantization.method is not None or asked == "gguf":
        return None
    if asked in NEEDS_DESCRIPTION:
        return None
    return Hit(
        f"quantization {asked} converts a 16-bit checkpoint while loading: the peak is the full size of what is being "
        "converted",
        "prefer a checkpoint that is quantised already",
    )


def _states_by_cpu(problem: Problem) -> Hit | None:
    if not problem.gpu.is_cpu or widens_states(problem.model, problem.gpu, problem.version, problem.pins) is not None:
        return None
    return Hit(
        "the CPU backend keeps recurrent states in float32 where the processor has the instructions of its kernels "
        "(AVX-512 BF16, before 0.29 AMX), and this processor is not known: float32 is planned with",
        "set mamba_ssm_cache_dtype: float32 to make it certain, or plan on the machine itself (gpu: cpu)",
    )


INPUTS = (
    InputRule(
        code="dtype-bf16-capability",
        severity="error",
        check=_bf16,
        consequence="invalid",
        source="vLLM platforms/cuda.py: check_if_supports_dtype",
    ),
    InputRule(
        code="dtype-float16-model",
        severity="error",
        check=_fp16,
        consequence="invalid",
        source="vLLM config/model.py: _FLOAT16_NOT_SUPPORTED_MODELS",
    ),
    InputRule(
        code="quantization-capability",
        severity="error",
        check=_weights_capability,
        consequence="invalid",
        source="vLLM config/vllm.py: _get_quantization_config",
    ),
    InputRule(code="nvfp4-fallback", severity="warning", check=_fp4, source="vllm#50925, vllm#49070, vllm#49376"),
    InputRule(
        code="cpu-state-dtype",
        severity="warning",
        check=_states_by_cpu,
        source="vLLM platforms/cpu.py: check_and_update_config",
    ),
    InputRule(code="gguf", severity="warning", check=_gguf, source="vllm#35987"),
    InputRule(code="weights-estimated", severity="note", check=_weights_guessed, source="config.json"),
    InputRule(
        code="quantization-undescribed",
        severity="error",
        check=_undescribed,
        consequence="invalid",
        source="vLLM model_loader/weight_utils.py: get_quant_config",
    ),
    InputRule(code="quantized-while-loading", severity="note", check=_online, source="vLLM quantization/online"),
)
PLANS = (PlanRule(code="dtype-replaced", severity="warning", check=_bf16_replaced, source="vllm#1157, vllm#9990"),)
