"""Every fault of a server gets its own verdict, through the whole of verify: schedule, client, watcher, judge.

The fake server has the faults that a real vLLM does not produce on demand; how a real one behaves is in tests/engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from advisor.errors import EngineUnavailable
from advisor.workload_yaml import read_workload_bytes
from tests.verify.fake_faults import FAULTS
from tests.verify.fake_vllm import FakeServer, serving
from verify.judge.thresholds import thresholds_of
from verify.judge.types import Check, Verdict
from verify.judge.verdict import judge
from verify.load import schedule
from verify.record.types import LogEvent, LogWatch, Planned, Run
from verify.session import Order, Session
from verify.vocabulary import Vocabulary
from verify.watch import watcher
from verify.watch.probes import NOTHING, Probes

WORKLOAD = b"""
model: {id: fake, path: ./nowhere}
gpu: cpu
workload:
  prompt_tokens: {p50: 60, p95: 120, max: 160}
  output_tokens: {p50: 10, p95: 20, max: 24}
  concurrency: 8
  requests_per_s: 40
slo: {ttft_p95_s: 2.0, tpot_p95_s: 0.3}
gate:
  preemptions_max: 0
  send_lag_p99_s_max: 5  # several runs at once on one machine; a late client has tests of its own
  client_cpu_fraction_max: 1
"""
FAKE: dict[str, Any] = {
    "max_model_len": 512, "num_blocks": 256, "block_size": 16, "max_num_seqs": 32, "step_s": 0.004,
}  # fmt: skip
PLANNED = Planned(
    inputs_sha256="0" * 64, outcome="fits", num_blocks=256, num_blocks_low=256, num_blocks_high=256, block_size=16,
    capacity_tokens=4096, max_model_len=512, max_num_seqs=32, at_p95=28, promised=22, blocks_per_request=9,
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def in_a_hurry() -> Iterator[None]:
    """The same run in a tenth of the time: looks every 0.15 s, a short baseline, a drain that gives up sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watcher, "INTERVAL_S", 0.15)
        patch.setattr(watcher, "HEALTH_EVERY_S", 0.3)
        patch.setattr(watcher, "LOST_AFTER_S", 0.6)
        patch.setattr(schedule, "BASELINE_S", 0.5)
        patch.setattr(schedule, "DRAIN_S", 1.5)
        patch.setattr("verify.running.player.SETTLE_S", 1.5)
        yield


