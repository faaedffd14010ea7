"""Was it this workload, and only it?"""

from __future__ import annotations

from tests.verify.judge.changes import LATE, Case, all_but, at, fails, missing, more, replace
from tests.verify.runs import MARKS, answer, changed_rows, client, failed, healthy, healthy_rows, set_metric

CASES: list[Case] = [
    # the load
    Case("healthy", "workload_reproduced", "pass", "pass", healthy, tells=("185 requests",)),
    Case(
        "P77-drift",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(rows=changed_rows("peak", lambda n, r: replace(r, served_prompt_tokens=5128) if n == 3 else r)),
        tells=("asked 1000 + 200 tokens, served were 5128 + 200",),
    ),
    Case(
        "P77-one-token",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(rows=changed_rows("peak", lambda n, r: replace(r, served_prompt_tokens=1001) if n == 3 else r)),
    ),
    Case(
        "P77-within",
        "workload_reproduced",
        "pass",
        "pass",
        lambda: healthy(rows=changed_rows("peak", lambda _n, r: replace(r, served_prompt_tokens=1004))),
        {"length_difference_fraction_max": 0.02},
    ),
    Case(
        "P77-any-above-5-percent",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(rows=changed_rows("peak", lambda n, r: replace(r, served_prompt_tokens=1060) if n == 3 else r)),
        {"length_difference_fraction_max": 0.02},
    ),
    Case(
        "P78-short",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(
            rows=changed_rows(
                "tail",
                lambda n, r: (
                    answer(
                        r.index,
                        "tail",
                        r.sent_s or 0,
                        scheduled=r.scheduled_s,
                        prompt=400,
                        output=200,
                        outcome="wrong_length",
                        served_output_tokens=120,
                        streamed_tokens=120,
                        finish_reason="stop",
                    )
                    if n % 5 == 0
                    else r
                ),
            )
        ),
        tells=("26 answers of 179", "asked 400 + 200 tokens, served were 400 + 120"),
    ),
    Case(
        "P78-no-usage",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(
            rows=changed_rows(
                "tail",
                lambda n, r: (
                    replace(r, outcome="wrong_length", served_prompt_tokens=None, served_output_tokens=None)
                    if n == 0
                    else r
                ),
            )
        ),
        tells=("1 answer came without usage",),
    ),
    Case(
        "usage-against-stream",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(rows=changed_rows("tail", lambda n, r: replace(r, streamed_tokens=203) if n == 0 else r)),
        tells=("says 200 tokens and streamed 203",),
    ),
    Case(
        "recorded-lengths-differ",
        "workload_reproduced",
        "pass",
        "pass",
        lambda: healthy(
            rows=changed_rows(
                "tail",
                lambda _n, r: replace(
                    r, is_recorded=True, served_prompt_tokens=402, served_output_tokens=150, streamed_tokens=150
                ),
            )
        ),
    ),
    Case(
        "recorded-prompts-drift",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(
            rows=changed_rows("tail", lambda _n, r: replace(r, is_recorded=True, served_prompt_tokens=440))
        ),
        tells=("recorded prompts are 52,000 tokens",),
    ),
    Case(
        "requests-missing",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(rows=all_but("peak", 10)),
        tells=("30 of 40 requests were sent in peak",),
    ),
    Case(
        "rate-not-reached",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(
            rows=changed_rows(
                "tail",
                lambda n, r: answer(
                    r.index, "tail", (r.scheduled_s or 0) + 0.001, scheduled=66.1 + 0.25 * n, prompt=400
                ),
            )
        ),
        {"send_lag_p99_s_max": 100.0},
        tells=("2 requests per second were sent, 4 were meant",),
    ),
    Case(
        "P79-capped",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(metric=lambda m: replace(m, running=min(m.running or 0, 4.0))),
        tells=("8 requests were meant to be in flight and never more than 4 were at the server",),
    ),
    Case(
        "too-short-to-be-seen",
        "workload_reproduced",
        "pass",
        "pass",
        lambda: healthy(
            metric=lambda m: replace(m, running=0.0 if m.at_s in (30, 40) else None) if 26 <= (m.at_s or 0) < 66 else m
        ),
    ),
    Case(
        "P79-capped-and-timed-out",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(
            rows=fails("peak", 4, "client_timeout"),
            metric=lambda m: replace(m, running=min(m.running or 0, 4.0)),
        ),
        tells=("never more than 4 were at the server",),
    ),
    Case(
        "turned-away-is-no-cap",
        "workload_reproduced",
        "pass",
        "fail",
        lambda: healthy(
            rows=fails("peak", 4, "rejected"), metric=lambda m: replace(m, running=min(m.running or 0, 4.0))
        ),
    ),
    Case(
        "P79-client-held-few",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(client=tuple(replace(c, max_in_flight=2) if c.phase == "peak" else c for c in client())),
        tells=("the client held 2 requests open, 8 were meant",),
    ),
    Case(
        "load-refused",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(
            rows=[failed(r, "http_4xx", status=404) for r in healthy_rows()[:10]],
            marks=MARKS[:2],
            ended="load_refused",
            ending_text="the server refuses the load: 404",
        ),
        tells=("the server refuses the load: 404",),
    ),
    Case(
        "nothing-sent",
        "workload_reproduced",
        "unknown",
        "inconclusive",
        lambda: healthy(rows=[], marks=MARKS[:1]),
        tells=("no request was sent",),
    ),
    # the prefix cache
    Case(
        "P76-none",
        "cache_hits_as_declared",
        "pass",
        "pass",
        lambda: healthy(
            metric=lambda m: replace(m, prefix_queries=0 if (m.at_s or 0) < 3 else 100_000, prefix_hits=0.0)
        ),
    ),
    Case(
        "P76-half",
        "cache_hits_as_declared",
        "unknown",
        "inconclusive",
        lambda: healthy(
            metric=lambda m: replace(
                m, prefix_queries=0 if (m.at_s or 0) < 3 else 100_000, prefix_hits=0 if (m.at_s or 0) < 3 else 50_000
            )
        ),
        tells=("50.0% of prompt tokens came from the prefix cache, 1.0% at most are declared",),
    ),
    Case(
        "P76-one-point",
        "cache_hits_as_declared",
        "pass",
        "pass",
        lambda: healthy(metric=more("prefix_hits", 1000.0, 5.0)),
    ),
    Case(
        "P76-declared-missed",
        "cache_hits_as_declared",
        "unknown",
        "inconclusive",
        lambda: healthy(declared_hit_rate=0.6, metric=more("prefix_hits", 102_700 * 0.3, 5.0)),
        tells=("30.0% of prompt tokens", "53.0% at least"),
    ),
    Case(
        "P76-declared-met",
        "cache_hits_as_declared",
        "pass",
        "pass",
        lambda: healthy(declared_hit_rate=0.6, metric=more("prefix_hits", 102_700 * 0.58, 5.0)),
    ),
    Case(
        "hits-bounded-by-the-file",
        "cache_hits_as_declared",
        "unknown",
        "inconclusive",
        lambda: healthy(metric=more("prefix_hits", 1000.0, 5.0)),
        {"prefix_cache_hit_rate_max": 0.005},
    ),
    Case(
        "hits-allowed-by-the-file",
        "cache_hits_as_declared",
        "pass",
        "pass",
        lambda: healthy(metric=more("prefix_hits", 50_000.0, 5.0)),
        {"prefix_cache_hit_rate_max": 0.6},
    ),
    Case(
        "hits-wanted-by-the-file",
        "cache_hits_as_declared",
        "unknown",
        "inconclusive",
        healthy,
        {"prefix_cache_hit_rate_min": 0.2},
    ),
    Case(
        "cache-off",
        "cache_hits_as_declared",
        "pass",
        "pass",
        lambda: healthy(metric=set_metric(prefix_queries=0.0, prefix_hits=0.0)),
    ),
    Case(
        "cache-off-and-wanted",
        "cache_hits_as_declared",
        "unknown",
        "inconclusive",
        lambda: healthy(declared_hit_rate=0.5, metric=set_metric(prefix_queries=0.0, prefix_hits=0.0)),
        tells=("set enable_prefix_caching",),
    ),
    Case(
        "no-hit-metric",
        "cache_hits_as_declared",
        "unknown",
        "inconclusive",
        lambda: healthy(
            rows=[replace(r, served_cached_tokens=None) for r in healthy_rows()], metric=missing("prefix_hits")
        ),
        tells=("vllm:prefix_cache_hits",),
    ),
    Case(
        "cached-tokens-in-answers-are-no-metric",
        "cache_hits_as_declared",
        "unknown",
        "inconclusive",
        lambda: healthy(metric=missing("prefix_hits", "prefix_queries")),
    ),
    Case(
        "nothing-served",
        "cache_hits_as_declared",
        "not_applicable",
        "fail",
        lambda: healthy(rows=[failed(row, "http_5xx", status=500) for row in healthy_rows()]),
    ),
    Case(
        "nothing-counted",
        "cache_hits_as_declared",
        "unknown",
        "inconclusive",
        lambda: healthy(metric=set_metric(prefix_queries=0.0, prefix_hits=0.0, prompt_tokens=5.0)),
    ),
    Case(
        "nothing-declared", "cache_hits_as_declared", "not_applicable", "pass", lambda: healthy(declared_hit_rate=None)
    ),
    # the client
    Case("on-time", "client_kept_up", "pass", "pass", healthy, tells=("at most 1.0 ms late",)),
    Case(
        "P79-late",
        "client_kept_up",
        "unknown",
        "inconclusive",
        lambda: healthy(rows=LATE),
        tells=("150 ms", "50 ms are allowed"),
    ),
    Case(
        "late-for-a-strict-objective",
        "client_kept_up",
        "unknown",
        "inconclusive",
        healthy,
        {"objectives": {"ttft_p95_s": 0.005}},
        ("0 ms are allowed",),
    ),
    Case("late-and-allowed", "client_kept_up", "pass", "pass", lambda: healthy(rows=LATE), {"send_lag_p99_s_max": 0.2}),
    Case(
        "busy",
        "client_kept_up",
        "unknown",
        "inconclusive",
        lambda: healthy(client=tuple(replace(c, cpu_fraction=0.85) for c in client())),
        tells=("85% of a core",),
    ),
    Case(
        "busy-and-allowed",
        "client_kept_up",
        "pass",
        "pass",
        lambda: healthy(client=tuple(replace(c, cpu_fraction=0.85) for c in client())),
        {"client_cpu_fraction_max": 0.9},
    ),
    Case(
        "timers-late",
        "client_kept_up",
        "unknown",
        "inconclusive",
        lambda: healthy(client=tuple(replace(c, loop_lag_p99_s=0.3) for c in client())),
        tells=("300 ms late",),
    ),
    Case(
        "timers-late-where-no-moment-counts",
        "client_kept_up",
        "pass",
        "pass",
        lambda: healthy(client=tuple(replace(c, loop_lag_p99_s=0.3) if c.phase == "peak" else c for c in client())),
    ),
    Case(
        "busy-in-the-warm-up",
        "client_kept_up",
        "pass",
        "pass",
        lambda: healthy(client=tuple(replace(c, cpu_fraction=0.99) if c.phase == "warm_up" else c for c in client())),
    ),
    Case("silent-client", "client_kept_up", "unknown", "inconclusive", lambda: healthy(client=())),
    Case(
        "times-backwards",
        "client_kept_up",
        "unknown",
        "inconclusive",
        lambda: healthy(rows=changed_rows("tail", lambda n, r: replace(r, first_token_s=1.0) if n == 0 else r)),
        tells=("run backwards in 1 request",),
    ),
    # counters
    Case("counted-alike", "counters_agree", "pass", "pass", healthy, tells=("35,780 answer tokens",)),
    Case(
        "foreign-traffic",
        "counters_agree",
        "unknown",
        "inconclusive",
        lambda: healthy(metric=more("generation_tokens", 4000.0, 50.0)),
        tells=("39,780 answer tokens", "somebody else asks it too"),
    ),
    Case(
        "foreign-prompts",
        "counters_agree",
        "unknown",
        "inconclusive",
        lambda: healthy(metric=more("prompt_tokens", 4000.0, 50.0)),
    ),
    Case(
        "foreign-requests",
        "counters_agree",
        "unknown",
        "inconclusive",
        lambda: healthy(metric=more("requests_done", 5.0, 50.0)),
    ),
    Case("a-probe", "counters_agree", "pass", "pass", lambda: healthy(metric=more("generation_tokens", 2.0, 50.0))),
    Case(
        "frozen",
        "counters_agree",
        "unknown",
        "inconclusive",
        lambda: healthy(metric=set_metric(generation_tokens=90.0, prompt_tokens=700.0, requests_done=5.0)),
        tells=("its counters stand still",),
    ),
    Case(
        "no-token-metric",
        "counters_agree",
        "unknown",
        "inconclusive",
        lambda: healthy(metric=missing("generation_tokens")),
        tells=("vllm:generation_tokens is not among",),
    ),
    Case(
        "no-first-reading",
        "counters_agree",
        "unknown",
        "inconclusive",
        lambda: healthy(look=lambda s: replace(s, metrics=None, error="x") if s.at_s < 4 else s),
        tells=("was not read before the first request",),
    ),
    Case(
        "no-last-reading",
        "counters_agree",
        "unknown",
        "inconclusive",
        lambda: healthy(look=lambda s: replace(s, metrics=None, is_healthy=True) if s.at_s > 134 else s),
        tells=("was not read after the last answer",),
    ),
    # restart
    Case("one-process", "no_restart", "pass", "pass", healthy),
    Case(
        "another-process",
        "no_restart",
        "unknown",
        "inconclusive",
        lambda: healthy(metric=at(80, process_start_s=1.7e9 + 80)),
        tells=("started anew",),
    ),
    Case(
        "counters-fell",
        "no_restart",
        "unknown",
        "inconclusive",
        lambda: healthy(
            metric=lambda m: replace(
                m, process_start_s=None, **({"generation_tokens": 1.0} if (m.at_s or 0) > 80 else {})
            )
        ),
    ),
    Case(
        "counters-reset-in-one-process",
        "no_restart",
        "unknown",
        "inconclusive",
        lambda: healthy(
            metric=lambda m: replace(m, generation_tokens=(m.generation_tokens or 0) - 20_000) if m.at_s == 80 else m
        ),
        tells=("counters were reset",),
    ),
    Case("no-process-metric", "no_restart", "pass", "pass", lambda: healthy(metric=missing("process_start_s"))),
    Case(
        "no-metrics-at-all",
        "no_restart",
        "unknown",
        "inconclusive",
        lambda: healthy(look=lambda s: replace(s, metrics=None, error="404", is_healthy=True)),
    ),
]
