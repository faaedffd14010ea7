"""vLLM's engine arguments once its own defaults are filled in, for one model, GPU and version.

Sources: vLLM 0.32 engine/arg_utils.py (get_batch_defaults, _set_default_max_num_seqs_and_batched_tokens_args,
_set_default_chunked_prefill_and_prefix_caching_args), config/vllm.py (max_in_flight_tokens, use_v2_model_runner),
config/model.py, model_executor/models/config.py (per-model hooks); boundaries from layout-by-version.
"""

from __future__ import annotations

from typing import Any

import msgspec

from advisor.arguments import Violation, check_pins, normalise
from advisor.errors import EngineRefuses
from advisor.gpu import Gpu
from advisor.model.dtypes import auto_dtype, normal_dtype
from advisor.model.spec import ModelSpec
from advisor.model_runner import uses_v2_runner
from advisor.units import GIB
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
_MODE_ALL_KINDS = frozenset({"mamba1", "mamba2"})


def resolve_engine(model: ModelSpec, gpu: Gpu, version: Version, pins: dict[str, Any]) -> Engine:
    """Fill in what vLLM `version` would do on this GPU with these arguments and no others.

    Raises EngineRefuses for an argument that this version refuses whatever the memory and that leaves no layout; what
    else it refuses is in `violations`.
    """
    problems = check_pins(pins, version)
    wrong = {problem.key for problem in problems if problem.code in ("argument-value", "kv-dtype-unknown")}
    pins = normalise({name: value for name, value in pins.items() if name not in wrong})
    _check_architecture(model, version)
    tp, pp, dcp = _parallel(model, pins)
    dtype = _dtype(model, gpu, pins)
    max_model_len = _max_model_len(model, pins)
    chunked = _default(pins, "enable_chunked_prefill", not model.is_encoder_decoder)
    prefix = _default(pins, "enable_prefix_caching", _prefix_caching(model, version))
    if gpu.is_cpu and model.uses_mla:
        chunked = prefix = False
    seqs, batched = batch_sizes(gpu, version, pins, max_model_len, chunked=chunked, ranks=tp * pp)
    asynchronous = bool(_default(pins, "async_scheduling", not model.is_pooling)) and not gpu.is_cpu
    kv_dtype = str(pins.get("kv_cache_dtype") or "auto")
    engine = Engine(
        version=version,
        gpu=gpu,
        max_model_len=max_model_len,
        gpu_memory_utilization=float(_default(pins, "gpu_memory_utilization", 0.92 if version >= (0, 20) else 0.9)),
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        kv_cache_dtype=kv_dtype,
        cache_dtype=_cache_dtype(model, gpu, kv_dtype),
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
        mamba_cache_mode=_mamba_mode(model, version, prefix=bool(prefix)),
        mamba_cache_dtype=str(pins.get("mamba_cache_dtype") or "auto"),
        mamba_ssm_cache_dtype=_ssm_dtype(model, version, pins),
        num_speculative_tokens=_speculative_tokens(pins),
        max_in_flight_tokens=batched * _concurrent_batches(model, gpu, version, pp, asynchronous=asynchronous),
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
    if (model.is_hybrid or model.is_attention_free) and version < _STATES_ON_V1:
        raise EngineRefuses(
            "states-on-v0",
            f"vLLM {version} runs models with recurrent states on its old engine only",
            hint="use vLLM 0.10 or newer",
            source="vLLM 0.9 engine/arg_utils.py: _is_v1_supported_oracle",
        )


def _parallel(model: ModelSpec, pins: dict[str, Any]) -> tuple[int, int, int]:
    tp, pp = int(pins.get("tensor_parallel_size") or 1), int(pins.get("pipeline_parallel_size") or 1)
    dcp = int(pins.get("decode_context_parallel_size") or 1)
    if model.num_heads and model.num_heads % tp:
        raise EngineRefuses(
            "tp-heads",
            f"{model.num_heads} attention heads do not divide over tensor_parallel_size {tp}",
            hint="choose a tensor_parallel_size that divides the attention heads, or use pipeline parallelism",
            source="vLLM config/model.py: verify_with_parallel_config",
        )
    if dcp > 1:
        _check_dcp(model, tp, dcp)
    return tp, pp, dcp


def _check_dcp(model: ModelSpec, tp: int, dcp: int) -> None:
    source = "vLLM config/parallel.py and config/model.py: decode_context_parallel_size"
    if tp % dcp:
        raise EngineRefuses(
            "dcp-tp",
            f"tensor_parallel_size {tp} is not a multiple of decode_context_parallel_size {dcp}",
            source=source,
        )
    if model.uses_mla or not model.num_kv_heads:
        return
    if tp <= model.num_kv_heads or dcp > tp // model.num_kv_heads:
        raise EngineRefuses(
            "dcp-kv-heads",
            f"decode_context_parallel_size {dcp} needs tensor_parallel_size of at least "
            f"{dcp} x {model.num_kv_heads} key/value heads",
            source=source,
        )
    if (model.num_heads // model.num_kv_heads) % dcp:
        raise EngineRefuses(
            "dcp-query-heads",
            f"{model.num_heads // model.num_kv_heads} query heads per key/value head do not divide by {dcp}",
            source=source,
        )


def _dtype(model: ModelSpec, gpu: Gpu, pins: dict[str, Any]) -> str:
    asked = pins.get("dtype")
    has_bf16 = gpu.compute_capability is None or gpu.compute_capability >= (8, 0)
    if asked is None or str(asked).lower() == "auto":
        return auto_dtype(model.config_dtype, has_bf16=has_bf16, prefers_fp16=model.is_pooling)
    name = normal_dtype(str(asked))
    if name is None:
        raise EngineRefuses("dtype", f"dtype {asked!r} is not known", hint="use auto, bfloat16, float16 or float32")
    if name == "bfloat16" and not has_bf16:
        raise EngineRefuses(
            "dtype-bf16-capability",
            f"{gpu.name} has no bfloat16; it needs compute capability 8.0",
            hint="set dtype: half",
            source="vLLM platforms/cuda.py: check_if_supports_dtype",
        )
    return name


def _max_model_len(model: ModelSpec, pins: dict[str, Any]) -> int:
    asked = pins.get("max_model_len")
    if asked is None or asked in (-1, "auto"):
        return model.default_max_model_len
    return int(asked)


def _violations(model: ModelSpec, engine: Engine) -> tuple[Violation, ...]:
    found = []
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


def _prefix_caching(model: ModelSpec, version: Version) -> bool:
    if model.is_attention_free or model.is_encoder_decoder:
        return False
    return version >= (0, 28) if model.is_hybrid else True


def batch_sizes(
    gpu: Gpu, version: Version, pins: dict[str, Any], max_model_len: int, *, chunked: bool, ranks: int
) -> tuple[int, int]:
    """(max_num_seqs, max_num_batched_tokens) of the API server: the user's, else vLLM's by device memory and name."""
    batched, seqs = _device_defaults(gpu, version, ranks)
    asked_batched, asked_seqs = pins.get("max_num_batched_tokens"), pins.get("max_num_seqs")
    if asked_seqs is not None:
        seqs = int(asked_seqs)
    if asked_batched is not None:
        batched = int(asked_batched)
        if not chunked and batched < max_model_len:
            raise EngineRefuses(
                "batched-tokens-below-length",
                f"max_num_batched_tokens {batched} is smaller than max_model_len {max_model_len} while chunked prefill "
                "is off",
                hint="raise max_num_batched_tokens, lower max_model_len, or leave chunked prefill on",
                source="vLLM config/scheduler.py: verify_max_model_len",
            )
    else:
        if not chunked:
            batched = max(max_model_len, batched)
        batched = min(seqs * max_model_len, batched)
    if asked_seqs is None:
        seqs = min(seqs, batched)
    if batched < seqs:
        raise EngineRefuses(
            "batched-tokens-below-seqs",
            f"max_num_batched_tokens {batched} must be at least max_num_seqs {seqs}",
            hint=f"set max_num_batched_tokens to {seqs} or more, or lower max_num_seqs",
            source="vLLM config/scheduler.py",
        )
    return seqs, batched


def _device_defaults(gpu: Gpu, version: Version, ranks: int) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) by device."""
    if gpu.is_cpu:
        return 2048 * ranks, 128 * ranks
    total = gpu.total_bytes.value
    if version >= (0, 28) and total >= 160 * GIB:
        return 16384, 1024
    small_gb10 = version >= (0, 33) and gpu.compute_capability == (12, 1)
    spared = "a100" in gpu.device_name.lower() and version >= (0, 9)
    if total >= 70 * GIB and not spared and not small_gb10:
        return 8192, 1024
    # up to about 0.8.3 every GPU had 1024 (vllm#15105 and one public log)
    return 2048, 1024 if version < (0, 8, 4) else 256


def _concurrent_batches(model: ModelSpec, gpu: Gpu, version: Version, pp: int, *, asynchronous: bool) -> int:
    """Batches that may hold blocks at once; before 0.26 vLLM reserved for one, whatever ran."""
    if version < (0, 26):
        return 1
    if not asynchronous:
        return pp
    second_runner = not gpu.is_cpu and uses_v2_runner(
        version,
        model.architecture,
        is_moe=bool(model.num_experts),
        is_quantized=model.quantization.method is not None,
        is_hybrid=model.is_hybrid,
        is_pooling=model.is_pooling,
    )
    if second_runner:
        return pp + 1
    return 2 if pp <= 1 else pp


def _cache_dtype(model: ModelSpec, gpu: Gpu, asked: str) -> str:
    """What `auto` becomes by the checkpoint and the model's own hook; sparse MLA has a packed fp8 layout of its own."""
    resolved = asked
    if asked == "auto":
        resolved = model.quantization.kv.dtype or "auto"
    cap = gpu.compute_capability or (0, 0)
    if model.architecture == "GlmMoeDsaForCausalLM" and resolved == "auto" and cap[0] == 10:
        resolved = "fp8_e4m3"
    if model.packs_pages:
        return "fp8_ds_mla" if resolved in ("auto", "fp8", "fp8_e4m3", "fp8_ds_mla") else resolved
    if model.is_sparse_mla:
        if resolved == "bfloat16":
            return "auto"
        packed = resolved in ("fp8", "fp8_e4m3") and cap[0] != 10
        return "fp8_ds_mla" if packed or (cap[0] == 12 and resolved == "auto") else resolved
    return resolved


def _mamba_mode(model: ModelSpec, version: Version, *, prefix: bool) -> str:
    """none, align (state at block ends) or all (a state for every block), by version."""
    if not (model.is_hybrid or model.is_attention_free) or not prefix:
        return "none"
    if version >= (0, 28):
        return "align"
    kinds = {getattr(c, "kind", "") for layer in model.layers for c in layer.caches}
    if kinds & _MODE_ALL_KINDS:
        return "all"
    return "align" if version >= (0, 15) else "none"


def _ssm_dtype(model: ModelSpec, version: Version, pins: dict[str, Any]) -> str:
    asked = pins.get("mamba_ssm_cache_dtype")
    if asked is not None and asked != "auto":
        return str(asked)
    if model.architecture.startswith("NemotronH"):
        return (model.state_dtype or "float32") if version >= (0, 13) else "auto"
    if model.architecture.startswith("Qwen3_5"):
        return model.state_dtype or "auto"
    return "auto"


def _speculative_tokens(pins: dict[str, Any]) -> int:
    config = pins.get("speculative_config")
    tokens = config.get("num_speculative_tokens") if isinstance(config, dict) else None
    return int(tokens) if isinstance(tokens, int) else 0
