"""What a run is held against: the workload's `gate` and `slo`, its load, and what holds where it says nothing."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from advisor.workload import WorkloadFile
from verify.judge.types import Level

SHORTENED = Literal["error", "warn", "allow"]

SEND_LAG_S = 0.05
SEND_LAG_OF_TTFT = 0.1  # of the strictest objective for the first token
CLIENT_CPU_FRACTION = 0.7
GPU_FREE_BYTES = 512 * 1024**2  # vllm#27466: below it one unusual request more ends the engine
HIT_RATE_MARGIN = 0.01  # vllm#53920 warns from one point
HIT_RATE_SHORT = 0.1  # of the declared rate, for what falls on block borders and is evicted
HANG_S = 120.0


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """The names are the workload file's keys; None where it gives none and nothing holds by default.

    `objectives` are the `slo` keys given, in seconds. `levels` are those that differ from the default. `load` is the
    whole of `workload:`, for what was run cannot be judged as another load.
    """

    concurrency: int
    requests_per_s: float | None = None
    shared_prefix_tokens: int = 0
    load: dict[str, Any] = {}
    objectives: dict[str, float] = {}
    levels: dict[str, Level] = {}
    over_limit: SHORTENED = "warn"
    preemptions_max: int = 0
    success_rate_min: float | None = None
    failures_max: int | None = None
    kv_peak_max: float = 1.0
    kv_full_s_max: float | None = None
    kv_after_drain_max: float = 0.0
    waiting_max: int | None = None
    waiting_slope_per_s_max: float = 0.0
    drain_s_max: float | None = None
    blocks_difference_fraction_max: float | None = None
    length_difference_fraction_max: float = 0.0
    prefix_cache_hit_rate_min: float | None = None
    prefix_cache_hit_rate_max: float | None = None
    send_lag_p99_s_max: float | None = None
    client_cpu_fraction_max: float = CLIENT_CPU_FRACTION
    gpu_memory_free_bytes_min: int | None = None
    stall_s_max: float | None = None
    slo_attainment_min: float | None = None

    @property
    def lag_limit_s(self) -> float:
        """How late a request may be sent for the run to say something of the server."""
        if self.send_lag_p99_s_max is not None:
            return self.send_lag_p99_s_max
        strictest = min((s for name, s in self.objectives.items() if name.startswith("ttft_")), default=None)
        return SEND_LAG_S if strictest is None else min(SEND_LAG_S, SEND_LAG_OF_TTFT * strictest)

    @property
    def failures_allowed(self) -> int | None:
        """Failed requests that are no failure of the run; None where only a share is bounded."""
        return 0 if self.failures_max is None and self.success_rate_min is None else self.failures_max

    def level(self, check: str) -> Level:
        """How much a check counts that does not pass."""
        return self.levels.get(check, "warn" if check in _WARN else "error")


_WARN = frozenset({"memory_steady", "kv_use_as_planned"})


def thresholds_of(workload: WorkloadFile) -> Thresholds:
    """The thresholds of a workload file."""
    load = workload.workload
    objectives = {
        name: float(value) for name, value in msgspec.structs.asdict(workload.slo).items() if value is not None
    }  # fmt: skip
    return Thresholds(
        concurrency=load.concurrency,
        requests_per_s=load.requests_per_s,
        shared_prefix_tokens=load.shared_prefix_tokens,
        load={name: value for name, value in msgspec.to_builtins(load).items() if value is not None},
        objectives=objectives,
        **workload.gate,
    )
