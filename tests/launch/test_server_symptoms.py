"""The troubleshooting table for a server that runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.server_metrics import ServerMetrics
from launch.diagnosis_types import Diagnosis
from launch.server_symptoms import SERVER_CODES, diagnose_server
from launch.server_types import ServerDiagnosis, ServerFacts

IDLE: dict[str, Any] = {
    "running": 4.0, "waiting": 0.0, "kv_usage": 0.3, "preemptions": 0.0, "prefix_queries": 0.0, "prefix_hits": 0.0,
    "prompt_tokens": 0.0, "generation_tokens": 0.0, "iterations": 0.0, "requests_done": 0.0, "rejections": 0.0,
    "tpot_sum_s": 0.0, "tpot_count": 0.0, "process_start_s": 1.0,
}  # fmt: skip


def reading(at_s: float, **figures: Any) -> ServerMetrics:
    return ServerMetrics(at_s=at_s, **{**IDLE, "generation_tokens": 100.0 * at_s, "iterations": 10.0 * at_s, **figures})


def series(*figures: dict[str, Any], **facts: Any) -> ServerDiagnosis:
    readings = [reading(10.0 * i, **f) for i, f in enumerate(figures)]
    return diagnose_server(readings[0], readings[-1], ServerFacts(samples=tuple(readings[1:-1]), **facts))


def codes(found: ServerDiagnosis) -> list[str]:
    return [f.code for f in found.findings]


def only(found: ServerDiagnosis) -> Diagnosis:
    assert len(found.findings) == 1, codes(found)
    return found.findings[0]


def test_a_server_that_is_well_gives_no_finding() -> None:
    assert codes(series({}, {}, {}, {})) == []


def test_preemptions_are_read_from_the_counter() -> None:
    found = only(series({}, {"preemptions": 5.0, "requests_done": 100.0, "kv_usage": 0.99}))
    assert (found.code, found.severity) == ("preemptions", "warning")
    assert "5.0% of 100" in found.message
    assert "+5" in found.evidence


def test_a_metric_that_is_absent_is_named_and_never_zero() -> None:
    found = diagnose_server(ServerMetrics(at_s=0.0), ServerMetrics(at_s=120.0))
    assert found.findings == ()
    missing = {n.code for n in found.not_judged}
    assert missing >= {"engine-frozen", "preemptions", "queue-unbounded", "waiting-low-usage", "prefix-cache"}
    assert all(n.missing for n in found.not_judged)


def test_a_frozen_engine_behind_a_health_page() -> None:
    before, after = reading(0.0, running=3.0), reading(120.0, running=3.0, generation_tokens=0.0, iterations=0.0)
    found = only(diagnose_server(before, after, ServerFacts(health_status=200)))
    assert (found.code, found.severity) == ("engine-frozen", "error")
    assert "/health still answers 200" in found.message
    assert "3 running, counters unchanged for 120 s" in found.evidence


def test_a_server_without_its_engine_is_dead() -> None:
    found = only(diagnose_server(reading(0.0, running=0.0), reading(10.0, running=0.0), ServerFacts(health_status=503)))
    assert (found.code, found.severity) == ("engine-died", "error")
    assert "503" in found.evidence
    assert codes(diagnose_server(reading(0.0), reading(10.0), ServerFacts(health_status=404))) == []


def test_a_standstill_that_is_too_short_to_tell_is_said() -> None:
    after = reading(30.0, running=3.0, generation_tokens=0.0, iterations=0.0)
    found = diagnose_server(reading(0.0, running=3.0), after)
    assert codes(found) == []
    assert {n.code: n.missing for n in found.not_judged}["engine-frozen"].startswith("60 s between the readings")


@pytest.mark.parametrize(
    "after",
    [
        reading(120.0, running=3.0),  # tokens came
        reading(120.0, running=0.0, generation_tokens=0.0, iterations=0.0),  # nothing to do
    ],
)
def test_a_slow_or_idle_engine_is_not_frozen(after: ServerMetrics) -> None:
    assert codes(diagnose_server(reading(0.0, running=3.0), after)) == []


def test_a_request_that_came_just_now_is_no_hang() -> None:
    before, after = reading(0.0, running=0.0), reading(120.0, running=1.0, generation_tokens=0.0, iterations=0.0)
    assert codes(diagnose_server(before, after)) == []


def test_thrash_is_a_full_cache_and_falling_tokens() -> None:
    full = {"kv_usage": 0.99, "waiting": 20.0, "running": 40.0}
    tokens = [0.0, 9000.0, 16000.0, 21000.0]
    found = series(*({**full, "generation_tokens": t} for t in tokens), max_num_seqs=256)
    assert codes(found) == ["kv-thrash"]
    assert "900 > 700 > 500" in found.findings[0].evidence


def test_a_full_cache_that_keeps_its_pace_is_no_thrash() -> None:
    full = {"kv_usage": 0.99, "waiting": 20.0, "running": 40.0}
    assert codes(series(full, full, full, full, max_num_seqs=256)) == []


def test_a_queue_that_only_grows() -> None:
    found = series(*({"waiting": w, "kv_usage": 0.8} for w in (0.0, 10.0, 20.0, 30.0)))
    assert codes(found) == ["queue-unbounded"]
    assert found.findings[0].evidence == "waiting 0, 10, 20, 30"
    assert "max_num_queued_reqs" in found.findings[0].remedy


def test_a_queue_that_drains_is_none() -> None:
    assert codes(series(*({"waiting": w, "kv_usage": 0.8} for w in (0.0, 10.0, 5.0, 0.0)))) == []


def test_waiting_with_room_names_what_keeps_them_out() -> None:
    figures = {"waiting": 8.0, "kv_usage": 0.4, "running": 64.0}
    capped = only(series(figures, figures, max_num_seqs=64))
    assert capped.code == "waiting-low-usage"
    assert "max_num_seqs 64" in capped.message
    deferred = only(series(figures, {**figures, "waiting_by_reason": {"deferred": 8.0, "capacity": 0.0}}))
    assert "something else" in deferred.message
    long_head = only(series(figures, figures, max_num_seqs=256))
    assert "long prompt" in long_head.message


def test_a_client_that_holds_less_than_it_means_to() -> None:
    found = only(series({"running": 100.0}, {"running": 98.0}, offered_concurrency=200))
    assert found.code == "client-limited"
    assert "never above 100" in found.evidence
    assert codes(series({"running": 198.0}, {"running": 199.0}, offered_concurrency=200)) == []


def test_more_requests_and_no_more_tokens() -> None:
    found = only(series({}, {}, ladder=((32, 2000.0), (64, 2050.0))))
    assert (found.code, found.severity) == ("memory-free-throughput-flat", "note")
    assert codes(series({}, {}, ladder=((32, 2000.0), (64, 3000.0)))) == []


def test_fast_alone_and_slow_together() -> None:
    load = {"tpot_sum_s": 20.0, "tpot_count": 100.0, "running": 40.0}
    found = only(series({"running": 40.0}, load, alone_tpot_s=0.02))
    assert found.code == "alone-fast-together-slow"
    assert "10.0 times" in found.message
    assert "20 ms alone, 200 ms under load" in found.evidence
    preempted = series({"running": 40.0}, {**load, "preemptions": 9.0}, alone_tpot_s=0.02)
    assert "preempted" in preempted.findings[1].message
    assert codes(series({}, load, alone_tpot_s=0.1)) == []


@pytest.mark.parametrize(
    ("hits", "declared", "code"),
    [
        (50_000.0, 0.0, "prefix-cache-warm"),
        (10_000.0, 0.6, "prefix-cache-cold"),
        (0.0, 0.0, None),
        (59_000.0, 0.6, None),
    ],
)
def test_the_prefix_cache_against_what_the_load_declares(hits: float, declared: float, code: str | None) -> None:
    found = series({}, {"prefix_queries": 100_000.0, "prefix_hits": hits}, declared_hit_rate=declared)
    assert codes(found) == ([code] if code else [])


def test_a_prefix_that_is_declared_and_not_cached() -> None:
    found = only(series({}, {"prompt_tokens": 5000.0}, declared_hit_rate=0.5, prefix_caching=False))
    assert (found.code, found.change) == ("prefix-cache-off", {"enable_prefix_caching": True})


def test_a_gpu_that_came_close_to_its_end() -> None:
    found = only(series({}, {}, least_free_bytes=300 * 1024**2))
    assert found.code == "gpu-memory-thin"
    assert "300 MiB" in found.evidence


def test_host_memory_that_only_grows() -> None:
    grown = [{"resident_bytes": float(n * 1024**3)} for n in (2, 3, 4)]
    assert codes(series(*grown)) == ["host-memory-grows"]
    assert codes(series(*reversed(grown))) == []


def test_rejections_are_a_note() -> None:
    found = only(series({}, {"rejections": 12.0}))
    assert (found.code, found.severity) == ("admission-rejected", "note")


def test_a_server_that_was_started_anew_is_not_compared() -> None:
    found = series({"preemptions": 5.0}, {"preemptions": 0.0, "process_start_s": 500.0})
    assert codes(found) == ["server-restarted"]
    assert found.not_judged == ()


@pytest.mark.parametrize(
    ("facts", "part", "change"),
    [
        ({"kv_cache_dtype": "fp8", "kv_scales_calibrated": False}, "uncalibrated", {"kv_cache_dtype": "auto"}),
        ({"kv_cache_dtype": "fp8"}, "unknown scales", {"kv_cache_dtype": "auto"}),
        ({"kv_cache_dtype": "auto", "rope_overridden": True}, "rope scaling", None),
        ({"kv_cache_dtype": "auto", "rope_overridden": False}, "no cause", None),
    ],
)
def test_falling_quality_on_long_contexts(facts: dict[str, Any], part: str, change: dict[str, Any] | None) -> None:
    found = only(series({}, {}, symptoms=frozenset({"quality-long-context"}), **facts))
    assert part in found.message
    assert found.change == change


figures = st.none() | st.floats(0, 1e6)
readings = st.builds(
    ServerMetrics,
    at_s=figures, running=figures, waiting=figures, kv_usage=st.none() | st.floats(0, 1), preemptions=figures,
    prefix_queries=figures, prefix_hits=figures, prompt_tokens=figures, generation_tokens=figures, iterations=figures,
    requests_done=figures, rejections=figures, tpot_sum_s=figures, tpot_count=figures, resident_bytes=figures,
)  # fmt: skip


@given(readings, readings, st.lists(readings, max_size=4), st.none() | st.integers(1, 512), figures)
def test_any_readings_are_judged_or_named(
    before: ServerMetrics, after: ServerMetrics, between: list[ServerMetrics], seqs: int | None, alone: float | None
) -> None:
    facts = ServerFacts(samples=tuple(between), max_num_seqs=seqs, offered_concurrency=seqs, alone_tpot_s=alone)
    found = diagnose_server(before, after, facts)
    assert set(codes(found)) <= set(SERVER_CODES)
    assert all(f.message and f.remedy and f.evidence for f in found.findings)
