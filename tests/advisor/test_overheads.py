"""Activations, memory outside torch and graphs: the arithmetic piece by piece, and what must never fall."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.activation import sampler
from advisor.estimate import exact
from advisor.overhead_constants import EncoderShape, OverheadConstants
from advisor.overhead_inputs import OverheadInputs
from advisor.overheads import has_nvls, overheads
from advisor.units import GIB
from tests.advisor.cost_samples import constants, gpu, llama_8b

VERSIONS = [(0, 8, 5), (0, 11, 2), (0, 16, 0), (0, 19, 0), (0, 22, 1), (0, 26, 0), (0, 32, 0)]
MOE: dict[str, Any] = {"num_experts": 128, "experts_per_token": 8, "moe_intermediate_size": 768, "hidden_size": 2048}
TOWER = EncoderShape(item_tokens=16384, item_patches=65536, hidden_size=1152, intermediate_size=4304)


def activation_gib(version: tuple[int, int, int] = (0, 19, 0), **more: Any) -> float:
    return overheads(llama_8b(version, **more), constants(version)).activation_bytes.value / GIB


def test_llama_on_an_h100_as_its_log_says() -> None:
    """llm-d-planner 0.19.0: 1.89 GiB activation, 0.25 GiB outside torch, 0.91 GiB of graphs beside the budget."""
    costs = overheads(llama_8b(), constants())
    assert costs.activation_bytes.value / GIB == pytest.approx(1.89, abs=0.01)
    assert costs.non_torch_bytes.value / GIB == pytest.approx(0.25, abs=0.01)
    assert costs.cuda_graph_bytes.low / GIB < 0.91 < costs.cuda_graph_bytes.high / GIB
    assert not costs.cuda_graphs_in_budget
    assert costs.communicator_bytes == exact(0)


@pytest.mark.parametrize(("version", "gib"), [((0, 16, 0), 5.64), ((0, 17, 0), 2.23)])
def test_the_sort_went_with_0_17(version: tuple[int, int, int], gib: float) -> None:
    """Qwen3-14B on an H100 (llm-d-planner's version sweep)."""
    shape: dict[str, Any] = {"hidden_size": 5120, "vocab_size": 151936, "num_layers": 40, "intermediate_size": 17408}
    assert activation_gib(version, **shape) == pytest.approx(gib, abs=0.02)


def test_an_unsorted_sampler_is_within_the_band_before_0_17() -> None:
    """FlashInfer's sampler was opt-in: a start that uses it needs six copies less."""
    sorting = overheads(llama_8b((0, 16, 0)), constants((0, 16, 0))).activation_bytes
    flashinfer = overheads(llama_8b((0, 16, 0), flashinfer_sampler=True), constants((0, 16, 0))).activation_bytes
    assert sorting.low <= flashinfer.value < sorting.value
    assert sorting.value - flashinfer.value == 6 * 4 * 1024 * 128256


def test_the_second_runner_warms_up_with_logits_only() -> None:
    first = sampler(llama_8b((0, 32, 0), v2_runner=False), constants((0, 32, 0)))
    second = sampler(llama_8b((0, 32, 0)), constants((0, 32, 0)))
    assert first.value - second.value == 3 * 4 * 1024 * 128256
    assert overheads(llama_8b((0, 32, 0)), constants((0, 32, 0))).run_time_bytes.high > GIB


def test_float32_logits_are_one_copy_more_than_half() -> None:
    """llm-d-planner's float32 Llama: 2.21 GiB."""
    assert activation_gib(dtype_bytes=4) == pytest.approx(2.21, abs=0.02)


def test_a_stage_that_does_not_sample_only_runs_its_layers() -> None:
    """llm-d-planner's Llama-3.1-8B PP2, first rank: 1.10 GiB."""
    assert activation_gib(pipeline_parallel_size=2, is_last_stage=False) == pytest.approx(1.10, abs=0.03)


def test_moe_workspaces_stay_through_the_sampler_from_0_17() -> None:
    """Qwen3-30B-A3B: 0.507 GiB beyond a dense model of its width."""
    parts = overheads(llama_8b(**MOE), constants()).parts
    assert parts["moe_workspace"].value == 8192 * 8 * (2048 + 2048) * 2
    assert "moe_workspace" not in overheads(llama_8b((0, 16, 0), **MOE), constants((0, 16, 0))).parts


def test_mxfp4_kernels_use_no_workspace() -> None:
    parts = overheads(llama_8b(quantization="mxfp4", **MOE), constants()).parts
    assert parts["moe_workspace"].value == 0
    assert parts["moe_workspace"].high > 0


def test_a_tower_decides_the_peak_of_a_small_batch() -> None:
    small: dict[str, Any] = {"max_num_seqs": 4, "max_num_batched_tokens": 2048, "is_multimodal": True}
    seen = overheads(llama_8b(encoder=TOWER, **small), constants()).parts
    blind = overheads(llama_8b(encoder=TOWER, multimodal_off=True, **small), constants()).parts
    assert seen["peak"].value > GIB > blind["peak"].value
    assert seen["encoder_cache"].value == 16384 * 4096 * 2
    assert "multimodal" not in blind


def test_a_tower_of_unknown_shape_widens_the_band() -> None:
    small: dict[str, Any] = {"max_num_seqs": 4, "max_num_batched_tokens": 2048, "is_multimodal": True}
    unknown = overheads(llama_8b(encoder=None, **small), constants()).activation_bytes
    known = overheads(llama_8b(encoder=TOWER, **small), constants()).activation_bytes
    assert unknown.high - unknown.low > known.high - known.low


@pytest.mark.parametrize(("tp", "gib"), [(1, 0.25), (2, 2.08), (4, 2.15)])
def test_tensor_parallel_costs_two_gib_on_an_h100(tp: int, gib: float) -> None:
    costs = overheads(llama_8b(tensor_parallel_size=tp), constants())
    assert costs.non_torch_bytes.value / GIB == pytest.approx(gib, abs=0.02)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (gpu(), True),
        (gpu("H100 PCIe"), False),
        (gpu("B200", 178.35, (10, 0)), True),
        (gpu("A100", 79.3, (8, 0)), False),
        (gpu("L40S", 44.4, (8, 9)), False),
        (gpu("H100 NVL", 93.0, (9, 0), nvlink_bytes_per_s=0.0), False),
        (gpu("MI300X", 191.98, None, vendor="amd"), False),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else None,
)
def test_which_cards_keep_multicast_buffers(device: Any, expected: bool) -> None:
    assert has_nvls(device) is expected


