"""/metrics of all releases as the same figures; absent is None."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.server_metrics import ALIASES, ServerMetrics, grew, mean, read_metrics, restarted

NEW = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 5.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0",model_name="m"} 4.0
vllm:num_preemptions_total{engine="1",model_name="m"} 1.0
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 100.0
# TYPE vllm:prefix_cache_hits counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 40.0
# TYPE vllm:request_success counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 7.0
vllm:request_success_total{engine="1",finished_reason="stop",model_name="m"} 1.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 2.0
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 9.0
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="m"} 12.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 12.0
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 480.0
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 100.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 100.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="m"} 2.5
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="900",num_gpu_blocks_override="None"} 1.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000",num_gpu_blocks_override="None"} 1.0
process_start_time_seconds 1.79608652098e+09
"""
OLD = """\
vllm:num_requests_running{model_name="m"} 3.0
vllm:num_requests_waiting{model_name="m"} 2.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.75
vllm:num_preemptions_total{model_name="m"} 5.0
vllm:gpu_prefix_cache_queries_total{model_name="m"} 100.0
vllm:gpu_prefix_cache_hits_total{model_name="m"} 40.0
vllm:time_per_output_token_seconds_count{model_name="m"} 100.0
vllm:time_per_output_token_seconds_sum{model_name="m"} 2.5
"""


def test_engines_give_the_largest_gauge_and_the_sum_of_counters() -> None:
    read = read_metrics(NEW, at_s=12.5)
    assert (read.running, read.kv_usage, read.preemptions, read.engines) == (5.0, 0.75, 5.0, 2)
    assert (read.iterations, read.iteration_tokens) == (12.0, 480.0)
    assert read.by_reason == {"stop": 8.0, "length": 2.0}
    assert read.waiting_by_reason == {"capacity": 2.0, "deferred": 0.0}
    assert read.requests_done == 10.0
    assert read.at_s == 12.5


def test_the_first_engine_s_cache_is_shown() -> None:
    read = read_metrics(NEW)
    assert (read.cache_int("num_gpu_blocks"), read.cache_int("block_size")) == (1000, 16)
    assert read.cache_int("num_gpu_blocks_override") is None
    assert read.cache_int("no_such_label") is None


def test_old_names_give_the_same_figures() -> None:
    old, new = read_metrics(OLD), read_metrics(NEW)
    for name in ("kv_usage", "prefix_queries", "prefix_hits", "preemptions", "tpot_sum_s", "tpot_count"):
        assert getattr(old, name) == getattr(new, name), name


def test_counters_may_come_without_total() -> None:
    assert read_metrics("vllm:num_preemptions 5.0\n").preemptions == 5.0


def test_absent_is_none_and_never_zero() -> None:
    read = read_metrics("process_start_time_seconds 5.0\n")
    assert all(getattr(read, name) is None for name in ALIASES if name != "process_start_s")
    assert read.engines == 0


def test_not_a_number_is_no_figure() -> None:
    assert read_metrics("vllm:kv_cache_usage_perc NaN\n").kv_usage is None


def test_a_text_that_is_no_metrics_is_an_error() -> None:
    for text in ("<html>not found</html>", "{, =# TYPE "):
        with pytest.raises(ValueError, match=r".+"):
            read_metrics(text)


def test_a_counter_s_growth() -> None:
    before, after = ServerMetrics(preemptions=2.0), ServerMetrics(preemptions=7.0)
    assert grew(before, after, "preemptions") == 5.0
    assert grew(after, before, "preemptions") is None
    assert grew(ServerMetrics(), after, "preemptions") is None


def test_a_mean_needs_something_counted() -> None:
    before = ServerMetrics(tpot_sum_s=1.0, tpot_count=10.0)
    assert mean(before, ServerMetrics(tpot_sum_s=2.0, tpot_count=30.0), "tpot") == 0.05
    assert mean(before, before, "tpot") is None


def test_another_process_is_told_by_its_start_or_a_counter_that_fell() -> None:
    assert restarted(ServerMetrics(process_start_s=1.0), ServerMetrics(process_start_s=1.0)) is False
    assert restarted(ServerMetrics(process_start_s=1.0), ServerMetrics(process_start_s=900.0)) is True
    assert restarted(ServerMetrics(preemptions=5.0), ServerMetrics(preemptions=1.0)) is True
    assert restarted(ServerMetrics(preemptions=5.0), ServerMetrics()) is None


@given(st.text(max_size=300))
def test_any_text_is_metrics_or_a_value_error(text: str) -> None:
    try:
        read = read_metrics(text)
    except ValueError:
        return
    assert read.engines >= 0
