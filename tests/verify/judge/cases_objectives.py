"""Objectives and silences."""

from __future__ import annotations

from tests.verify.judge.changes import Case, burst, fails, replace, slow, without
from tests.verify.runs import answer, changed_rows, healthy

CASES: list[Case] = [
    # objectives
    Case("fast", "ttft_p95_s", "pass", "pass", healthy, tells=("p95 of the time to first token", "n = 130")),
    Case(
        "slow",
        "ttft_p95_s",
        "fail",
        "fail",
        lambda: healthy(rows=slow(0.2, 2.0)),
        tells=("2 s", "1 s is the objective"),
    ),
    Case(
        "unsettled",
        "ttft_p95_s",
        "unknown",
        "inconclusive",
        lambda: healthy(rows=slow(0.04, 2.0)),
        tells=("not settled", "5 of 130 were beyond it", "requests at that share would"),
    ),
    Case(
        "too-few",
        "ttft_p95_s",
        "unknown",
        "inconclusive",
        lambda: burst(40, 0, "rejected"),
        tells=("59 requests within it would",),
    ),
    Case("just-enough", "ttft_p95_s", "pass", "pass", lambda: burst(59, 0, "rejected")),
    Case(
        "p99-just-enough",
        "ttft_p99_s",
        "pass",
        "pass",
        lambda: burst(299, 0, "rejected"),
        {"objectives": {"ttft_p99_s": 1.0}},
    ),
    Case(
        "p99-one-too-few",
        "ttft_p99_s",
        "unknown",
        "inconclusive",
        lambda: burst(298, 0, "rejected"),
        {"objectives": {"ttft_p99_s": 1.0}},
        ("299 requests within it would",),
    ),
    Case(
        "failures-are-never",
        "ttft_p95_s",
        "fail",
        "fail",
        lambda: healthy(rows=fails("tail", 8, "http_5xx")),
        tells=("unbounded", "17 failed requests counted as never answered"),
    ),
    Case("a-median", "ttft_p50_s", "pass", "pass", healthy, {"objectives": {"ttft_p50_s": 0.3}}),
    Case(
        "from-when-it-was-due",
        "ttft_p95_s",
        "fail",
        "fail",
        lambda: healthy(
            rows=changed_rows(
                "tail",
                lambda _n, r: answer(r.index, "tail", (r.scheduled_s or 0) + 3.0, scheduled=r.scheduled_s, prompt=400),
            )
        ),
        {"send_lag_p99_s_max": 10.0},
    ),
    Case(
        "tokens-at-once",
        "tpot_p95_s",
        "not_applicable",
        "pass",
        lambda: healthy(rows=changed_rows("tail", lambda _n, r: replace(r, first_chunk_tokens=200, chunks=1))),
    ),
    Case(
        "one-token",
        "tpot_p95_s",
        "not_applicable",
        "pass",
        lambda: healthy(
            rows=changed_rows(
                "tail",
                lambda _n, r: answer(
                    r.index, "tail", r.sent_s or 0, scheduled=r.scheduled_s, prompt=400, output=1, max_stall_s=None
                ),
            )
        ),
    ),
    Case("slow-tokens", "tpot_p95_s", "fail", "fail", healthy, {"objectives": {"tpot_p95_s": 0.009}}),
    Case("fast-tokens", "tpot_p95_s", "pass", "pass", healthy),
    Case("whole-answers", "e2e_p95_s", "pass", "pass", healthy),
    Case("slow-answers", "e2e_p99_s", "fail", "fail", healthy, {"objectives": {"e2e_p99_s": 1.0}}),
    Case(
        "a-harder-phase-settles-a-pass",
        "ttft_p95_s",
        "unknown",
        "inconclusive",
        lambda: without("tail"),
        {"requests_per_s": None},
        ("harder than the workload",),
    ),
    Case(
        "a-closed-phase-settles-no-rate",
        "ttft_p95_s",
        "unknown",
        "inconclusive",
        lambda: without("tail"),
        tells=("was not played",),
    ),
    Case("silence-not-asked", "stalls", "not_applicable", "pass", healthy),
    Case("no-silence", "stalls", "pass", "pass", healthy, {"stall_s_max": 0.1}),
    Case(
        "silence",
        "stalls",
        "fail",
        "fail",
        lambda: healthy(rows=changed_rows("tail", lambda n, r: replace(r, max_stall_s=4.0) if n == 9 else r)),
        {"stall_s_max": 0.1},
        ("silent for 4 s",),
    ),
    Case(
        "gaps-unmeasured",
        "stalls",
        "unknown",
        "inconclusive",
        lambda: healthy(rows=changed_rows("tail", lambda n, r: replace(r, max_stall_s=None) if n == 9 else r)),
        {"stall_s_max": 0.1},
    ),
    Case("share-not-asked", "slo_attainment", "not_applicable", "pass", healthy),
    Case(
        "no-objective",
        "slo_attainment",
        "not_applicable",
        "pass",
        healthy,
        {"objectives": {}, "slo_attainment_min": 0.9},
    ),
    Case("attained", "slo_attainment", "pass", "pass", healthy, {"slo_attainment_min": 0.97}),
    Case(
        "not-attained",
        "slo_attainment",
        "fail",
        "fail",
        lambda: healthy(rows=slow(0.2, 2.0)),
        {"slo_attainment_min": 0.9},
        ("104 of 130 requests met every objective",),
    ),
    Case(
        "attainment-unsettled",
        "slo_attainment",
        "unknown",
        "inconclusive",
        healthy,
        {"slo_attainment_min": 0.99},
        ("299 requests without another miss would",),
    ),
    Case("attained-by-every-one", "slo_attainment", "pass", "pass", healthy, {"slo_attainment_min": 1.0}),
    Case(
        "attainment-without-tail",
        "slo_attainment",
        "unknown",
        "inconclusive",
        lambda: without("tail"),
        {"slo_attainment_min": 0.9},
    ),
]
