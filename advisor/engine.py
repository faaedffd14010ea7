"""vLLM's engine arguments once its own defaults are filled in, for one model, GPU and version.

Sources: vLLM 0.32 engine/arg_utils.py (_set_default_chunked_prefill_and_prefix_caching_args), config/vllm.py
(max_in_flight_tokens), config/model.py; boundaries from layout-by-version. What belongs together lies beside it:
parallel_sizes.py, batches.py, cache_settings.py.
"""

from __future__ import annotations

from typing import Any

import msgspec

from advisor.arguments import Violation, check_pins, normalise
from advisor.batches import batch_sizes, concurrent_batches, schedules_ahead, scheduling_violations
from advisor.cache_settings import cache_dtype, mamba_mode, prefix_caching, ssm_dtype, state_violations
from advisor.errors import EngineRefuses
from advisor.gpu import Gpu
from advisor.model.dtypes import NO_FLOAT16, auto_dtype, normal_dtype
from advisor.model.spec import ModelSpec
from advisor.parallel_sizes import parallel_sizes
from advisor.versions import Version


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """Effective engine arguments, under vLLM's own names. `pinned` holds what the user set, as given."""

    version: Version
    gpu: Gpu
    max_model_len: int
    gpu_memory_utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_cache_dtype: str  # as it would be passed: "auto", "fp8", ...
    cache_dtype: str  # what it becomes: "auto" (the model's dtype), "fp8_e4m3", "fp8_ds_mla", ...
    dtype: str
    block_size: int | None  # the user's; None lets the backend choose
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    enforce_eager: bool = False
    async_scheduling: bool = True
    disable_hybrid_kv_cache_manager: bool = False
    num_gpu_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None
    quantization: str | None = None
    mamba_cache_mode: str = "none"
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    num_speculative_tokens: int = 0
    max_in_flight_tokens: int = 0  # tokens scheduled and not yet settled: what sliding layers keep besides the window
    pinned: dict[str, Any] = {}
    violations: tuple[Violation, ...] = ()


_STATES_ON_V1 = (0, 10)
_NEVER_TIES = frozenset({"GPTJForCausalLM", "DbrxForCausalLM"})


def resolve_engine(model: ModelSpec, gpu: Gpu, version: Version, pins: dict[str, Any]) -> Engine:
    """Fill in what vLLM `version` would do on this GPU with these arguments and no others.

    Raises EngineRefuses for an argument that this version refuses whatever the memory and that leaves no layout; what
    else it refuses is in `violations`.
    """
    problems = check_pins(pins, version)
    wrong = {problem.key for problem in problems if problem.code in ("argument-value", "kv-dtype-unknown")}
    pins = normalise({name: value for name, value in pins.items() if name not in wrong})
    _check_architecture(model, version)
    tp, pp, dcp = parallel_sizes(model, version, pins)
    dtype = _dtype(model, gpu, pins)
    max_model_len = _max_model_len(model, pins)
    chunked = _default(pins, "enable_chunked_prefill", not model.is_encoder_decoder)
    prefix = _default(pins, "enable_prefix_caching", prefix_caching(model, version))
    if gpu.is_cpu and model.uses_mla:
        chunked = prefix = False
    seqs, batched = batch_sizes(gpu, version, pins, max_model_len, chunked=chunked, ranks=tp * pp)
    asynchronous = schedules_ahead(model, gpu, pins)
    kv_dtype = str(pins.get("kv_cache_dtype") or "auto")
    engine = Engine(
        version=version,
        gpu=gpu,
        max_model_len=max_model_len,
        gpu_memory_utilization=float(_default(pins, "gpu_memory_utilization", 0.92 if version >= (0, 20) else 0.9)),
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        kv_cache_dtype=kv_dtype,
        cache_dtype=cache_dtype(model, gpu, version, kv_dtype),
        dtype=dtype,
        block_size=pins.get("block_size"),
        tensor_parallel_size=tp,
        pipeline_parallel_size=pp,
        data_parallel_size=int(pins.get("data_parallel_size") or 1),
        decode_context_parallel_size=dcp,
        enable_expert_parallel=bool(pins.get("enable_expert_parallel")),
        enable_prefix_caching=bool(prefix),
        enable_chunked_prefill=bool(chunked),
        enforce_eager=bool(pins.get("enforce_eager")),
        async_scheduling=asynchronous,
        disable_hybrid_kv_cache_manager=bool(pins.get("disable_hybrid_kv_cache_manager")),
        num_gpu_blocks_override=pins.get("num_gpu_blocks_override"),
        kv_cache_memory_bytes=pins.get("kv_cache_memory_bytes"),
        quantization=pins.get("quantization"),
        mamba_cache_mode=mamba_mode(model, version, prefix=bool(prefix)),
        mamba_cache_dtype=str(pins.get("mamba_cache_dtype") or "auto"),
        mamba_ssm_cache_dtype=ssm_dtype(model, gpu, version, pins),
        num_speculative_tokens=_speculative_tokens(pins),
        max_in_flight_tokens=batched * concurrent_batches(model, gpu, version, pp, asynchronous=asynchronous),
        pinned=dict(pins),
    )
    return msgspec.structs.replace(engine, violations=problems + _violations(model, engine))


