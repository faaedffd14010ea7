"""What a start cost: from its log to a key and sizes, merged, and used in a plan's place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.estimate import estimated
from advisor.model.spec import MaxLength, ModelSpec
from advisor.overheads import Overheads
from launch.measured import (
    ROUNDING_BYTES,
    MeasuredKey,
    Measurement,
    Span,
    measurement,
    merge,
    shape_of,
    with_measured,
)
from launch.startup_facts import Ranged, StartupFacts
from launch.startup_log import read_startup
from tests.launch.logs import log

GIB = 1024**3
SHAPE = "h5120-l40-a32-8x128-w32768-v131072"
KEY = MeasuredKey(
    vllm_version="0.19.0",
    gpu="H100 80GB",
    architecture="Mistral3ForConditionalGeneration",
    shape=SHAPE,
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


def made(name: str, **supplied: Any) -> Measurement:
    return measurement(read_startup(log(name)), gpu="H100 80GB", shape=SHAPE, supplied=supplied, source=name)


def test_a_debug_log_tells_every_part() -> None:
    read = made("healthy-0.19.0-tp2-debug", quantization="compressed-tensors")
    assert read.key == KEY
    assert (read.weights, read.activation, read.non_torch) == (span(12.11), span(2.03), span(2.07))
    assert (read.cuda_graphs, read.cuda_graphs_estimated) == (span(1.03), span(1.6))
    assert read.free_at_start == span(77.66)
    assert read.total is None
    assert (read.starts, read.sources) == (1, ("healthy-0.19.0-tp2-debug",))


def test_the_summary_line_tells_them_too() -> None:
    read = made("healthy-0.10.2-hybrid-tp2", max_num_seqs=1024)
    assert (read.activation, read.non_torch, read.cuda_graphs) == (span(5.58), span(1.38), span(2.37))
    assert read.key.architecture == "Qwen3NextForCausalLM"
    assert read.key.quantization is None


def test_consumed_memory_less_the_weights_is_what_torch_does_not_hold() -> None:
    read = made("healthy-0.29.0", max_num_seqs=1024)
    assert read.non_torch is not None
    assert read.non_torch.value == round(57.31 * GIB) - round(57.02 * GIB)
    assert read.non_torch.high - read.non_torch.low == 4 * ROUNDING_BYTES
    assert read.activation is not None  # 3.01 printed, 0.9 of it the graph estimate
    assert read.activation.value == round(3.01 * GIB) - round(0.9 * GIB)


def test_a_peak_that_may_hold_an_unknown_estimate_is_not_used() -> None:
    one = Ranged.of({"": 3.0})
    facts = StartupFacts(
        version="0.30.0", architecture="A", max_num_batched_tokens=2048, max_num_seqs=256, activation_gib=one,
        graphs_gib=one,
    )  # fmt: skip
    read = measurement(facts, gpu="L4", shape=SHAPE)
    assert read.activation is None
    assert read.cuda_graphs is not None
    eager = msgspec.structs.replace(facts, enforce_eager=True, non_torch_gib=one)
    assert measurement(eager, gpu="L4", shape=SHAPE).activation == span(3.0)


def test_ranks_give_the_largest_and_the_ends() -> None:
    facts = StartupFacts(
        version="0.13.0", architecture="A", max_num_batched_tokens=2048, max_num_seqs=256,
        torch_peak_gib=Ranged.of({"Worker_TP0": 2.0, "Worker_TP1": 2.5}),
    )  # fmt: skip
    read = measurement(facts, gpu="L4", shape=SHAPE)
    assert read.activation == Span(round(2.5 * GIB), 2 * GIB - ROUNDING_BYTES, round(2.5 * GIB) + ROUNDING_BYTES)


def test_a_log_that_leaves_the_key_open_says_what_is_missing() -> None:
    with pytest.raises(InvalidInput, match="max_num_seqs"):
        made("healthy-0.16.0")
    with pytest.raises(InvalidInput, match="vllm_version, architecture, max_num_batched_tokens, max_num_seqs"):
        measurement(StartupFacts(), gpu="L4", shape=SHAPE)


def test_a_log_without_costs_is_refused() -> None:
    with pytest.raises(InvalidInput, match="prints no activation"):
        made("p37-856", max_num_seqs=1024, max_num_batched_tokens=8192, architecture="A")


def test_the_cpu_has_no_graphs() -> None:
    facts = read_startup(log("healthy-0.32.0-cpu-debug"))
    with pytest.raises(InvalidInput, match="prints no activation"):
        measurement(facts, gpu="CPU", shape=SHAPE)


def test_a_file_is_named_after_its_key_and_no_other_has_the_name() -> None:
    assert KEY.file_name.startswith("vllm-0.19.0_h100-80gb_mistral3forconditionalgeneration_tp2_8192x1024_graphs_")
    others = [
        msgspec.structs.replace(KEY, **{name: value})
        for name, value in (
            ("vllm_version", "0.19.1"), ("gpu", "H100 94GB"), ("architecture", "B"), ("shape", "h1"),
            ("quantization", None), ("tensor_parallel_size", 4), ("pipeline_parallel_size", 2),
            ("max_num_batched_tokens", 2048), ("max_num_seqs", 64), ("cuda_graphs", False),
        )
    ]  # fmt: skip
    assert len({KEY.file_name, *(key.file_name for key in others)}) == 11
    assert "/" not in msgspec.structs.replace(KEY, gpu="../../etc").file_name


def test_a_second_start_widens_and_its_value_counts() -> None:
    known = Measurement(key=KEY, sources=("a",), activation=span(2.03), weights=span(12.11))
    new = Measurement(key=KEY, sources=("b",), activation=span(2.20), non_torch=span(2.07))
    both = merge(known, new)
    assert both.starts == 2
    assert both.sources == ("a", "b")
    assert both.activation == Span(span(2.20).value, span(2.03).low, span(2.20).high)
    assert (both.weights, both.non_torch) == (span(12.11), span(2.07))


def test_two_keys_are_not_merged() -> None:
    other = msgspec.structs.replace(KEY, max_num_seqs=64)
    with pytest.raises(ValueError, match="two keys"):
        merge(Measurement(key=KEY, activation=span(1)), Measurement(key=other, activation=span(1)))


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


def test_what_was_measured_takes_the_place_of_what_was_predicted() -> None:
    known = made("healthy-0.19.0-tp2-debug")
    used = with_measured(overheads(in_budget=False), known)
    assert used.activation_bytes == span(2.03).estimate
    assert used.activation_bytes.basis == "measured"
    assert used.cuda_graph_bytes == span(1.03).estimate
    assert used.communicator_bytes.basis == "estimated"
    assert with_measured(overheads(in_budget=True), known).cuda_graph_bytes == span(1.6).estimate


def test_what_was_not_measured_stays_predicted() -> None:
    predicted = overheads(in_budget=True)
    assert with_measured(predicted, Measurement(key=KEY)) == predicted


def test_memory_that_capturing_gave_back_is_not_counted_on() -> None:
    used = with_measured(overheads(in_budget=False), Measurement(key=KEY, cuda_graphs=span(-0.17)))
    assert used.cuda_graph_bytes.value == 0
    assert used.cuda_graph_bytes.low == 0


def test_a_shape_tells_models_of_one_architecture_apart() -> None:
    def model(hidden: int, experts: int = 0) -> ModelSpec:
        from advisor.model.spec import Layer

        return ModelSpec(
            id="m", architecture="LlamaForCausalLM", model_type="llama", layers=(Layer(0, ()), Layer(1, ())),
            hidden_size=hidden, intermediate_size=14336, vocab_size=128256, num_heads=32, num_kv_heads=8,
            head_size=128, dtype="bfloat16", config_dtype=None, max_length=MaxLength(tokens=8192, key="k"),
            default_max_model_len=8192, num_experts=experts, experts_per_token=2 if experts else 0,
        )  # fmt: skip

    assert shape_of(model(4096)) == "h4096-l2-a32-8x128-w14336-v128256"
    assert len({shape_of(model(4096)), shape_of(model(2048)), shape_of(model(4096, 8))}) == 3


gibs = st.floats(-1, 200).map(lambda g: round(g, 2))
spans = st.none() | gibs.map(span)
measurements = st.builds(
    Measurement, key=st.just(KEY), activation=spans, non_torch=spans, cuda_graphs=spans, cuda_graphs_estimated=spans
)


@given(measurements, measurements, measurements)
def test_merging_in_any_grouping_keeps_the_ends(a: Measurement, b: Measurement, c: Measurement) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(measurements, st.booleans())
def test_any_measurement_gives_usable_costs(known: Measurement, in_budget: bool) -> None:
    used = with_measured(overheads(in_budget=in_budget), known)
    for part in (used.activation_bytes, used.non_torch_bytes, used.cuda_graph_bytes):
        assert 0 <= part.low <= part.value <= part.high
