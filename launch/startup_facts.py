"""What a start said of itself: figures as vLLM printed them, each None where the log does not say."""

from __future__ import annotations

from typing import Any

import msgspec

from advisor.versions import Version, parse_version


class Ranged(msgspec.Struct, frozen=True):
    """One figure of every rank (or engine) that printed it: the smallest, the largest, and each by its process tag."""

    low: float
    high: float
    ranks: dict[str, float] = {}

    @classmethod
    def of(cls, ranks: dict[str, float]) -> Ranged:
        """The span of one figure over the processes that printed it (at least one)."""
        return cls(min(ranks.values()), max(ranks.values()), dict(ranks))


class StartupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One start, as its log tells it. Sizes in GiB are as printed: two decimals, so true to 0.005 GiB.

    None is "not printed", never 0. A `Ranged` figure was printed by each rank; the KV pool follows from the rank with
    least room. Where a log holds several starts, these are the last one's.
    """

    # who
    version: str | None = None
    engine: str | None = None  # "V0" or "V1"
    device: str | None = None  # whose KV cache it is: GPU, CPU, XPU, TPU
    model: str | None = None
    architecture: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    args: dict[str, Any] | None = None  # "non-default args"
    args_partial: bool | None = None  # true where some of them could not be read
    runner: int | None = None  # 2 where the second model runner says so
    attention_backend: str | None = None
    kv_cache_layout: str | None = None
    enforce_eager: bool | None = None
    # how much at once
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    gpu_memory_utilization: float | None = None
    # the device before anything is loaded
    total_gib: Ranged | None = None
    free_at_start_gib: Ranged | None = None
    requested_gib: Ranged | None = None
    # what it took
    weights_gib: Ranged | None = None
    load_s: Ranged | None = None
    consumed_gib: Ranged | None = None  # weights and memory outside torch, from 0.27
    activation_gib: Ranged | None = None  # peak of the profile run; from 0.27 with the graph estimate where applied
    torch_peak_gib: Ranged | None = None  # the same without it, from the profile's DEBUG line
    non_torch_gib: Ranged | None = None
    non_kv_gib: Ranged | None = None  # all but the KV cache, from the profile's DEBUG line
    graphs_gib: Ranged | None = None
    graph_pool_gib: Ranged | None = None  # the graphs' own pool, which the estimate is compared with
    graphs_estimated_gib: Ranged | None = None
    graphs_s: Ranged | None = None
    graphs_applied: bool | None = None  # whether the estimate was taken from the KV pool
    utilization_without_graphs: float | None = None
    profile_s: Ranged | None = None
    # the KV cache
    available_kv_gib: Ranged | None = None  # may be negative
    kv_in_use_gib: Ranged | None = None
    explicit_kv_gib: Ranged | None = None  # as kv_cache_memory_bytes asked
    suggested_kv_bytes: Ranged | None = None  # what vLLM would put into kv_cache_memory_bytes for the same budget
    kv_tokens: Ranged | None = None
    concurrency: Ranged | None = None
    concurrency_at_tokens: int | None = None
    num_blocks: Ranged | None = None
    num_blocks_profiled: int | None = None  # what num_gpu_blocks_override replaced
    num_cpu_blocks: int | None = None
    block_size: int | None = None
    attention_block_size: int | None = None
    mamba_padding_percent: float | None = None
    padding_layers: int | None = None
    auto_fit_from: int | None = None
    auto_fit_to: int | None = None
    hybrid_manager_off: bool | None = None
    # the CPU backend
    cpu_kv_gib: Ranged | None = None
    cpu_node_gib: Ranged | None = None
    cpu_consumed_gib: Ranged | None = None
    # the end
    init_engine_s: Ranged | None = None
    compile_s: Ranged | None = None
    ready: bool | None = None

    @property
    def release(self) -> Version | None:
        """The version without its suffix; None where it is not printed or no release (a build from source)."""
        if self.version is None:
            return None
        parsed = parse_version(self.version) if self.version[:1].isdigit() else None
        return parsed if parsed is None or parsed >= (0, 2) else None

    @property
    def smallest_kv_gib(self) -> float | None:
        """The KV pool of the rank with least room, whichever line tells it."""
        for figure in (self.available_kv_gib, self.explicit_kv_gib, self.cpu_kv_gib, self.kv_in_use_gib):
            if figure is not None:
                return figure.low
        return None