Runs = dict[str, "Future[tuple[Run, Verdict]]"]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, in_a_hurry: None) -> Iterator[Runs]:
    """The runs of all faults that were asked for, three at a time: they mostly wait."""
    asked = [item.callspec.params.get("fault") for item in request.session.items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(3) as pool:
        yield {
            fault: pool.submit(served, fault, after=VERDICTS[fault][0] if fault in VERDICTS else 0)
            for fault in dict.fromkeys(asked)
            if fault in VERDICTS or fault in LEGAL
        }


def session(url: str, probes: Probes = NOTHING, **changes: Any) -> Session:
    order = Order(
        workload=read_workload_bytes(WORKLOAD, "w.yaml"), vocabulary=Vocabulary(size=30_000, avoid=(0, 1, 2)),
        planned=PLANNED, url=url, model="fake", kvadvise_version="0", base_dir=Path(), hang_after_s=1.5,
        request_timeout_s=4.0,
    )  # fmt: skip
    return Session(msgspec.structs.replace(order, **changes), probes)


def verified(fake: FakeServer, **changes: Any) -> tuple[Run, Verdict]:
    made = session(fake.url, **changes)
    made.run()
    run = made.recorded()
    return run, judge(run, thresholds_of(made.order.workload))


def served(*faults: str, after: int = 60, **options: Any) -> tuple[Run, Verdict]:
    """A run against a server that has these faults, which begin in the peak."""
    given = {name: float(number or 0) for name, _, number in (fault.partition("=") for fault in faults)}
    patience: dict[str, Any] = {}
    if "waiting_grows" in given:  # and it serves a third of what arrives
        patience, options = {"hang_after_s": 30.0, "request_timeout_s": 30.0}, {"max_num_seqs": 8, "step_s": 0.02}
    with serving(**FAKE | {"faults": given, "fault_after": after} | options) as fake:
        return verified(fake, **patience)


def check(verdict: Verdict, name: str) -> Check:
    return next(found for found in verdict.checks if found.id == name)


Result = Literal["pass", "fail", "inconclusive"]

# fault -> when it begins, the verdict, and the check that says why
VERDICTS: dict[str, tuple[int, Result, str]] = {
    "dies": (60, "fail", "engine_alive"),
    "restart": (60, "inconclusive", "no_restart"),
    "stream_breaks=9": (0, "fail", "requests_completed"),
    "error_event=9": (0, "fail", "requests_completed"),
    "truncated=9": (0, "fail", "requests_completed"),
    "no_finish_reason=9": (0, "fail", "requests_completed"),
    "garbage_event=9": (0, "fail", "requests_completed"),
    "stream_stalls=60": (0, "fail", "requests_completed"),
    "hang": (60, "fail", "engine_alive"),
    "slow_drip=150": (40, "fail", "tpot_p95_s"),
    "wrong_prompt_tokens": (0, "inconclusive", "workload_reproduced"),
    "wrong_completion_tokens": (0, "inconclusive", "workload_reproduced"),
    "short_outputs": (0, "inconclusive", "workload_reproduced"),
    "no_usage": (0, "inconclusive", "workload_reproduced"),
    "reject_503=5": (0, "fail", "requests_completed"),
    "http_400": (0, "inconclusive", "run_complete"),
    "http_500": (0, "fail", "requests_completed"),
    "redirect=9": (0, "fail", "requests_completed"),
    "over_limit_500": (0, "fail", "over_limit_rejected"),
    "cuts_prompts": (0, "fail", "over_limit_rejected"),
    "silent_preemptions": (0, "fail", "preemptions"),
    "cache_hits": (0, "inconclusive", "cache_hits_as_declared"),
    "leak_after_cancel": (0, "fail", "kv_released"),
    "waiting_grows": (90, "fail", "queue_drains"),
    "connection_cap=4": (0, "inconclusive", "workload_reproduced"),
    "foreign_traffic": (0, "inconclusive", "counters_agree"),
    "stuck_running": (0, "fail", "queue_drains"),
    "metrics_missing": (0, "inconclusive", "kv_peak"),
    "metrics_unknown_names": (0, "inconclusive", "kv_peak"),
    "metrics_reset": (60, "inconclusive", "counters_agree"),
    "metrics_frozen": (0, "inconclusive", "counters_agree"),
    "metrics_garbage": (0, "inconclusive", "kv_peak"),
    "metrics_nan": (0, "inconclusive", "kv_peak"),
    "no_preemption_metric": (0, "inconclusive", "preemptions"),
    "unhealthy": (60, "fail", "engine_alive"),
}
# What is odd and allowed, and must not cost a verdict.
LEGAL = (
    "coalesced=4", "split_bytes", "odd_events", "until_close", "early_close", "huge_lines=30", "over_limit_400",
    "metrics_old_names", "slow_health",
)  # fmt: skip
ELSEWHERE = {"oom", "memory_creep", "wrong_model"}  # tests of their own below


def test_every_fault_has_its_verdict() -> None:
    named = {fault.partition("=")[0] for fault in (*VERDICTS, *LEGAL)} | ELSEWHERE
    assert named == set(FAULTS)


@pytest.mark.parametrize("fault", VERDICTS)
def test_a_fault_is_judged(fault: str, runs: Runs) -> None:
    _, result, name = VERDICTS[fault]
    _, verdict = runs[fault].result()
    found = check(verdict, name)
    assert verdict.verdict == result, verdict.summary
    assert found.status == ("fail" if result == "fail" else "unknown"), found.reason
    assert found.reason


@pytest.mark.parametrize("fault", LEGAL)
def test_what_is_odd_and_allowed_passes(fault: str, runs: Runs) -> None:
    _, verdict = runs[fault].result()
    assert verdict.verdict == "pass", verdict.summary


def test_memory_that_ran_out_is_a_failure_whatever_else_is_unknown() -> None:

    event = LogEvent(
        kind="oom", line="torch.OutOfMemoryError: CUDA out of memory.", message="the GPU ran out of memory"
    )
    with serving(**FAKE | {"faults": {"oom": 0.0}, "fault_after": 60}) as fake:
        made = session(fake.url, Probes(log=lambda: LogWatch(path="x.log", readable=True, events=(event,))))
        made.run()
        verdict = judge(made.recorded(), thresholds_of(made.order.workload))
    assert verdict.verdict == "fail"
    assert check(verdict, "no_oom").status == "fail"


def test_another_model_is_not_judged() -> None:
    with serving(**FAKE | {"faults": {"wrong_model": 0.0}}) as fake, pytest.raises(EngineUnavailable, match="not fake"):
        session(fake.url).run()


def test_a_key_that_is_refused_is_no_verdict_on_the_server() -> None:
    with serving(**FAKE | {"api_key": "right-key"}) as fake:
        with pytest.raises(EngineUnavailable, match="refuses the key"):
            session(fake.url, api_key="wrong-key").run()
        run, verdict = verified(fake, api_key="right-key")
    assert verdict.verdict == "pass", verdict.summary
    assert b"right-key" not in msgspec.json.encode(run) + msgspec.json.encode(verdict)


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_server_always_passes(seed: int) -> None:
    with serving(**FAKE) as fake:
        run, verdict = verified(fake, seed=seed)
    assert verdict.verdict == "pass", verdict.summary
    assert check(verdict, "counters_agree").status == "pass", "client tokens are the server's own"
    assert sum(row.served_output_tokens or 0 for row in run.rows) > 0


def test_the_same_run_twice_is_told_by_its_cache() -> None:
    """P76: with one salt the second run would measure the first one's cache; each run has a salt of its own."""
    with serving(**FAKE) as fake:
        first, _ = verified(fake)
        second, verdict = verified(fake)
    assert first.schedule_sha256 == second.schedule_sha256
    assert verdict.verdict == "pass", verdict.summary
    assert verdict.server["prefix_cache_hit_rate"] < 0.01