def _default(pins: dict[str, Any], key: str, default: Any) -> Any:
    value = pins.get(key)
    return default if value is None else value


def _check_architecture(model: ModelSpec, version: Version) -> None:
    if model.since is not None and version < model.since:
        raise EngineRefuses(
            "architecture-too-new",
            f"vLLM {version} does not have {model.architecture} yet",
            hint=f"use vLLM {'.'.join(map(str, model.since))} or newer",
            source="vLLM model_executor/models/registry.py",
        )
    if model.until is not None and version >= model.until:
        raise EngineRefuses(
            "architecture-removed",
            f"vLLM {version} no longer has {model.architecture}",
            hint=f"use a vLLM before {'.'.join(map(str, model.until))}",
            source="vLLM model_executor/models/registry.py",
        )
    if model.ties_embeddings and model.architecture in _NEVER_TIES:
        raise EngineRefuses(
            "tied-embeddings",
            f"{model.architecture} has an output head of its own, and the config says tie_word_embeddings: true",
            hint="give the checkpoint's own config",
            source="vLLM model_executor/models/gpt_j.py; transformers DbrxConfig",
        )
    if (model.is_hybrid or model.is_attention_free) and version < _STATES_ON_V1:
        raise EngineRefuses(
            "states-on-v0",
            f"vLLM {version} runs models with recurrent states on its old engine only",
            hint="use vLLM 0.10 or newer",
            source="vLLM 0.9 engine/arg_utils.py: _is_v1_supported_oracle",
        )


def _dtype(model: ModelSpec, gpu: Gpu, pins: dict[str, Any]) -> str:
    asked = pins.get("dtype")
    has_bf16 = gpu.compute_capability is None or gpu.compute_capability >= (8, 0)
    if asked is None or str(asked).lower() == "auto":
        return auto_dtype(
            model.config_dtype,
            has_bf16=has_bf16,
            has_fp16=model.model_type not in NO_FLOAT16,
            prefers_fp16=model.is_pooling,
        )
    name = normal_dtype(str(asked))
    if name is None:
        raise EngineRefuses("dtype", f"dtype {asked!r} is not known", hint="use auto, bfloat16, float16 or float32")
    if name == "bfloat16" and not has_bf16:
        raise EngineRefuses(
            "dtype-bf16-capability",
            f"{gpu.name} has no bfloat16; it needs compute capability 8.0",
            hint=f"set dtype: {'float32' if model.model_type in NO_FLOAT16 else 'half'}",
            source="vLLM platforms/cuda.py: check_if_supports_dtype",
        )
    if name == "float16" and model.model_type in NO_FLOAT16:
        raise EngineRefuses(
            "dtype-float16-model",
            f"{model.model_type} models are unstable in float16, and vLLM refuses it",
            hint="set dtype: bfloat16, or float32 on a GPU without it",
            source="vLLM config/model.py: _FLOAT16_NOT_SUPPORTED_MODELS",
        )
    return name


def _max_model_len(model: ModelSpec, pins: dict[str, Any]) -> int:
    asked = pins.get("max_model_len")
    if asked is None or asked in (-1, "auto"):
        return model.default_max_model_len
    return int(asked)


def _violations(model: ModelSpec, engine: Engine) -> tuple[Violation, ...]:
    found = [*scheduling_violations(engine.pinned)]
    found += state_violations(engine.mamba_cache_mode, engine.version, engine.pinned)
    longest = model.max_length
    if engine.max_model_len > longest.tokens and not engine.pinned.get("hf_overrides"):
        found.append(
            Violation(
                code="max-model-len-beyond-model",
                key="max_model_len",
                message=f"max_model_len {engine.max_model_len} is more than the {longest.tokens} this model was made "
                f"for ({longest.key})",
                hint=f"at most {longest.tokens}; a longer context (rope scaling) is a decision of its own",
                source="vLLM config/model.py: _get_and_verify_max_len",
            )
        )
    return tuple(found)


def _speculative_tokens(pins: dict[str, Any]) -> int:
    config = pins.get("speculative_config")
    tokens = config.get("num_speculative_tokens") if isinstance(config, dict) else None
    return int(tokens) if isinstance(tokens, int) else 0
