"""What the user wrote: the load, the model, the GPU, the policy, the pins. Reading it is in workload_yaml."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles of a token count, not falling; at least one of p95 and max is given."""

    p50: int | None = None
    p90: int | None = None
    p95: int | None = None
    p99: int | None = None
    max: int | None = None

    @property
    def at_p95(self) -> int:
        """The p95, or the maximum where only that is known (never less than the truth)."""
        known = self.p95 if self.p95 is not None else self.max
        if known is None:
            raise ValueError("neither p95 nor max is given")
        return known

    @property
    def longest(self) -> int:
        """The largest length that is known: max, else the highest percentile given."""
        return max(v for v in (self.max, self.p99, self.p95, self.p90, self.p50) if v is not None)


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """When requests come, in an open loop.

    `cv` is the coefficient of variation of the gaps (gamma: 1 is Poisson, more comes in bursts). `rates` are pieces
    (from second, requests a second), the first from 0, with Poisson arrivals inside; a last rate of 0 ends the load.
    """

    process: Literal["poisson", "constant", "gamma", "piecewise"] = "poisson"
    cv: float | None = None
    rates: tuple[tuple[float, float], ...] | None = None


class TraceCut(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a trace is replayed, and how fast. Seconds count from the trace's first request.

    `keep_fraction` of the requests are kept, picked at random: a lower rate of the same shape. Times are multiplied by
    `time_scale`: 0.5 doubles the rate, and shortens pauses too. At most `requests_max` are replayed, the first.
    """

    from_s: float = 0.0
    until_s: float | None = None
    keep_fraction: float = 1.0
    time_scale: float = 1.0
    requests_max: int | None = None


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The `workload:` mapping. Lengths are in tokens after the chat template.

    With arrivals in pieces `requests_per_s` is the highest of their rates.
    """

    prompt_tokens: Lengths
    output_tokens: Lengths
    concurrency: int
    requests_per_s: float | None = None
    shared_prefix_tokens: int = 0
    chat_template_tokens: int = 0
    trace: str | None = None
    arrivals: Arrivals | None = None
    trace_cut: TraceCut | None = None


class ModelRef(msgspec.Struct, frozen=True, kw_only=True):
    """The `model:` value: a hub id, catalogue name or directory, with what the user states about it."""

    id: str
    revision: str | None = None
    path: str | None = None
    quantization: str | None = None
    weights_gib_per_gpu: float | None = None


class GpuRef(msgspec.Struct, frozen=True, kw_only=True):
    """The `gpu:` value: a catalogue name, `auto` or `cpu`, with what the user states about it."""

    name: str
    count: int = 1
    memory_gib: float | None = None
    free_gib: float | None = None
    compute_capability: tuple[int, int] | None = None


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """The `slo:` mapping, in seconds; None means no objective."""

    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    ttft_p99_s: float | None = None
    tpot_p50_s: float | None = None
    tpot_p95_s: float | None = None
    tpot_p99_s: float | None = None
    e2e_p95_s: float | None = None
    e2e_p99_s: float | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The `policy:` mapping: what kvadvise may trade."""

    kv_cache_quantization: Literal["never", "ask", "prefer"] = "ask"
    headroom: float = 0.8


class WorkloadFile(msgspec.Struct, frozen=True, kw_only=True):
    """One workload.yaml. `engine` holds pins by vLLM's own argument names; `gate` thresholds for verify."""

    file: str  # as the user named it, for messages
    model: ModelRef
    gpu: GpuRef
    workload: Load
    slo: Slo = Slo()
    policy: Policy = Policy()
    engine: dict[str, Any] = {}
    gate: dict[str, Any] = {}
    name: str | None = None
    description: str | None = None
    origin: str | None = None  # where the percentiles come from, in words
    plan: dict[str, Any] | None = None  # a plan saved beside the workload, kept as written
    lines: dict[str, int] = {}  # dotted key -> 1-based line in the file, for messages of later stages