def test_gated_delta_net_warm_up_leaves_memory_behind_where_triton_runs_it() -> None:
    """vllm#36973, and not on Hopper, whose kernels are FlashInfer's."""
    consumer = gpu("RTX 5090", 31.36, (12, 0))
    gdn = overheads(llama_8b((0, 18, 0), gpu=consumer, uses_gdn=True), constants((0, 18, 0)))
    hopper = overheads(llama_8b((0, 18, 0), uses_gdn=True), constants((0, 18, 0)))
    assert gdn.non_torch_bytes.value > 3 * GIB > hopper.non_torch_bytes.high
    assert (
        overheads(llama_8b((0, 17, 0), gpu=consumer, uses_gdn=True), constants((0, 17, 0))).non_torch_bytes.high < GIB
    )


def test_eager_has_no_graphs() -> None:
    assert overheads(llama_8b(enforce_eager=True), constants()).cuda_graph_bytes == exact(0)


def test_the_graph_estimate_is_taken_from_the_pool_from_0_20_unless_told_otherwise() -> None:
    def counted(version: tuple[int, int, int], **more: Any) -> bool:
        return overheads(llama_8b(version, **more), constants(version)).cuda_graphs_in_budget

    assert [counted(v) for v in ((0, 19, 0), (0, 20, 0), (0, 32, 0))] == [False, True, True]
    assert not counted((0, 32, 0), estimate_graphs=False)
    assert counted((0, 19, 0), estimate_graphs=True)
    amd = gpu("MI300X", 191.98, None, vendor="amd")
    assert [counted(v, gpu=amd) for v in ((0, 26, 0), (0, 29, 0))] == [False, True]


