"""Arguments by release, against field reports and vLLM's own source (tools/version_tables.py read it)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.arguments import check_pins, human_integer, normalise
from advisor.versions import parse_version

GOOD = ""


@pytest.mark.parametrize(
    ("name", "value", "version", "code"),
    [
        # P73: swap_space present to 0.17.1, absent from 0.18.0
        ("swap_space", 4, "0.17.1", GOOD),
        ("swap_space", 4, "0.18.0", "argument-removed"),
        ("disable_log_requests", True, "0.16.0", GOOD),
        ("disable_log_requests", True, "0.32.0", "argument-removed"),
        # vllm-facts 1.6: kv_cache_memory_bytes from 0.10.2
        ("kv_cache_memory_bytes", 1 << 30, "0.10.1", "argument-too-new"),
        ("kv_cache_memory_bytes", 1 << 30, "0.10.2", GOOD),
        ("kv_cache_memory_bytes", "5G", "0.32.0", GOOD),
        ("kv_cache_memory", 1 << 30, "0.32.0", "unknown-argument"),
        # vllm-facts 6
        ("max_num_partial_prefills", 2, "0.26.0", GOOD),
        ("max_num_partial_prefills", 2, "0.32.0", "argument-removed"),
        ("max_num_queued_reqs", 100, "0.28.0", "argument-too-new"),
        ("max_num_queued_reqs", 100, "0.29.0", GOOD),
        ("max_num_active_seqs", 16, "0.29.0", "argument-too-new"),
        ("max_num_active_seqs", 16, "0.32.0", GOOD),
        ("watermark", 0.05, "0.22.1", "argument-too-new"),
        ("watermark", 0.05, "0.32.0", GOOD),
        ("calculate_kv_scales", True, "0.26.0", GOOD),
        ("calculate_kv_scales", True, "0.32.0", "argument-removed"),
        ("decode_context_parallel_size", 2, "0.9.2", "argument-too-new"),
        ("decode_context_parallel_size", 2, "0.32.0", GOOD),
        ("attention_backend", "FLASHINFER", "0.11.0", "argument-too-new"),
        ("served_model_name", "chat", "0.32.0", GOOD),
        ("port", 8000, "0.8.5", GOOD),
        ("max_model_length", 8192, "0.32.0", "unknown-argument"),
        ("gpu_mem_util", 0.9, "0.32.0", "unknown-argument"),
        # values
        ("max_model_len", 8192, "0.32.0", GOOD),
        ("max_model_len", -1, "0.32.0", GOOD),
        ("max_model_len", "auto", "0.32.0", GOOD),
        ("max_model_len", "32k", "0.32.0", GOOD),
        ("max_model_len", 0, "0.32.0", "argument-value"),
        ("max_model_len", 8192.5, "0.32.0", "argument-value"),
        ("max_model_len", True, "0.32.0", "argument-value"),
        ("max_num_seqs", -1, "0.32.0", "argument-value"),
        ("max_num_seqs", "many", "0.32.0", "argument-value"),
        ("tensor_parallel_size", 0, "0.32.0", "argument-value"),
        ("block_size", 1.0, "0.32.0", "argument-value"),
        ("enforce_eager", "yes", "0.32.0", "argument-value"),
        ("gpu_memory_utilization", 0.95, "0.32.0", GOOD),
        ("gpu_memory_utilization", 1, "0.32.0", GOOD),
        ("gpu_memory_utilization", 95, "0.32.0", "argument-value"),
        ("gpu_memory_utilization", float("nan"), "0.32.0", "argument-value"),
        ("gpu_memory_utilization", 0, "0.32.0", "argument-value"),
        # config/cache.py: CacheDType of each release
        ("kv_cache_dtype", "auto", "0.8.5", GOOD),
        ("kv_cache_dtype", "fp8", "0.8.5", GOOD),
        ("kv_cache_dtype", "bfloat16", "0.10.2", "kv-dtype-too-new"),
        ("kv_cache_dtype", "bfloat16", "0.11.0", GOOD),
        ("kv_cache_dtype", "int8_per_token_head", "0.19.1", "kv-dtype-too-new"),
        ("kv_cache_dtype", "int8_per_token_head", "0.20.0", GOOD),
        ("kv_cache_dtype", "int4_per_token_head", "0.24.0", "kv-dtype-too-new"),
        ("kv_cache_dtype", "nvfp4", "0.22.1", GOOD),
        ("kv_cache_dtype", "fp-8", "0.32.0", "kv-dtype-unknown"),
        ("kv_cache_dtype", "float32", "0.32.0", "kv-dtype-unknown"),
    ],
)
def test_pin_by_release(name: str, value: Any, version: str, code: str) -> None:
    problems = check_pins({name: value}, parse_version(version))
    assert [p.code for p in problems] == ([code] if code else [])
    assert all(p.key == name and p.hint for p in problems)


def test_every_problem_is_told_at_once() -> None:
    pins = {"swap_space": 4, "max_num_seqs": 0, "no_such_thing": 1, "max_model_len": 4096}
    assert {p.key for p in check_pins(pins, parse_version("0.32.0"))} == {"swap_space", "max_num_seqs", "no_such_thing"}


def test_a_near_miss_is_suggested() -> None:
    (problem,) = check_pins({"max_model_length": 1}, parse_version("0.32.0"))
    assert "max_model_len" in problem.hint


@pytest.mark.parametrize(
    ("text", "number"),
    [("32k", 32_000), ("32K", 32_768), ("5G", 5 << 30), ("5g", 5 * 10**9), ("1.5K", 1536), ("8192", 8192)],
)
def test_sizes_for_people(text: str, number: int) -> None:
    assert human_integer(text) == number
    assert normalise({"max_model_len": text})["max_model_len"] == number


@given(
    name=st.text(max_size=30),
    value=st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
)
def test_no_pin_ends_in_a_traceback(name: str, value: Any) -> None:
    pins = {name: value, "max_model_len": value, "gpu_memory_utilization": value, "kv_cache_dtype": value}
    for problem in check_pins(pins, parse_version("0.32.0")):
        assert problem.code
        assert problem.message
