"""vLLM's engine arguments once its own defaults are filled in, for one model, GPU and version."""

from __future__ import annotations

from typing import Any

import msgspec

from advisor.gpu import Gpu
from advisor.model.spec import ModelSpec
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
    cache_dtype: str  # what it becomes: "bfloat16", "float16", "fp8_e4m3", "fp8_ds_mla", ...
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
    attention_backend: str | None = None
    quantization: str | None = None
    mamba_cache_mode: str = "none"
    mamba_block_size: int | None = None
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    num_speculative_tokens: int = 0
    max_in_flight_tokens: int = 0  # tokens scheduled and not yet settled: what sliding layers keep besides the window
    pinned: dict[str, Any] = {}


def resolve_engine(model: ModelSpec, gpu: Gpu, version: Version, pins: dict[str, Any]) -> Engine:
    """Fill in what vLLM `version` would do on this GPU with these arguments and no others.

    Raises EngineRefuses for an argument that this version refuses whatever the memory, InvalidInput for one it does
    not have.
    """
    raise NotImplementedError