def test_the_cpu_has_room_and_processes_and_nothing_else() -> None:
    costs = overheads(llama_8b((0, 32, 0), gpu=gpu("cpu", 16.0, None, vendor="cpu")), constants((0, 32, 0)))
    assert costs.cuda_graph_bytes == exact(0)
    assert not costs.cuda_graphs_in_budget
    assert costs.activation_bytes.value > 0 < costs.non_torch_bytes.value


shapes = st.fixed_dictionaries(
    {
        "max_num_seqs": st.integers(1, 2048),
        "max_num_batched_tokens": st.integers(64, 32768),
        "hidden_size": st.sampled_from([896, 2048, 4096, 8192]),
        "vocab_size": st.sampled_from([32000, 128256, 262144]),
        "intermediate_size": st.sampled_from([0, 4864, 14336, 53248]),
        "tensor_parallel_size": st.sampled_from([1, 2, 8]),
        "num_experts": st.sampled_from([0, 64]),
        "experts_per_token": st.just(6),
        "moe_intermediate_size": st.just(1408),
        "is_multimodal": st.booleans(),
        "encoder": st.sampled_from([None, TOWER]),
        "num_speculative_tokens": st.sampled_from([0, 3]),
        "enforce_eager": st.booleans(),
        "is_hybrid": st.booleans(),
    }
)


@settings(max_examples=60)
@given(shapes, st.sampled_from(VERSIONS), st.integers(1, 1024))
def test_more_requests_never_need_less(shape: dict[str, Any], version: tuple[int, int, int], more: int) -> None:
    facts = llama_8b(version, **shape)
    larger = msgspec.structs.replace(facts, max_num_seqs=facts.max_num_seqs + more)
    _never_less(facts, larger, version)


@settings(max_examples=60)
@given(shapes, st.sampled_from(VERSIONS), st.integers(1, 16384))
def test_larger_batches_never_need_less(shape: dict[str, Any], version: tuple[int, int, int], more: int) -> None:
    facts = llama_8b(version, **shape)
    larger = msgspec.structs.replace(facts, max_num_batched_tokens=facts.max_num_batched_tokens + more)
    _never_less(facts, larger, version)


def _never_less(facts: OverheadInputs, larger: OverheadInputs, version: tuple[int, int, int]) -> None:
    """Graphs may be one size more for fewer requests: from 0.22 vLLM captures an odd batch beside the multiples."""
    before, after = (overheads(f, constants(version)) for f in (facts, larger))
    slack = 64 * 8  # whole bytes are rounded term by term
    odd = _odd_sizes(facts, constants(version)) if version >= (0, 22, 0) else 0
    for name, more in (("activation_bytes", slack), ("cuda_graph_bytes", slack + odd)):
        a, b = getattr(before, name), getattr(after, name)
        assert a.value <= b.value + more
        assert a.high <= b.high + more


def _odd_sizes(facts: OverheadInputs, known: OverheadConstants) -> int:
    """What two graph sizes may take at most, piecewise and for decoding."""
    per_size = 2 * known.graph_per_layer.value * facts.num_layers
    return round(2 * per_size * max(1.0, known.graph_estimated.high, known.graph_captured.high))


@settings(max_examples=60)
@given(shapes, st.sampled_from(VERSIONS))
def test_every_band_holds_its_value_and_nothing_is_negative(
    shape: dict[str, Any], version: tuple[int, int, int]
) -> None:
    costs = overheads(llama_8b(version, **shape), constants(version))
    for name in ("activation_bytes", "non_torch_bytes", "cuda_graph_bytes", "communicator_bytes", "run_time_bytes"):
        estimate = getattr(costs, name)
        assert estimate.low <= estimate.value <= estimate.high
        assert estimate.value >= 0
    assert costs.activation_bytes.value == sum(part.value for part in costs.parts.values())
