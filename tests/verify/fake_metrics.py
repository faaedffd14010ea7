"""The fake server's /metrics, with the names, types and labels of vLLM 0.32 (v1/metrics/loggers.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.verify.fake_vllm import FakeServer

OLD_NAMES = {
    "vllm:kv_cache_usage_perc": "vllm:gpu_cache_usage_perc",
    "vllm:prefix_cache_queries": "vllm:gpu_prefix_cache_queries",
    "vllm:prefix_cache_hits": "vllm:gpu_prefix_cache_hits",
    "vllm:inter_token_latency_seconds": "vllm:time_per_output_token_seconds",
}
BUCKETS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0)


def exposition(server: FakeServer) -> str:
    """All of it as text."""
    lines: list[str] = []
    labels = f'engine="0",model_name="{server.options.model}"'
    engine, c = server.engine, server.engine.counters
    running = max(len(engine.running), 1 if server.has("stuck_running") else 0)
    usage = "NaN" if server.has("metrics_nan") else repr(engine.pool.usage)
    hits = c.prefix_queries * 0.5 if server.has("cache_hits") else c.prefix_hits
    _process(lines, server)
    _gauge(lines, "vllm:num_requests_running", [(labels, running)])
    _gauge(lines, "vllm:num_requests_waiting", [(labels, len(engine.waiting))])
    reasons = [("capacity", len(engine.waiting)), ("deferred", 0)]
    _gauge(lines, "vllm:num_requests_waiting_by_reason", [(f'{labels},reason="{r}"', n) for r, n in reasons])
    _gauge(lines, "vllm:kv_cache_usage_perc", [(labels, usage)])
    _counter(lines, "vllm:prefix_cache_queries", [(labels, c.prefix_queries)])
    _counter(lines, "vllm:prefix_cache_hits", [(labels, hits)])
    if not server.has("no_preemption_metric"):
        _counter(lines, "vllm:num_preemptions", [(labels, c.preemptions)])
    _counter(lines, "vllm:prompt_tokens", [(labels, c.prompt_tokens)])
    _counter(lines, "vllm:generation_tokens", [(labels, c.generation_tokens)])
    _counter(
        lines,
        "vllm:request_success",
        [(f'engine="0",finished_reason="{r}",{labels[11:]}', n) for r, n in c.done.items()],
    )
    model = labels[11:]
    _counter(lines, "vllm:admission_rejections", [(f'{model},reason="{r}"', n) for r, n in c.rejections.items()])
    _histogram(lines, "vllm:iteration_tokens_total", labels, c.iterations, c.iteration_tokens)
    _histogram(lines, "vllm:time_to_first_token_seconds", labels, *c.ttft)
    _histogram(lines, "vllm:inter_token_latency_seconds", labels, *c.itl)
    _histogram(lines, "vllm:request_time_per_output_token_seconds", labels, *c.tpot)
    _histogram(lines, "vllm:e2e_request_latency_seconds", labels, *c.e2e)
    _histogram(lines, "vllm:request_queue_time_seconds", labels, *c.queue)
    _info(lines, server)
    text = "\n".join(lines) + "\n"
    if server.has("metrics_old_names"):
        for new, old in OLD_NAMES.items():
            text = text.replace(new, old)
    return text.replace("vllm:", "other:") if server.has("metrics_unknown_names") else text


def _process(lines: list[str], server: FakeServer) -> None:
    _gauge(lines, "process_resident_memory_bytes", [("", server.resident)])
    _gauge(lines, "process_start_time_seconds", [("", server.process_start)])


def _info(lines: list[str], server: FakeServer) -> None:
    o = server.options
    tokens = o.num_blocks * o.block_size
    labels = {
        "block_size": o.block_size,
        "cache_dtype": "auto",
        "enable_prefix_caching": o.prefix_caching,
        "engine": 0,
        "gpu_memory_utilization": 0.9,
        "kv_cache_max_concurrency": tokens / o.max_model_len,
        "kv_cache_size_tokens": tokens,
        "num_cpu_blocks": None,
        "num_gpu_blocks": o.num_blocks,
        "sliding_window": None,
    }
    text = ",".join(f'{name}="{value}"' for name, value in labels.items())
    _gauge(lines, "vllm:cache_config_info", [(text, 1.0)])


def _gauge(lines: list[str], name: str, samples: list[tuple[str, object]]) -> None:
    lines += [f"# HELP {name} Of the fake server.", f"# TYPE {name} gauge"]
    lines += [_sample(name, labels, value) for labels, value in samples]


def _counter(lines: list[str], name: str, samples: list[tuple[str, float]]) -> None:
    lines += [f"# HELP {name}_total Of the fake server.", f"# TYPE {name}_total counter"]
    lines += [_sample(f"{name}_total", labels, value) for labels, value in samples]


def _histogram(lines: list[str], name: str, labels: str, count: float, total: float) -> None:
    lines += [f"# HELP {name} Of the fake server.", f"# TYPE {name} histogram"]
    for bound in BUCKETS:
        lines.append(_sample(f"{name}_bucket", f'{labels},le="{bound}"', count if bound > 1 else 0))
    lines.append(_sample(f"{name}_bucket", f'{labels},le="+Inf"', count))
    lines += [_sample(f"{name}_count", labels, count), _sample(f"{name}_sum", labels, total)]


def _sample(name: str, labels: str, value: object) -> str:
    number = value if isinstance(value, str) else repr(float(value))  # type: ignore[arg-type]
    return f"{name}{{{labels}}} {number}" if labels else f"{name} {number}"
