"""More cases that people met: lengths that fit, small shares, cards too old, upgrades that move the capacity.

The name of each test gives the public thread; the figures are in its text or follow from its shapes.
"""

from __future__ import annotations

import pytest

from advisor.gpu import Gpu
from advisor.units import GIB
from tests.advisor import plan_samples as s


@pytest.mark.parametrize(
    ("version", "gib", "longest"),
    [
        pytest.param("0.11.2", 1.46302, 16_320, id="as-logged"),
        pytest.param("0.11.2", 1.46301, 16_304, id="a-little-less"),
        pytest.param("0.32.0", 1.46302, 16_304, id="null-block-left-out"),
    ],
)
def test_aiconfigurator_238_the_longest_that_starts(version: str, gib: float, longest: int) -> None:
    pins = {
        "vllm_version": version,
        "tensor_parallel_size": 2,
        "max_model_len": 40_960,
        "kv_cache_memory_bytes": round(gib * GIB),
    }
    made = s.plan("Qwen/Qwen3-235B-A22B", s.h100(2), weights_gib=60, concurrency=1, engine=pins)
    kv = s.known(made.kv)
    assert kv.bytes_per_token == 96_256
    assert kv.bytes_per_request / GIB == pytest.approx(3.67, abs=0.005)
    assert kv.estimated_max_model_len == longest
    assert made.starts is False


def test_lmcache_1372_what_32768_tokens_need() -> None:
    pins = {"vllm_version": "0.11.2", "max_model_len": 32_768, "kv_cache_memory_bytes": round(3.58 * GIB)}
    made = s.plan("Qwen/Qwen3-8B", s.h100(), weights_gib=16, concurrency=1, engine=pins)
    kv = s.known(made.kv)
    assert kv.bytes_per_request == round(4.5 * GIB)
    # 26,032 in the log, whose 3.58 GiB are rounded
    assert s.known(kv.estimated_max_model_len) == pytest.approx(26_032, abs=0.005 * GIB / 147_456 + 16)
    assert made.starts is False


def test_vllm_57475_a_share_that_leaves_no_room_for_graphs() -> None:
    laptop = s.gpu("RTX 5090 Laptop", 22.36, 22.3, cap=(12, 0))
    pinned = s.plan(s.QWEN3, laptop, weights_gib=15.3, concurrency=4, engine={"gpu_memory_utilization": 0.98})
    assert "0.45 GiB" in s.messages(pinned, "utilization-unsafe")
    assert s.plan(s.QWEN3, laptop, weights_gib=15.3, concurrency=400).flags["gpu_memory_utilization"] <= 0.97


def test_vllm_7553_graphs_beside_the_budget_are_left_room() -> None:
    before, after = (
        s.known(s.plan(s.QWEN3, s.gpu(), weights_gib=15.3, concurrency=4, engine={"vllm_version": v}).memory)
        for v in ("0.19.1", "0.21.0")
    )
    assert (before.cuda_graphs_in_budget, after.cuda_graphs_in_budget) == (False, True)
    outside = before.outside_budget_bytes.value - after.outside_budget_bytes.value
    assert outside >= before.cuda_graph_bytes.value > 0
    eager = s.plan(s.QWEN3, s.gpu(), weights_gib=15.3, engine={"vllm_version": "0.19.1", "enforce_eager": True})
    assert s.known(eager.memory).cuda_graph_bytes.value == 0


@pytest.mark.parametrize("device", [s.t4(), s.gpu("V100", 31.73, 31.4, cap=(7, 0))])
@pytest.mark.parametrize("dtype", ["fp8", "fp8_e4m3"])
def test_vllm_47549_the_refusal_names_card_and_16_bit_size(device: Gpu, dtype: str) -> None:
    made = s.plan("Qwen/Qwen3-1.7B", device, engine={"kv_cache_dtype": dtype}, concurrency=1)
    assert (made.outcome, made.starts) == ("invalid", False)
    said = s.messages(made, "kv-fp8-capability")
    capability = s.known(device.compute_capability)
    assert f"compute capability {capability[0]}.{capability[1]}" in said
    assert "16 bits, 114688 bytes a token" in said


@pytest.mark.parametrize(("version", "tokens"), [("0.20.0", 55_000), ("0.21.0", 525_000)])
def test_vllm_43308_ten_times_the_capacity_by_an_upgrade(version: str, tokens: int) -> None:
    pins = {"vllm_version": version, "kv_cache_memory_bytes": 50_000_000_000, "max_model_len": 262_144}
    made = s.plan("google/gemma-4-31B", s.a100(), weights_gib=20, concurrency=1, engine=pins)
    assert s.known(s.known(made.kv).capacity_tokens) == pytest.approx(tokens, rel=0.1)
    assert made.assumptions[0].startswith(f"vLLM {version}")


def test_vllm_7028_a_share_below_the_weights() -> None:
    pins = {"gpu_memory_utilization": 0.1}
    model = "Qwen/Qwen2.5-7B-Instruct-AWQ"
    made = s.plan(model, s.t4(), prompt=500, output=100, concurrency=1, weights_gib=3.9, engine=pins)
    assert (made.outcome, made.starts) == ("does_not_fit", False)
    remedy = s.messages(made, "kv-pool-too-small")
    smallest = float(remedy.split("gpu_memory_utilization ")[1].split(" ")[0])
    assert 0.27 < smallest < 0.6
    enough = {"gpu_memory_utilization": smallest}
    again = s.plan(model, s.t4(), prompt=500, output=100, concurrency=1, weights_gib=3.9, engine=enough)
    assert again.starts is True


def test_vllm_40291_weights_are_what_the_checkpoint_holds() -> None:
    card = s.gpu("RTX 5090", 31.36, 30.9, cap=(12, 0))
    made = s.plan("nvidia/Gemma-4-31B-IT-NVFP4", card, weights_gib=32.0, concurrency=1)
    assert (made.outcome, made.starts) == ("does_not_fit", False)
    assert "weights-over-device" in s.codes(made)


def test_vllm_55827_two_instances_size_their_shares_apart() -> None:
    card = s.gpu("RTX 5090", 31.36, 20.0, cap=(12, 0))  # a first instance holds the rest
    made = s.plan("Qwen/Qwen3-1.7B", card, weights_gib=3.3, concurrency=2)
    assert "gpu-shared" in s.codes(made)
    assert made.flags["gpu_memory_utilization"] * 31.36 < 20.0
    assert made.starts is True
