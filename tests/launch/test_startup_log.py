"""StartupFacts against the figures of public start-ups and of real starts on the CPU, restated here."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.log_lines import read_lines
from launch.startup_facts import Ranged, StartupFacts
from launch.startup_log import facts_of, figures, is_empty, read_startup
from launch.startup_wordings import WORDINGS
from tests.launch.logs import HEALTHY, NAMES, log

# name -> what the log says; a number is the smallest rank's, a pair the smallest and the largest
FIGURES: dict[str, dict[str, Any]] = {
    "healthy-0.6-v0-3090": {
        "version": "0.6.4.post1", "num_blocks": 1952, "num_cpu_blocks": 2048, "concurrency": 1.56,
        "concurrency_at_tokens": 20000, "graphs_gib": 0.32, "total_gib": 23.58, "available_kv_gib": 3.81,
        "non_torch_gib": 0.35, "weights_gib": 14.9888, "ready": True,
    },
    "healthy-0.8.5": {
        "version": "0.8.5", "engine": "V1", "weights_gib": 14.9889, "kv_tokens": 442160, "concurrency": 3.37,
        "max_model_len": 131072, "available_kv_gib": None, "graphs_gib": 0.54, "max_num_batched_tokens": 2048,
    },
    "healthy-0.8.5-v0-t4": {
        "version": "0.8.5.post1", "engine": "V0", "total_gib": 14.74, "gpu_memory_utilization": 0.69,
        "weights_gib": 5.91, "activation_gib": 0.70, "non_torch_gib": 0.03, "graphs_gib": 0.72,
        "available_kv_gib": 3.59, "num_blocks": 1632, "concurrency": 102.0, "max_model_len": 256,
        "quantization": "bitsandbytes", "init_engine_s": 45.05,
    },
    "healthy-0.10.2-hybrid-tp2": {
        "total_gib": 139.81, "free_at_start_gib": 139.21, "requested_gib": 125.83, "weights_gib": 74.28,
        "activation_gib": 5.58, "non_torch_gib": 1.38, "graphs_gib": 2.37, "available_kv_gib": 44.59,
        "kv_tokens": 973760, "num_blocks": 7162, "concurrency": 14.77, "attention_block_size": 544,
        "mamba_padding_percent": 1.49, "tensor_parallel_size": 2, "architecture": "Qwen3NextForCausalLM",
        "max_num_batched_tokens": 8192, "kv_in_use_gib": None, "suggested_kv_bytes": 45174370406,
    },
    "healthy-0.11.0-gpt-oss": {
        "total_gib": 79.18, "weights_gib": 13.47, "torch_peak_gib": 7.38, "non_torch_gib": 0.13, "graphs_gib": 0.39,
        "available_kv_gib": 50.28, "block_size": 128, "non_kv_gib": 20.99, "kv_tokens": None, "consumed_gib": None,
    },
    "healthy-0.11.2-tp4": {
        "weights_gib": 16.9619, "graphs_gib": -0.17, "available_kv_gib": (106.17, 106.23), "kv_tokens": 1391552,
        "concurrency": 169.87, "concurrency_at_tokens": 8192, "tensor_parallel_size": 4,
    },
    "healthy-0.13.0-sliding": {
        "weights_gib": 1.9148, "graphs_gib": -0.22, "available_kv_gib": 25.39, "kv_tokens": 950864,
        "concurrency": 461.21, "padding_layers": 2, "gpu_memory_utilization": 0.95, "hybrid_manager_off": None,
    },
    "healthy-0.16.0": {
        "weights_gib": 27.52, "available_kv_gib": 41.94, "kv_tokens": 274848, "num_blocks": 17178,
        "concurrency": 33.55, "free_at_start_gib": 78.68, "requested_gib": 75.23, "gpu_memory_utilization": 0.95,
    },
    "healthy-0.19.0-tp2-debug": {
        "total_gib": None, "free_at_start_gib": 77.66, "requested_gib": 75.23, "weights_gib": 12.11,
        "torch_peak_gib": 2.03, "non_torch_gib": 2.07, "graphs_gib": 1.03, "graph_pool_gib": 1.03,
        "graphs_estimated_gib": 1.6, "graphs_applied": False, "available_kv_gib": 59.02, "kv_tokens": 773584,
        "num_blocks": 48349, "concurrency": 94.43, "max_num_seqs": 1024, "max_num_batched_tokens": 8192,
        "non_kv_gib": 16.21, "dtype": "bfloat16", "profile_s": 21.40,
    },
    "healthy-0.22.1": {
        "graphs_estimated_gib": 0.36, "graph_pool_gib": 0.32, "graphs_applied": True, "runner": 2,
        "gpu_memory_utilization": 0.82, "utilization_without_graphs": 0.8048, "attention_backend": "FLASH_ATTN",
    },
    "healthy-0.26.0-hybrid": {
        "total_gib": 23.56, "free_at_start_gib": 23.05, "requested_gib": 22.9, "weights_gib": 14.26,
        "attention_block_size": 1056, "kv_in_use_gib": 6.81, "gpu_memory_utilization": 0.972,
    },
    "healthy-0.29.0": {
        "consumed_gib": 57.31, "activation_gib": 3.01, "non_torch_gib": None, "graphs_gib": 0.83,
        "kv_tokens": 127104, "concurrency": 3.88, "concurrency_at_tokens": 32768, "kv_cache_layout": "LBNHC",
        "suggested_kv_bytes": 11411652608,
    },
    "healthy-0.32.0": {
        "version": "0.32.0", "device": "GPU", "kv_tokens": 457930, "concurrency": 55.9, "block_size": 16,
        "init_engine_s": 38.77, "ready": True, "quantization": None,
    },
    "healthy-0.32.0-cpu": {
        "version": "0.32.0", "device": "CPU", "kv_tokens": 65536, "concurrency": 16.0, "concurrency_at_tokens": 4096,
        "cpu_kv_gib": 0.06, "cpu_node_gib": 11.09, "weights_gib": None, "available_kv_gib": None, "graphs_gib": None,
        "max_model_len": 4096, "enforce_eager": True, "dtype": "bfloat16", "init_engine_s": 0.10, "num_blocks": None,
    },
    "healthy-0.32.0-cpu-debug": {
        "num_blocks": 512, "kv_tokens": 65536, "max_num_batched_tokens": 2048, "max_num_seqs": 128,
    },
    "healthy-0.32.0-cpu-autofit": {
        "auto_fit_from": 8192, "auto_fit_to": 3968, "max_model_len": 3968, "kv_tokens": 4096, "concurrency": 1.03,
    },
    "p10-wsl-5090": {"free_at_start_gib": 30.12, "total_gib": 31.84, "requested_gib": 30.25, "ready": None},
    "nvfp4-wsl-minus-3.31": {"available_kv_gib": -3.31, "graphs_estimated_gib": 0.42, "max_num_seqs": 2},
    "p34-connector": {"hybrid_manager_off": True},
}  # fmt: skip


def plain(value: Any) -> Any:
    return (value.low, value.high) if isinstance(value, Ranged) else value


@pytest.mark.parametrize("name", FIGURES)
def test_a_log_gives_the_figures_it_prints(name: str) -> None:
    facts = read_startup(log(name))
    for field, said in FIGURES[name].items():
        found = plain(getattr(facts, field))
        expected = said if isinstance(said, tuple) or not isinstance(found, tuple) else (said, said)
        assert found == expected, field


@pytest.mark.parametrize("name", HEALTHY)
def test_a_start_that_came_up_is_ready(name: str) -> None:
    facts = read_startup(log(name))
    assert facts.ready
    assert not is_empty(facts)
    assert facts.release is not None or name == "healthy-0.6-v0-3090"


def test_at_least_ten_healthy_starts_of_all_ages_are_kept() -> None:
    assert len(HEALTHY) >= 10


def test_every_rank_is_kept() -> None:
    facts = read_startup(log("healthy-0.11.2-tp4"))
    assert facts.available_kv_gib is not None
    assert list(facts.available_kv_gib.ranks.values()) == [106.17, 106.23, 106.23, 106.17]
    assert facts.smallest_kv_gib == 106.17


def test_engines_of_data_parallel_are_not_mixed_up() -> None:
    lines = [
        f"(EngineCore_DP{i} pid=7) INFO 01-01 00:00:00 [kv_cache_utils.py:1] GPU KV cache size: {n} tokens"
        for i, n in ((0, "10,000"), (1, "12,000"))
    ]
    tokens = read_startup(lines).kv_tokens
    assert tokens is not None
    assert (tokens.low, tokens.high) == (10000, 12000)


def test_only_the_last_start_of_a_log_counts() -> None:
    facts = read_startup([*log("healthy-0.11.2-tp4"), *log("healthy-0.8.5")])
    assert (facts.version, facts.available_kv_gib) == ("0.8.5", None)


def test_what_no_log_says_is_none_everywhere() -> None:
    facts = read_startup(["nothing of a start in here"])
    assert facts == StartupFacts()
    assert is_empty(facts)
    assert all(getattr(facts, name) is None for name in StartupFacts.__struct_fields__)


def test_arguments_that_are_no_literals_are_read_as_far_as_they_go() -> None:
    line = (
        "non-default args: {'model': 'a/b', 'max_model_len': 8192, 'compilation_config': <object at 0x7f>, "
        "'enforce_eager': True, 'gpu_memory_utilization': 0.85}"
    )
    facts = read_startup([line])
    assert facts.args == {"model": "a/b", "max_model_len": 8192, "enforce_eager": True, "gpu_memory_utilization": 0.85}
    assert (facts.enforce_eager, facts.gpu_memory_utilization) == (True, 0.85)


def test_a_build_from_source_has_no_release() -> None:
    facts = read_startup(["vLLM API server version 0.1.dev1+gd56e95223"])
    assert facts.version == "0.1.dev1+gd56e95223"
    assert facts.release is None
    assert read_startup(["vLLM API server version 0.19.2rc1.dev8"]).release == (0, 19, 2)


@pytest.mark.parametrize("wording", WORDINGS, ids=lambda w: w.hint.strip())
def test_a_wording_holds_its_hint_and_names_fields(wording: Any) -> None:
    kinds = {group.split("__")[0] for group in wording.pattern.groupindex}
    assert kinds <= set(StartupFacts.__struct_fields__)
    assert wording.versions


def numbers_in(text: str) -> set[float]:
    plain_text = text.replace(",", "")
    return {float(n) for n in re.findall(r"\d+(?:\.\d+)?", plain_text)}


@given(st.lists(st.text(max_size=200), max_size=8))
def test_no_text_makes_a_number_that_is_not_in_it(lines: list[str]) -> None:
    facts = read_startup(lines)
    assert {abs(figure) for figure in figures(facts)} <= numbers_in("\n".join(lines))


PIECES = st.sampled_from(
    [
        "Available KV cache memory: ", "GPU KV cache size: ", " GiB", "-", "9", "12,345", "4.0.1", " tokens", "x",
        "Maximum concurrency for ", " tokens per request: ", "non-default args: {", "'a': ", "}", "(", "/", ")",
        "Free memory on device cuda:0 (", " on startup. Desired GPU memory utilization is (", "Model loading took ",
        "version 0.", "Initializing a V1 LLM engine (v", ") with config: ", "max_seq_len=", "1e9", "nan", "inf",
        "# cuda blocks: ", ", # CPU blocks: ", "Namespace(", "model='", "INFO 01-01 00:00:00 [a.py:1] ",
    ]
)  # fmt: skip


@given(st.lists(st.lists(PIECES, max_size=12).map("".join), max_size=6))
def test_broken_lines_make_no_number_either(lines: list[str]) -> None:
    facts = facts_of(read_lines(lines))
    assert {abs(figure) for figure in figures(facts)} <= numbers_in("\n".join(lines))


@given(st.sampled_from(NAMES), st.integers(0, 20000), st.integers(0, 20000))
def test_a_log_cut_anywhere_makes_no_number_either(name: str, start: int, length: int) -> None:
    text = "\n".join(log(name))[start : start + length]
    facts = read_startup(text.split("\n"))
    assert {round(abs(figure), 9) for figure in figures(facts)} <= {round(n, 9) for n in numbers_in(text)}
