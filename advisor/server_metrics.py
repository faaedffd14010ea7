"""A server's /metrics as figures: names by release, engines put together, absent is None and never 0.

Names: vLLM v1/metrics/loggers.py, 0.8 to 0.33; gauges of several engines give the largest, counters their sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.samples import Sample

Kind = Literal["gauge", "counter"]

# figure -> how engines are put together, and its names, the newest first (a counter's `_total` may be left out)
ALIASES: dict[str, tuple[Kind, tuple[str, ...]]] = {
    "running": ("gauge", ("vllm:num_requests_running",)),
    "waiting": ("gauge", ("vllm:num_requests_waiting",)),
    "kv_usage": ("gauge", ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")),
    "preemptions": ("counter", ("vllm:num_preemptions",)),
    "prefix_queries": ("counter", ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries")),
    "prefix_hits": ("counter", ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits")),
    "prompt_tokens": ("counter", ("vllm:prompt_tokens",)),
    "generation_tokens": ("counter", ("vllm:generation_tokens",)),
    "iterations": ("counter", ("vllm:iteration_tokens_total_count",)),
    "iteration_tokens": ("counter", ("vllm:iteration_tokens_total_sum",)),
    "requests_done": ("counter", ("vllm:request_success",)),
    "rejections": ("counter", ("vllm:admission_rejections",)),
    "ttft_sum_s": ("counter", ("vllm:time_to_first_token_seconds_sum",)),
    "ttft_count": ("counter", ("vllm:time_to_first_token_seconds_count",)),
    "tpot_sum_s": (
        "counter",
        (
            *("vllm:inter_token_latency_seconds_sum", "vllm:time_per_output_token_seconds_sum"),
            "vllm:request_time_per_output_token_seconds_sum",
        ),
    ),
    "tpot_count": (
        "counter",
        (
            *("vllm:inter_token_latency_seconds_count", "vllm:time_per_output_token_seconds_count"),
            "vllm:request_time_per_output_token_seconds_count",
        ),
    ),
    "queue_sum_s": ("counter", ("vllm:request_queue_time_seconds_sum",)),
    "queue_count": ("counter", ("vllm:request_queue_time_seconds_count",)),
    "process_start_s": ("gauge", ("process_start_time_seconds",)),
    "resident_bytes": ("gauge", ("process_resident_memory_bytes",)),
}


class ServerMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One reading. Gauges are the largest of all engines, counters the sum; None where the server has no such metric.

    `cache` are the labels of vllm:cache_config_info of the first engine (num_gpu_blocks, block_size, ...), `by_reason`
    finished requests by finish reason, `waiting_by_reason` waiting requests by why. `at_s` is when it was read, on the
    reader's clock.
    """

    at_s: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None  # 0 to 1, cached but free blocks not counted
    preemptions: float | None = None
    prefix_queries: float | None = None  # tokens
    prefix_hits: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    iterations: float | None = None
    iteration_tokens: float | None = None
    requests_done: float | None = None
    rejections: float | None = None
    ttft_sum_s: float | None = None
    ttft_count: float | None = None
    tpot_sum_s: float | None = None
    tpot_count: float | None = None
    queue_sum_s: float | None = None
    queue_count: float | None = None
    process_start_s: float | None = None
    resident_bytes: float | None = None
    engines: int = 0
    cache: dict[str, str] = {}
    by_reason: dict[str, float] = {}
    waiting_by_reason: dict[str, float] = {}

    def cache_int(self, name: str) -> int | None:
        """A whole number among the cache's labels; None where it is absent, "None" or no number."""
        text = self.cache.get(name, "")
        return int(text) if text.isascii() and text.isdigit() else None


def read_metrics(text: str, at_s: float | None = None) -> ServerMetrics:
    """A reading from the text of /metrics. Raises ValueError where it is no Prometheus text."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    except IndexError as error:  # what the parser answers to a line that is cut inside its labels
        raise ValueError(f"not in Prometheus' text format: {error}") from None
    return from_samples(samples, at_s)


def from_samples(samples: Iterable[Sample], at_s: float | None = None) -> ServerMetrics:
    """A reading from parsed samples."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    figures = {name: _figure(kind, names, by_name) for name, (kind, names) in ALIASES.items()}
    infos = by_name.get("vllm:cache_config_info", [])
    return ServerMetrics(
        at_s=at_s,
        engines=len({s.labels.get("engine", "") for s in by_name.get("vllm:num_requests_running", [])}),
        cache=dict(min(infos, key=_engine).labels) if infos else {},
        by_reason=_by_label(_samples("vllm:request_success", by_name), "finished_reason"),
        waiting_by_reason=_by_label(by_name.get("vllm:num_requests_waiting_by_reason", []), "reason"),
        **figures,
    )


def _figure(kind: Kind, names: tuple[str, ...], by_name: Mapping[str, list[Sample]]) -> float | None:
    for name in names:
        values = [s.value for s in _samples(name, by_name) if not math.isnan(s.value)]
        if values:
            return max(values) if kind == "gauge" else sum(values)
    return None


def _samples(name: str, by_name: Mapping[str, list[Sample]]) -> list[Sample]:
    """With and without `_total`: exposition and old releases differ."""
    return by_name.get(name + "_total") or by_name.get(name, [])


def _engine(sample: Sample) -> tuple[int, str]:
    text = sample.labels.get("engine", "")
    return (int(text), "") if text.isascii() and text.isdigit() else (0, text)


def _by_label(samples: list[Sample], label: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for sample in samples:
        if label in sample.labels:
            sums[sample.labels[label]] = sums.get(sample.labels[label], 0.0) + sample.value
    return sums


def grew(before: ServerMetrics, after: ServerMetrics, name: str) -> float | None:
    """How much a counter grew; None where it is absent in either, or went back (the server was started anew)."""
    old, new = getattr(before, name), getattr(after, name)
    if old is None or new is None or new < old:
        return None
    return float(new - old)


def restarted(before: ServerMetrics, after: ServerMetrics) -> bool | None:
    """Whether another process answers than before; None where that cannot be told."""
    if before.process_start_s is not None and after.process_start_s is not None:
        return abs(after.process_start_s - before.process_start_s) > 1.0
    counters = [name for name, (kind, _) in ALIASES.items() if kind == "counter"]
    pairs = [(getattr(before, name), getattr(after, name)) for name in counters]
    return True if any(old is not None and new is not None and new < old for old, new in pairs) else None


def mean(before: ServerMetrics, after: ServerMetrics, name: str) -> float | None:
    """The mean of a histogram over the time between two readings, in its unit; None where nothing was counted."""
    total, count = grew(before, after, f"{name}_sum_s"), grew(before, after, f"{name}_count")
    return None if total is None or not count else total / count
