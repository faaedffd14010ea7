"""What holds for every plan, whatever the load, the device and the pins."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.gpu import Gpu
from advisor.plan_types import Plan
from advisor.units import GIB
from advisor.workload import Lengths
from tests.advisor import plan_samples as s

MODELS = (s.LLAMA, s.QWEN, s.SLIDING, s.MLA, s.HYBRID, "Qwen/Qwen3-0.6B", "google/gemma-3-27b-it")
VERSIONS = ("0.10.2", "0.13.0", "0.19.1", "0.22.1", "0.26.0", "0.29.0", "0.32.0")
some = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

models = st.sampled_from(MODELS)
gib = st.floats(8, 180)
PINS: dict[str, st.SearchStrategy[Any]] = {
    "max_model_len": st.integers(500, 30_000),
    "gpu_memory_utilization": st.integers(30, 100).map(lambda n: n / 100),
    "max_num_seqs": st.integers(1, 2000),
    "max_num_batched_tokens": st.sampled_from([512, 2048, 8192, 16_384]),
    "kv_cache_dtype": st.sampled_from(["auto", "fp8", "fp8_e5m2"]),
    "tensor_parallel_size": st.sampled_from([1, 2, 3, 4, 8]),
    "pipeline_parallel_size": st.sampled_from([1, 2]),
    "data_parallel_size": st.sampled_from([1, 2]),
    "enforce_eager": st.booleans(),
    "enable_prefix_caching": st.booleans(),
    "kv_cache_memory_bytes": st.integers(GIB, 60 * GIB),
    "num_gpu_blocks_override": st.integers(10, 20_000),
    "vllm_version": st.sampled_from(VERSIONS),
}
pins = st.fixed_dictionaries({}, optional=PINS)


@st.composite
def devices(draw: st.DrawFn) -> Gpu:
    total = draw(gib)
    cap = draw(st.sampled_from([(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]))
    free = total - draw(st.floats(0.2, 4))
    return s.gpu("card", total, free, cap=cap, count=draw(st.sampled_from([1, 2, 4, 8])), width=draw(st.floats(0, 0.2)))


@st.composite
def lengths(draw: st.DrawFn) -> Lengths:
    p95 = draw(st.integers(1, 6000))
    longest = draw(st.none() | st.integers(p95, 8000))
    return Lengths(p95=p95, max=longest)


loads = st.fixed_dictionaries(
    {
        "prompt": lengths(),
        "output": lengths(),
        "concurrency": st.integers(1, 500),
        "policy": st.sampled_from(["never", "ask", "prefer"]),
        "headroom": st.sampled_from([0.5, 0.7, 0.8, 0.9, 1.0]),
    }
)


def headroom_of(made: Plan) -> float:
    assert made.workload is not None
    return float(made.workload["policy"]["headroom"])


@some
@given(models, devices(), loads, pins)
def test_what_every_plan_keeps(model: str, device: Gpu, load: dict[str, Any], engine: dict[str, Any]) -> None:
    made = s.plan(model, device, engine=engine, **load)
    held = made.concurrency
    if held is None:
        assert made.outcome in ("invalid", "not_understood")
        assert made.findings[0].severity == "error"
        return
    assert held.promised <= held.at_p95 <= held.at_p95_high
    assert held.promised <= held.at_p95 * headroom_of(made) + 1e-9
    if made.outcome in ("fits", "fits_with_loss"):
        assert held.promised >= held.target
        assert made.starts is True
        assert not [finding for finding in made.findings if finding.severity == "error"]
    if made.outcome == "invalid":
        assert made.starts is False
    if made.starts is None:
        assert made.outcome == "does_not_fit"
    assert made.memory is not None
    for ledger in msgspec.structs.asdict(made.memory).values():
        if hasattr(ledger, "basis"):
            assert ledger.low <= ledger.value <= ledger.high


@some
@given(models, devices(), loads, pins)
def test_a_pin_is_never_moved(model: str, device: Gpu, load: dict[str, Any], engine: dict[str, Any]) -> None:
    made = s.plan(model, device, engine=engine, **load)
    for name, value in engine.items():
        if made.flags and name != "vllm_version":
            assert made.flags[name] == value
        for step in made.steps:
            if step.parameter == name:
                assert step.before == step.after == value
            assert name not in step.also


@some
@given(models, devices(), loads, st.sampled_from(VERSIONS))
def test_a_plan_pinned_as_it_is_stays_as_it_is(model: str, device: Gpu, load: dict[str, Any], version: str) -> None:
    first = s.plan(model, device, engine={"vllm_version": version}, **load)
    if first.outcome in ("invalid", "not_understood"):
        return
    flags = dict(first.flags)
    if "--block-size" not in first.argv:
        del flags["block_size"]
    again = s.plan(model, device, engine={"vllm_version": version, **flags}, **load)
    assert again.kv == first.kv
    assert again.memory == first.memory
    assert again.concurrency == first.concurrency
    assert again.starts == first.starts
    assert again.outcome == first.outcome


@some
@given(models, st.integers(8, 150), st.floats(0.5, 60), loads)
def test_more_memory_never_holds_less(model: str, total: int, more: float, load: dict[str, Any]) -> None:
    engine = {"gpu_memory_utilization": 0.9, "max_num_seqs": 16, "max_num_batched_tokens": 2048}
    held = []
    for size in (total, total + more):
        made = s.plan(model, s.gpu("card", size, size - 0.5, cap=(8, 6)), engine=engine, **load)
        assert made.concurrency is not None
        held.append(made.concurrency.at_p95)
    if load["policy"] == "never":
        assert held[0] <= held[1]


@some
@given(st.integers(1, 4000), st.integers(1, 2000), st.integers(1, 3))
def test_longer_requests_never_fit_more(prompt: int, output: int, factor: int) -> None:
    engine = {"kv_cache_memory_bytes": 8 * GIB, "max_model_len": 32_000}
    short, long = (
        s.plan(s.LLAMA, s.h100(), prompt=prompt * n, output=output, engine=engine, policy="never").concurrency
        for n in (1, factor)
    )
    assert short is not None
    assert long is not None
    assert short.at_p95 >= long.at_p95


@some
@given(st.integers(0, 10_000), st.sampled_from([0.1, 0.29, 0.5, 0.57, 0.7, 0.8, 0.9, 0.95, 1.0]))
def test_the_promise_is_rounded_down_without_binary_noise(at_p95: int, headroom: float) -> None:
    promised = s.problem(headroom=headroom).promised(at_p95)
    hundredths = round(headroom * 100)
    assert promised == at_p95 * hundredths // 100
    assert abs(promised - math.floor(at_p95 * headroom)) <= 1


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("version", VERSIONS)
def test_every_sample_plans_on_every_release(model: str, version: str) -> None:
    made = s.plan(model, s.h100(4), engine={"vllm_version": version})
    assert made.outcome in ("fits", "fits_with_loss", "does_not_fit", "invalid")
