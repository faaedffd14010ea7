"""What a start cost, from its log: its parts, the key the log gives, and two starts put together."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given

from advisor.errors import InvalidInput
from advisor.gpu import Gpu
from advisor.measured import ROUNDING_BYTES, Measurement, Span
from advisor.model.read import read_model
from advisor.model.spec import ModelSpec
from advisor.versions import DEFAULT
from launch.measured import measurement, merge, observed_key, process_span
from launch.measured_key import key_from_log, missing_parts
from launch.startup_facts import Ranged, StartupFacts
from launch.startup_log import read_startup
from tests.advisor import plan_samples
from tests.advisor.test_measured import KEY, measurements, span
from tests.launch.logs import log

GIB = 1024**3


def made(name: str) -> Measurement:
    return measurement(read_startup(log(name)), KEY, source=name)


def test_a_debug_log_tells_every_part() -> None:
    read = made("healthy-0.19.0-tp2-debug")
    assert (read.weights, read.activation, read.non_torch) == (span(12.11), span(2.03), span(2.07))
    assert (read.cuda_graphs, read.cuda_graphs_estimated) == (span(1.03), span(1.6))
    assert read.free_at_start == span(77.66)
    assert read.total is None
    assert (read.starts, read.sources) == (1, ("healthy-0.19.0-tp2-debug",))


def test_the_summary_line_tells_them_too() -> None:
    read = made("healthy-0.10.2-hybrid-tp2")
    assert (read.activation, read.non_torch, read.cuda_graphs) == (span(5.58), span(1.38), span(2.37))


def test_consumed_memory_less_the_weights_is_what_torch_does_not_hold() -> None:
    read = made("healthy-0.29.0")
    assert read.non_torch is not None
    assert read.non_torch.value == round(57.31 * GIB) - round(57.02 * GIB)
    assert read.non_torch.high - read.non_torch.low == 4 * ROUNDING_BYTES
    assert read.activation is not None  # 3.01 printed, 0.9 of it the graph estimate
    assert read.activation.value == round(3.01 * GIB) - round(0.9 * GIB)


def test_a_peak_that_may_hold_an_unknown_estimate_is_not_used() -> None:
    one = Ranged.of({"": 3.0})
    facts = StartupFacts(version="0.30.0", activation_gib=one, graphs_gib=one)
    read = measurement(facts, KEY)
    assert read.activation is None
    assert read.cuda_graphs is not None
    eager = msgspec.structs.replace(facts, enforce_eager=True, non_torch_gib=one)
    assert measurement(eager, KEY).activation == span(3.0)


def test_ranks_give_the_largest_and_the_ends() -> None:
    facts = StartupFacts(version="0.13.0", torch_peak_gib=Ranged.of({"Worker_TP0": 2.0, "Worker_TP1": 2.5}))
    read = measurement(facts, KEY)
    assert read.activation == Span(round(2.5 * GIB), 2 * GIB - ROUNDING_BYTES, round(2.5 * GIB) + ROUNDING_BYTES)


def test_without_graphs_none_are_measured() -> None:
    eager = msgspec.structs.replace(KEY, cuda_graphs=False)
    assert measurement(read_startup(log("healthy-0.19.0-tp2-debug")), eager).cuda_graphs is None


def test_a_log_without_costs_is_refused() -> None:
    with pytest.raises(InvalidInput, match="prints no activation") as refused:
        made("p37-856")
    assert "DEBUG" in refused.value.hint
    with pytest.raises(InvalidInput, match="prints no activation") as refused:
        made("healthy-0.32.0-cpu-debug")
    assert "looks at the processes itself" in refused.value.hint


def test_on_a_cpu_the_processes_are_what_was_seen_of_them() -> None:
    seen = process_span(1424 << 20, 6 << 20, 64 << 20)
    assert seen == Span(1354 << 20, 1354 << 20, 1354 << 20)
    assert measurement(read_startup(log("healthy-0.32.0-cpu")), KEY, processes=seen).non_torch == seen
    assert process_span(1 << 30, 0, 2 << 30) is None  # the pool was not written to: nobody knows how much was


def test_a_second_start_widens_and_its_value_counts() -> None:
    known = Measurement(key=KEY, kept_on="2026-01-01", sources=("a",), activation=span(2.03), weights=span(12.11))
    new = Measurement(key=KEY, kept_on="2026-01-02", sources=("b",), activation=span(2.20), non_torch=span(2.07))
    both = merge(known, new)
    assert (both.starts, both.kept_on, both.sources) == (2, "2026-01-02", ("a", "b"))
    assert both.activation == Span(span(2.20).value, span(2.03).low, span(2.20).high)
    assert (both.weights, both.non_torch) == (span(12.11), span(2.07))


def test_two_keys_are_not_merged() -> None:
    other = msgspec.structs.replace(KEY, max_num_seqs=64)
    with pytest.raises(ValueError, match="two keys"):
        merge(Measurement(key=KEY, activation=span(1)), Measurement(key=other, activation=span(1)))


@given(measurements, measurements, measurements)
def test_merging_in_any_grouping_keeps_the_ends(a: Measurement, b: Measurement, c: Measurement) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


def test_what_the_engine_says_of_itself_makes_the_key() -> None:
    facts = StartupFacts(
        version="0.20.1", max_num_seqs=64, max_num_batched_tokens=2048, tensor_parallel_size=4, enforce_eager=True
    )
    assert observed_key(KEY, facts) == msgspec.structs.replace(
        KEY, vllm_version="0.20.1", max_num_seqs=64, max_num_batched_tokens=2048, tensor_parallel_size=4,
        cuda_graphs=False,
    )  # fmt: skip
    assert observed_key(KEY, StartupFacts()) == KEY
    assert observed_key(KEY, StartupFacts(device="CPU", enforce_eager=False)).cuda_graphs is False
    eager = msgspec.structs.replace(KEY, cuda_graphs=False, settings={"max_lora_rank": 16})
    with_lora = StartupFacts(enforce_eager=False, args={"enable_lora": True, "max_lora_rank": 8, "seed": 1})
    assert observed_key(eager, with_lora).cuda_graphs is True
    assert observed_key(eager, with_lora).settings == {"enable_lora": True, "max_lora_rank": 16}


def test_arguments_that_cannot_be_read_whole_are_not_taken_for_all() -> None:
    line = (
        "INFO 01-01 00:00:00 [a.py:1] non-default args: {'model': 'm', 'tensor_parallel_size': 2, 'x': <object at 1>}"
    )
    facts = read_startup([line])
    assert (facts.args, facts.args_partial) == ({"model": "m", "tensor_parallel_size": 2}, True)
    assert missing_parts(facts, {"vllm_version": "0.20.0"}) == ["max_num_batched_tokens", "max_num_seqs"]
    whole = read_startup([line.replace("<object at 1>", "{'a': 1}")])
    assert whole.args_partial is None
    assert missing_parts(whole, {"vllm_version": "0.20.0"}) == []


# The key from a log alone: what it says, what is given beside it, vLLM's own defaults.


def model(name: str) -> ModelSpec:
    return read_model(plan_samples.facts_of(name), DEFAULT)


H100 = plan_samples.h100(2)
H200 = plan_samples.gpu("H200", 139.81, cap=(9, 0), count=2)
QWEN = "Qwen/Qwen3-14B"


def test_a_log_gives_its_key_with_vllm_s_own_defaults() -> None:
    key = key_from_log(read_startup(log("healthy-0.16.0")), model(QWEN), H100, {})
    assert (key.vllm_version, key.gpu, key.architecture) == ("0.16.0", "H100 80GB", "Qwen3ForCausalLM")
    assert (key.max_num_seqs, key.max_num_batched_tokens) == (1024, 8192)  # what vLLM takes on this card
    assert (key.dtype, key.tensor_parallel_size, key.cuda_graphs, key.settings) == ("bfloat16", 1, True, {})


def test_the_log_wins_over_what_is_given_beside_it() -> None:
    key = key_from_log(
        read_startup(log("healthy-0.10.2-hybrid-tp2")), model(plan_samples.HYBRID), H200,
        {"vllm_version": "0.9.0", "tensor_parallel_size": 1, "max_num_seqs": 64, "enable_lora": True},
    )  # fmt: skip
    assert (key.vllm_version, key.tensor_parallel_size, key.max_num_seqs) == ("0.10.2", 2, 64)
    assert key.settings == {"enable_lora": True}


def test_a_key_from_a_log_is_the_key_of_the_plan_with_those_flags() -> None:
    flags = {"vllm_version": "0.16.0", "max_num_seqs": 1024, "max_num_batched_tokens": 8192}
    plan = plan_samples.plan(QWEN, plan_samples.h100(1), engine=flags)
    assert plan.measured is not None
    assert plan.measured.key == key_from_log(read_startup(log("healthy-0.16.0")), model(QWEN), H100, {})


def test_a_log_that_leaves_the_key_open_says_everything_that_is_missing() -> None:
    with pytest.raises(InvalidInput, match="vllm_version, tensor_parallel_size, max_num_batched_tokens, max_num_seqs"):
        key_from_log(StartupFacts(), model(QWEN), H100, {})
    facts = read_startup(log("healthy-0.6-v0-3090"))
    assert missing_parts(facts, {"max_num_seqs": 256, "max_num_batched_tokens": 512, "tensor_parallel_size": 1}) in (
        [],
        ["vllm_version"],
    )


@pytest.mark.parametrize(
    ("name", "on", "of", "why"),
    [
        ("healthy-0.16.0", H100, "meta-llama/Llama-3.1-8B-Instruct", "is of a Qwen3ForCausalLM"),
        ("healthy-0.32.0-cpu", H100, "meta-llama/Llama-3.1-8B-Instruct", "is of a CPU, not of H100"),
        (
            "healthy-0.10.2-hybrid-tp2",
            H100,
            plan_samples.HYBRID,
            "a GPU with 139.81 GiB, not 79.18 GiB as a H100 80GB has",
        ),
    ],
)
def test_a_log_of_something_else_is_refused(name: str, on: Gpu, of: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        key_from_log(read_startup(log(name)), model(of), on, {})
