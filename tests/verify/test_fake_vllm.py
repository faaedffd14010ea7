"""The fake server is itself held to what it imitates: block arithmetic, counters, refusals, and faults on demand."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from advisor.server_metrics import ServerMetrics, read_metrics
from tests.verify.client.harness import closed, play
from tests.verify.fake_faults import FAULTS
from tests.verify.fake_vllm import FakeOptions, FakeServer, serving

ROOT = str(Path(__file__).resolve().parents[2])


def metrics(fake: FakeServer) -> ServerMetrics:
    return read_metrics(httpx.get(f"{fake.url}/metrics").text)


def body(**changes: Any) -> dict[str, Any]:
    return {
        "model": "fake",
        "prompt": list(range(10, 50)),
        "max_tokens": 6,
        "min_tokens": 6,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **changes,
    }


def ask(fake: FakeServer, **changes: Any) -> httpx.Response:
    return httpx.post(f"{fake.url}/v1/completions", json=body(**changes), timeout=20)


def test_counters_are_the_tokens_served() -> None:
    with serving(step_s=0.001) as fake:
        played = play(fake.url, closed(20, 6, prompt=33, output=9))
        m = metrics(fake)
    assert played.outcomes == {"ok"}
    assert m.prompt_tokens == 20 * 33 + 4
    assert m.generation_tokens == 20 * 9 + 4
    assert m.by_reason["length"] == 21
    assert (m.running, m.waiting, m.kv_usage, m.preemptions) == (0, 0, 0, 0)
    assert m.iteration_tokens == 20 * 33 + 4 + 20 * 8 + 3
    assert (m.cache_int("num_gpu_blocks"), m.cache_int("block_size")) == (1024, 16)


def test_usage_is_blocks_held() -> None:
    with serving(step_s=0.05, num_blocks=101) as fake, httpx.Client() as client:
        with client.stream("POST", f"{fake.url}/v1/completions", json=body(max_tokens=400, min_tokens=400)) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert metrics(fake).kv_usage == pytest.approx(3 / 100)  # 41 tokens in blocks of 16, one block kept back
        time.sleep(0.2)
        m = metrics(fake)
    assert (m.kv_usage, m.by_reason["abort"]) == (0, 1)


def test_a_pool_too_small_preempts_and_still_answers() -> None:
    with serving(step_s=0.001, num_blocks=21) as fake:
        played = play(fake.url, closed(8, 8, prompt=32, output=60))
        m = metrics(fake)
    assert played.outcomes == {"ok"}
    assert m.preemptions is not None
    assert m.preemptions > 0
    assert fake.engine.peak_blocks == 20
    assert m.generation_tokens == 8 * 60 + 4


def test_prefixes_hit_under_the_same_salt_only() -> None:
    with serving(step_s=0.001) as fake:
        for salt in ("a", "a", "b", None):
            ask(fake, **({"cache_salt": salt} if salt else {}))
        m = metrics(fake)
    assert (m.prefix_queries, m.prefix_hits) == (160, 32)


def test_many_wait_for_few_places() -> None:
    with serving(step_s=0.01, max_num_seqs=2) as fake:
        play(fake.url, closed(6, 6, output=10))
        assert metrics(fake).queue_count == 7
        assert fake.engine.peak_blocks <= 2 * 3


@pytest.mark.parametrize(
    ("changes", "status", "says"),
    [
        ({"prompt": [5] * 300}, 400, "maximum context length is 256 tokens"),
        ({"prompt": [5] * 256}, 400, "max_tokens must be at least 1, got 0"),
        ({"max_tokens": 257, "min_tokens": 0}, 400, "max_tokens=257 cannot be greater than max_model_len=256"),
        ({"prompt": [5] * 250, "max_tokens": 20, "min_tokens": 20}, 400, "less than or equal to max_tokens=6, got 20"),
        ({"model": "other"}, 404, "The model `other` does not exist"),
        ({"prompt": [5] * 250, "max_tokens": 20, "min_tokens": 0}, 200, '"completion_tokens":6}'),
    ],
)
def test_lengths_are_refused_and_shortened_as_in_0_32(changes: dict[str, Any], status: int, says: str) -> None:
    with serving(step_s=0.001, max_model_len=256) as fake:
        answer = ask(fake, **changes)
    assert answer.status_code == status
    assert says in answer.text


def test_admission_has_its_limit_and_its_counter() -> None:
    with serving(step_s=0.02, max_num_queued_reqs=2) as fake:
        played = play(fake.url, closed(3, 3, output=20))
        assert metrics(fake).rejections == 1
    assert sorted(row.outcome for row in played.rows) == ["ok", "ok", "rejected"]


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_each_fault_strikes_without_breaking_the_fake(fault: str) -> None:
    """What each does is for those who judge it; here: it starts after its time, and the fake does not err."""
    with serving(FakeOptions(step_s=0.002, faults={fault: 0}, fault_after=2)) as fake:
        assert ask(fake).text.endswith("data: [DONE]\n\n")
        assert metrics(fake).running == 0
        play(fake.url, closed(3, 3), request_timeout_s=0.3)  # its probe is the second good one


def test_faults_of_metrics() -> None:
    def reading(fault: str) -> ServerMetrics:
        with serving(step_s=0.001, faults={fault: 0}) as fake:
            ask(fake)
            first = metrics(fake)
            ask(fake)
            second = metrics(fake)
            return second if fault != "metrics_frozen" else first if first == second else ServerMetrics()

    assert reading("metrics_old_names").prefix_queries == 80
    unknown = reading("metrics_unknown_names")
    assert (unknown.running, unknown.kv_usage, unknown.engines) == (None, None, 0)
    assert unknown.resident_bytes == 500_000_000
    assert reading("metrics_frozen").prompt_tokens == 40
    assert reading("metrics_nan").kv_usage is None
    assert reading("no_preemption_metric").preemptions is None
    assert reading("cache_hits").prefix_hits == 40
    assert (reading("silent_preemptions").preemptions or 0) > 0
    assert reading("stuck_running").running == 1
    with serving(faults={"metrics_missing": 0}) as fake:
        assert httpx.get(f"{fake.url}/metrics").status_code == 404
    with serving(faults={"metrics_garbage": 0}) as fake, pytest.raises(ValueError, match=r"\w"):
        metrics(fake)


def test_a_restart_shows() -> None:
    with serving(step_s=0.002, faults={"restart": 0}, fault_after=1) as fake:
        ask(fake)
        before = metrics(fake)
        play(fake.url, closed(2), request_timeout_s=1)
        time.sleep(0.5)
        after = metrics(fake)
    assert before.process_start_s is not None
    assert after.process_start_s is not None
    assert after.process_start_s > before.process_start_s + 1


def test_counters_that_start_again() -> None:
    with serving(step_s=0.001, faults={"metrics_reset": 0}, fault_after=2) as fake:
        ask(fake)
        assert metrics(fake).prompt_tokens == 40
        ask(fake)
        assert metrics(fake).prompt_tokens == 0


def test_it_runs_as_a_process() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.verify.fake_vllm",
        "--step-s",
        "0.002",
        "--fault",
        "dies=0",
        "--fault-after",
        "2",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        played = play(url, closed(3))
        assert process.wait(10) == 1
    assert [row.outcome for row in played.rows][-1] == "connect_error"
