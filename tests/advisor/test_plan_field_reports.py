"""Cases that people met when they deployed vLLM, with figures anyone can work out again.

The name of each test gives the public thread; the figures are in its text or follow from its shapes.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from advisor.tensor_parallel import allowed_tp
from advisor.units import GIB
from tests.advisor import plan_samples as s


def pool(gib: float) -> dict[str, Any]:
    return {"kv_cache_memory_bytes": round(gib * GIB)}


@pytest.mark.parametrize(
    ("length", "gib", "starts", "concurrency"),
    [(29_000, 2.89, False, 0.82), (20_000, 3.81, True, 1.56)],
)
def test_vllm_10517_the_pool_decides_the_length(length: int, gib: float, starts: bool, concurrency: float) -> None:
    made = s.plan(
        s.LLAMA, s.rtx_3090(), weights_gib=14.99, concurrency=4, engine={"max_model_len": length, **pool(gib)}
    )
    assert made.kv is not None
    assert made.kv.bytes_per_token == 131_072
    assert round(s.known(made.kv.max_concurrency), 2) == concurrency
    assert made.starts is starts
    if not starts:
        assert 23_600 <= s.known(made.kv.capacity_tokens) <= 23_664
        assert "kv-pool-too-small" in s.codes(made)


def test_vllm_10517_a_length_alone_moves_no_activation() -> None:
    short, long = (s.plan(s.LLAMA, s.rtx_3090(), engine={"max_model_len": n}).memory for n in (20_000, 35_000))
    assert short is not None
    assert long is not None
    assert short.activation_bytes == long.activation_bytes


@pytest.mark.parametrize(
    ("version", "device", "longest"),
    [
        pytest.param("0.11.2", "cpu", 37_376, id="block-128"),
        pytest.param("0.11.2", "gpu", 37_440, id="block-16"),
        pytest.param("0.32.0", "cpu", 37_248, id="block-128-null-block-left-out"),
        pytest.param("0.32.0", "gpu", 37_424, id="block-16-null-block-left-out"),
    ],
)
def test_vllm_29233_the_estimate_is_whole_blocks(version: str, device: str, longest: int) -> None:
    gpu = s.cpu(64, 64) if device == "cpu" else s.h100()
    pins = {"vllm_version": version, "max_model_len": 40_960, **pool(4)}
    made = s.plan("Qwen/Qwen3-1.7B", gpu, weights_gib=3.2, concurrency=4, engine=pins)
    assert made.kv is not None
    assert made.kv.bytes_per_token == 114_688
    assert made.kv.bytes_per_request == round(4.375 * GIB)
    assert made.kv.estimated_max_model_len == longest
    assert made.starts is False


def test_vllm_19407_unset_length_of_llama_4() -> None:
    pins = {"vllm_version": "0.13.0", "tensor_parallel_size": 8, "max_model_len": 10_485_760, **pool(88.38)}
    made = s.plan("meta-llama/Llama-4-Scout-17B-16E-Instruct", s.h100(8), weights_gib=26, engine=pins)
    assert made.kv is not None
    assert made.kv.bytes_per_request == 240 * GIB
    assert made.kv.estimated_max_model_len == 3_861_376
    unset = s.plan("meta-llama/Llama-4-Scout-17B-16E-Instruct", s.h100(8), weights_gib=26)
    assert unset.flags["max_model_len"] == 2208
    assert "10485760" in unset.steps[0].reason


def test_weights_of_14_on_24_leave_room_at_09() -> None:
    made = s.plan(s.LLAMA, s.gpu(total=24), weights_gib=14, engine={"gpu_memory_utilization": 0.9}, concurrency=1)
    assert made.outcome == "fits"
    assert made.memory is not None
    assert made.memory.budget_bytes.value == math.ceil(21.6 * GIB)
    assert made.memory.kv_cache_bytes.low > 0
    assert made.kv is not None
    assert made.kv.bytes_per_token == 131_072


@pytest.mark.parametrize(
    ("total", "free", "refused", "ceiling", "at_most"),
    [(31.84, 30.12, 0.95, "0.94", 0.93), (22.05, 19.77, 0.90, "0.89", 0.88)],
)
def test_cognithor_318_free_memory_bounds_the_share(
    total: float, free: float, refused: float, ceiling: str, at_most: float
) -> None:
    device = s.gpu("RTX 5090", total, free, cap=(12, 0))
    pinned = s.plan(s.LLAMA, device, weights_gib=14.99, engine={"gpu_memory_utilization": refused}, concurrency=1)
    assert pinned.starts is False
    assert pinned.outcome == "does_not_fit"
    assert pinned.flags["gpu_memory_utilization"] == refused
    assert f"the largest share that starts is {ceiling}" in s.messages(pinned, "utilization-over-free")
    planned = s.plan(s.LLAMA, device, weights_gib=14.99, concurrency=200)
    assert planned.flags["gpu_memory_utilization"] <= at_most
    assert planned.starts is True


@pytest.mark.parametrize(
    ("model", "rows", "said"), [(s.LLAMA, 1024, "1.47 GiB"), ("Qwen/Qwen2.5-7B-Instruct", 1024, "1.74 GiB")]
)
def test_vllm_29049_sequences_are_cut_to_the_load(model: str, rows: int, said: str) -> None:
    made = s.plan(model, s.h100(), concurrency=40)
    step = made.steps[2]
    assert step.before == rows
    assert 40 <= step.after <= 64
    assert said in step.reason


def test_vllm_29049_a_pinned_batch_is_named() -> None:
    made = s.plan(s.LLAMA, s.h100(), concurrency=40, engine={"max_num_seqs": 1024})
    assert made.flags["max_num_seqs"] == 1024
    assert "1.47 GiB" in s.messages(made, "sampler-warmup")


@pytest.mark.parametrize("dtype", ["fp8", "fp8_e4m3", "fp8_e5m2"])
def test_vllm_47549_no_8_bit_cache_on_turing(dtype: str) -> None:
    made = s.plan("Qwen/Qwen3-1.7B", s.t4(), engine={"kv_cache_dtype": dtype}, concurrency=1)
    assert made.outcome == "invalid"
    assert "kv-fp8-capability" in s.codes(made)
    assert "7.5" in s.messages(made, "kv-fp8-capability")


def test_vllm_1157_bfloat16_becomes_half_on_turing() -> None:
    made = s.plan("Qwen/Qwen3-1.7B", s.t4(), concurrency=1)
    assert "dtype-replaced" in s.codes(made)
    pinned = s.plan("Qwen/Qwen3-1.7B", s.t4(), concurrency=1, engine={"dtype": "bfloat16"})
    assert pinned.outcome == "invalid"
    assert "dtype-bf16-capability" in s.codes(pinned)


def test_llama_8b_does_not_fit_a_t4() -> None:
    assert s.plan(s.LLAMA, s.t4(), weights_gib=14.99, concurrency=1).outcome == "does_not_fit"


def test_vllm_26431_no_e4m3_on_ampere() -> None:
    made = s.plan(s.LLAMA, s.rtx_3090(), prompt=6000, output=500, concurrency=12, weights_gib=14.99)
    assert made.flags["kv_cache_dtype"] in ("auto", "fp8_e5m2")
    assert s.plan(s.LLAMA, s.rtx_3090(), engine={"kv_cache_dtype": "fp8"}).outcome == "invalid"
    pins = {"kv_cache_dtype": "fp8_e5m2"}
    checkpoint = s.plan("Qwen/Qwen3-32B-FP8", s.rtx_3090(4), weights_gib=8.2, engine=pins)
    assert "kv-fp8-e5m2-checkpoint" in s.codes(checkpoint)
    assert checkpoint.outcome == "invalid"
    assert s.plan(s.LLAMA, s.gpu(), engine={"kv_cache_dtype": "fp8"}, concurrency=1).outcome == "fits_with_loss"


def test_llm_d_planner_194_what_8_bits_gain() -> None:
    wide, narrow = (s.plan(s.LLAMA, s.h100(), engine={"kv_cache_dtype": d}) for d in ("auto", "fp8"))
    assert wide.kv is not None
    assert narrow.kv is not None
    assert (wide.kv.bytes_per_token, narrow.kv.bytes_per_token) == (131_072, 65_536)
    assert narrow.kv.num_blocks == pytest.approx(2 * s.known(wide.kv.num_blocks), abs=1)
    assert wide.memory is not None
    assert narrow.memory is not None
    assert wide.memory.weights_bytes == narrow.memory.weights_bytes
    assert wide.memory.activation_bytes == narrow.memory.activation_bytes
    assert "kv-fp8-speed" in s.codes(narrow)


@pytest.mark.parametrize(
    ("version", "batch", "length", "n_bytes"),
    [
        ("0.22.1", 2048, 32_768, 859_176_960),
        ("0.22.1", 8192, 8192, 403_046_400),
        ("0.32.0", 2048, 32_768, 909_508_608),
    ],
)
def test_hf_mem_70_what_a_sliding_layer_costs(version: str, batch: int, length: int, n_bytes: int) -> None:
    pins = {"vllm_version": version, "max_num_batched_tokens": batch, "max_model_len": length}
    made = s.plan(s.SLIDING, s.h100(), prompt=1000, engine=pins)
    assert made.kv is not None
    assert made.kv.bytes_per_request == n_bytes
    assert made.kv.bytes_per_token is None


def test_hf_mem_70_without_the_hybrid_manager_every_layer_is_full() -> None:
    pins = {"max_model_len": 32_768, "disable_hybrid_kv_cache_manager": True}
    made = s.plan(s.SLIDING, s.h100(), engine=pins)
    assert made.kv is not None
    assert made.kv.bytes_per_request == round(1.5 * GIB)
    assert "sliding-as-full" in s.codes(made)


def test_vllm_43308_layers_differ_in_kind() -> None:
    made = s.plan("google/gemma-4-31B", s.a100(), weights_gib=20, engine=pool(50e9 / GIB))
    assert made.kv is not None
    assert made.kv.bytes_per_token is None
    assert {group.kind for group in made.kv.groups} == {"FullAttentionSpec", "SlidingWindowSpec"}


def test_recipes_551_state_blocks_bound_the_sequences() -> None:
    made = s.plan(s.HYBRID, s.h100(4), concurrency=64, engine={"tensor_parallel_size": 4})
    assert made.kv is not None
    assert made.flags["max_num_seqs"] <= int(0.8 * s.known(made.kv.num_blocks_low))
    pins = {"tensor_parallel_size": 4, "max_num_seqs": 1024, **pool(3)}
    refused = s.plan(s.HYBRID, s.h100(4), concurrency=8, engine=pins)
    assert refused.kv is not None
    assert s.known(refused.kv.num_blocks) < 1024
    assert refused.starts is False
    assert refused.outcome == "does_not_fit"
    said = s.messages(refused, "mamba-blocks")
    assert f"max_num_seqs (1024) exceeds the {refused.kv.num_blocks} state blocks" in said
    assert f"at most {int(0.8 * s.known(refused.kv.num_blocks))}" in said


@pytest.mark.parametrize(
    ("model", "sizes"),
    [("Qwen/Qwen2.5-7B-Instruct", (1, 2, 4)), ("Qwen/Qwen2.5-32B-Instruct", (1, 2, 4, 8))],
)
def test_gpustack_2259_sizes_that_divide(model: str, sizes: tuple[int, ...]) -> None:
    assert allowed_tp(s.problem(model).model, limit=16) == sizes


def test_gpustack_2259_three_ranks_are_refused() -> None:
    made = s.plan(s.LLAMA_70B, s.h100(3), engine={"tensor_parallel_size": 3})
    assert made.outcome == "invalid"
    assert made.starts is False
    said = s.messages(made, "tp-heads")
    assert "64 attention heads" in said
    assert "2, 4, 8" in said
    assert "pipeline_parallel_size" in said
    alone = s.plan(s.LLAMA_70B, s.h100(3), weights_gib=44, prompt=500, concurrency=4)
    assert (alone.flags["tensor_parallel_size"], alone.flags["pipeline_parallel_size"]) != (3, 1)


@pytest.mark.parametrize(("ranks", "per_token"), [(1, 192_512), (2, 96_256), (4, 48_128), (8, 48_128)])
def test_vllm_21348_more_ranks_than_heads(ranks: int, per_token: int) -> None:
    pins = {"tensor_parallel_size": ranks, **pool(8.11)}
    made = s.plan("Qwen/Qwen3-235B-A22B", s.h100(8), weights_gib=437 / ranks, concurrency=4, engine=pins)
    assert made.kv is not None
    assert made.kv.bytes_per_token == per_token
    assert ("tp-kv-replicated" in s.codes(made)) is (ranks == 8)


@pytest.mark.parametrize("name", ["cpu_offload_gb", "kv_offloading_size"])
def test_lmcache_1372_offloading_is_no_room(name: str) -> None:
    pins = {"max_model_len": 29_000, name: 100, **pool(2.89)}
    made = s.plan(s.LLAMA, s.rtx_3090(), weights_gib=14.99, concurrency=4, engine=pins)
    assert made.outcome == "does_not_fit"
    assert made.starts is False
    assert "offload-no-room" in s.codes(made)


def test_unsloth_zoo_1210_swap_space_is_gone() -> None:
    made = s.plan(s.LLAMA, s.h100(), engine={"swap_space": 4})
    assert made.outcome == "invalid"
    assert all("swap-space" not in word for word in s.plan(s.LLAMA, s.h100()).argv)


@pytest.mark.parametrize(
    ("prompt", "output", "length", "said"),
    [(112_946, 10_000, 16_384, "= 122946 tokens"), (137_276, 65_536, 202_752, "60 more than the pinned")],
)
def test_vllm_20409_requests_beyond_the_length(prompt: int, output: int, length: int, said: str) -> None:
    made = s.plan("MiniMaxAI/MiniMax-M2", s.h100(8), prompt=prompt, output=output, engine={"max_model_len": length})
    if length > 196_608:
        assert made.outcome == "invalid"
    else:
        assert made.outcome == "does_not_fit"
    assert said in s.messages(made, "p95-beyond-max-model-len")


def test_vllm_3676_longer_than_the_model() -> None:
    pinned = s.plan("meta-llama/Meta-Llama-3-8B", s.h100(), engine={"max_model_len": 131_072})
    assert pinned.outcome == "invalid"
    assert pinned.kv is not None
    assert "8192" in s.messages(pinned, "max-model-len-beyond-model")
    load = s.plan("meta-llama/Meta-Llama-3-8B", s.h100(), prompt=60_000)
    assert load.outcome == "invalid"
    assert "YaRN" in s.messages(load, "load-beyond-model")


def test_vllm_12716_all_experts_are_loaded() -> None:
    made = s.plan("Qwen/Qwen3-30B-A3B", s.gpu(), concurrency=1, weights_gib=56.9)
    assert made.outcome == "does_not_fit"
    assert "all 128 experts" in s.messages(made, "weights-over-device")


def test_vllm_33263_needed_beside_granted() -> None:
    made = s.plan("Qwen/Qwen3-1.7B", s.gpu(), prompt=1000, output=24, concurrency=1, headroom=1.0, engine=pool(18.78))
    assert made.kv is not None
    block = 16 * 114_688
    assert made.kv.needed_bytes == 117_440_512 + block  # and the block that is kept back
    assert s.known(made.kv.granted_bytes) // block * 16 == 175_808  # 175,856 in the log, whose 18.78 GiB are rounded
