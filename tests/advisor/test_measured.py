"""What starts cost, as a plan takes it: the key, the file's name, the band, and costs in the place of predictions."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.estimate import estimated
from advisor.measured import (
    ROUNDING_BYTES,
    MeasuredKey,
    Measurement,
    Span,
    costly_settings,
    decode_measurement,
    find_measurement,
    shape_of,
    with_measured,
)
from advisor.model.spec import Layer, MaxLength, ModelSpec
from advisor.overheads import Overheads

GIB = 1024**3
KEY = MeasuredKey(
    vllm_version="0.19.0",
    gpu="H100 80GB",
    architecture="Mistral3ForConditionalGeneration",
    shape="h5120-l40-a32-8x128-w32768-v131072",
    dtype="bfloat16",
    quantization="compressed-tensors",
    tensor_parallel_size=2,
    pipeline_parallel_size=1,
    max_num_batched_tokens=8192,
    max_num_seqs=1024,
    cuda_graphs=True,
)


def span(gib: float, band: int = ROUNDING_BYTES) -> Span:
    value = round(gib * GIB)
    return Span(value, value - band, value + band)


def test_a_file_is_named_after_its_key_and_no_other_has_the_name() -> None:
    assert KEY.file_name.startswith("vllm-0.19.0_h100-80gb_mistral3forconditionalgeneration_tp2_8192x1024_graphs_")
    others = [
        msgspec.structs.replace(KEY, **{name: value})
        for name, value in (
            ("vllm_version", "0.19.1"), ("gpu", "H100 94GB"), ("architecture", "B"), ("shape", "h1"),
            ("dtype", "float32"), ("quantization", None), ("tensor_parallel_size", 4), ("pipeline_parallel_size", 2),
            ("max_num_batched_tokens", 2048), ("max_num_seqs", 64), ("cuda_graphs", False),
            ("settings", {"enable_lora": True}),
        )
    ]  # fmt: skip
    assert len({KEY.file_name, *(key.file_name for key in others)}) == 13
    assert "/" not in msgspec.structs.replace(KEY, gpu="../../etc").file_name
    assert len(msgspec.structs.replace(KEY, gpu="x" * 500, architecture="y" * 500).file_name) < 250


def test_settings_that_move_costs_belong_to_the_key() -> None:
    pins: dict[str, Any] = {
        "enable_lora": True, "max_loras": 1, "limit_mm_per_prompt": {"image": 0}, "seed": 3, "cpu_offload_gb": 0,
        "cudagraph_capture_sizes": (1, 2), "data_parallel_size": 2, "enable_dbo": False, "speculative_config": None,
    }  # fmt: skip
    assert costly_settings(pins, "fp8") == {
        "enable_lora": True,
        "limit_mm_per_prompt": {"image": 0},
        "cudagraph_capture_sizes": [1, 2],
        "data_parallel_size": 2,
        "kv_cache_dtype": "fp8",
    }
    assert costly_settings({}) == {}


def test_a_shape_tells_models_of_one_architecture_apart() -> None:
    def model(hidden: int, experts: int = 0) -> ModelSpec:
        return ModelSpec(
            id="m", architecture="LlamaForCausalLM", model_type="llama", layers=(Layer(0, ()), Layer(1, ())),
            hidden_size=hidden, intermediate_size=14336, vocab_size=128256, num_heads=32, num_kv_heads=8,
            head_size=128, dtype="bfloat16", config_dtype=None, max_length=MaxLength(tokens=8192, key="k"),
            default_max_model_len=8192, num_experts=experts, experts_per_token=2 if experts else 0,
        )  # fmt: skip

    assert shape_of(model(4096)) == "h4096-l2-a32-8x128-w14336-v128256"
    assert len({shape_of(model(4096)), shape_of(model(2048)), shape_of(model(4096, 8))}) == 3


def overheads(*, in_budget: bool) -> Overheads:
    wide = estimated(GIB, GIB // 2, 2 * GIB)
    return Overheads(
        activation_bytes=wide,
        non_torch_bytes=wide,
        cuda_graph_bytes=wide,
        cuda_graphs_in_budget=in_budget,
        communicator_bytes=wide,
        run_time_bytes=wide,
    )


KNOWN = Measurement(
    key=KEY, activation=span(2.03), non_torch=span(2.07), cuda_graphs=span(1.03), cuda_graphs_estimated=span(1.6)
)


def test_what_was_measured_takes_the_place_of_what_was_predicted() -> None:
    used = with_measured(overheads(in_budget=False), KNOWN)
    assert used.activation_bytes.value == round(2.03 * GIB)
    assert used.activation_bytes.basis == "measured"
    assert used.cuda_graph_bytes.value == round(1.03 * GIB)
    assert used.communicator_bytes.basis == "estimated"
    assert with_measured(overheads(in_budget=True), KNOWN).cuda_graph_bytes.value == round(1.6 * GIB)


def test_one_start_is_not_taken_for_every_start() -> None:
    used = with_measured(overheads(in_budget=True), KNOWN).activation_bytes
    assert used.low < span(2.03).low - 0.015 * 2.03 * GIB
    assert used.high > span(2.03).high + 0.015 * 2.03 * GIB


def test_what_was_not_measured_stays_predicted() -> None:
    predicted = overheads(in_budget=True)
    assert with_measured(predicted, Measurement(key=KEY)) == predicted


def test_memory_that_capturing_gave_back_is_not_counted_on() -> None:
    used = with_measured(overheads(in_budget=False), Measurement(key=KEY, cuda_graphs=span(-0.17)))
    assert used.cuda_graph_bytes.value == 0
    assert used.cuda_graph_bytes.low == 0


def test_a_measurement_is_found_by_its_whole_key() -> None:
    other = Measurement(key=msgspec.structs.replace(KEY, max_num_seqs=64))
    assert find_measurement([other, KNOWN], KEY) is KNOWN
    assert find_measurement([other], KEY) is None


def encoded(**changes: Any) -> bytes:
    return json.dumps({**msgspec.to_builtins(KNOWN), **changes}).encode()


def test_a_file_gives_its_measurement_back() -> None:
    assert decode_measurement(encoded(), "f", KEY) == KNOWN


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is no measurement"),
        (b"[]", "is no measurement"),
        (b"\xff\xfe", "is no measurement"),
        (b"[" * 5000, "is no measurement"),
        (encoded(schema="kvadvise.measured/9"), "schema 'kvadvise.measured/9'"),
        (encoded(starts=0), "one start at least"),
        (encoded(activation={"value": 1, "low": 2, "high": 3}), "ends of activation"),
        (encoded(activation={"value": "1", "low": 1, "high": 1}), "is no measurement"),
        (encoded(key=msgspec.to_builtins(msgspec.structs.replace(KEY, gpu="L4"))), "another key"),
    ],
)
def test_a_file_that_is_none_is_one_error(data: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        decode_measurement(data, "f", KEY)


gibs = st.floats(-1, 200).map(lambda g: round(g, 2))
spans = st.none() | gibs.map(span)
measurements = st.builds(
    Measurement, key=st.just(KEY), activation=spans, non_torch=spans, cuda_graphs=spans, cuda_graphs_estimated=spans
)


@given(measurements, st.booleans())
def test_any_measurement_gives_usable_costs(known: Measurement, in_budget: bool) -> None:
    used = with_measured(overheads(in_budget=in_budget), known)
    for part in (used.activation_bytes, used.non_torch_bytes, used.cuda_graph_bytes):
        assert 0 <= part.low <= part.value <= part.high


@given(measurements)
def test_any_measurement_survives_its_file(known: Measurement) -> None:
    assert decode_measurement(msgspec.json.encode(known), "f", KEY) == known
