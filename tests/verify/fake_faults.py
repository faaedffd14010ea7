"""The faults the fake server can have. A number after `=` is each fault's own; without one its usual.

Those marked "each n-th" strike every request, or with a number every n-th. All begin after `fault_after` requests.
"""

from __future__ import annotations

FAULTS: dict[str, str] = {
    # the process
    "dies": "ends in the middle of streams; nobody listens any more",
    "oom": "writes CUDA's out-of-memory line to stderr and ends as in dies",
    "restart": "breaks every connection, is away for 0.3 s, comes back with counters at 0 and another start time, once",
    "memory_creep": "resident memory grows by so many bytes (4,000,000) every 50 ms, idle or not",
    # streams
    "stream_breaks": "the connection is reset half-way (each n-th)",
    "error_event": "an error event half-way in an answer of status 200 (each n-th)",
    "truncated": "ends cleanly half-way, no finish_reason, no usage, no [DONE] (each n-th)",
    "no_finish_reason": "the last token says finish_reason null (each n-th)",
    "garbage_event": "an event that is no JSON (each n-th)",
    "stream_stalls": "one stream stops half-way and stays open (each n-th)",
    "hang": "no more tokens for anybody; /health still answers 200",
    "slow_drip": "steps take so many times as long (50)",
    "coalesced": "so many events (8) in one write",
    "split_bytes": "the answer comes in writes of 7 bytes",
    "odd_events": "CRLF, comments, `data:` without a space, U+2028, emoji, text like token_ids: all legal",
    "huge_lines": "the second event carries so many bytes (2,000,000) of text",
    "until_close": "no framing: the answer ends with its connection; legal",
    "early_close": "closes the connection after each answer without having said so",
    # counts
    "wrong_prompt_tokens": "usage says 27 tokens more than were sent (each n-th)",
    "wrong_completion_tokens": "usage says 3 tokens fewer than were streamed (each n-th)",
    "short_outputs": "ends after 60 % of the tokens, min_tokens or not (each n-th)",
    "no_usage": "no usage chunk (each n-th)",
    # refusals
    "reject_503": "refuses at admission (each n-th)",
    "http_400": "refuses everything with 400",
    "http_500": "answers everything with 500",
    "redirect": "answers 307 (each n-th)",
    "wrong_model": "serves another model name; 404 for ours",
    "over_limit_400": "refuses with 400 what current vLLM shortens; legal",
    "over_limit_500": "answers 500 to a prompt that is too long",
    "cuts_prompts": "cuts a prompt that is too long and answers",
    # what is going on inside
    "silent_preemptions": "the preemption counter grows with every step",
    "cache_hits": "half of all prompt tokens are counted as prefix cache hits",
    "leak_after_cancel": "the blocks of a client that left stay held",
    "waiting_grows": "most of the time nobody leaves the queue",
    "connection_cap": "connections beyond so many (100) are not read from",
    "foreign_traffic": "counters grow without us",
    "stuck_running": "num_requests_running never goes below 1",
    # metrics and health
    "metrics_missing": "/metrics is 404",
    "metrics_old_names": "/metrics has the names of vLLM 0.8",
    "metrics_unknown_names": "/metrics has names nobody knows",
    "metrics_reset": "counters start again from 0, once, in the same process",
    "metrics_frozen": "/metrics says what it said first",
    "metrics_garbage": "/metrics is no Prometheus text",
    "metrics_nan": "the KV usage is NaN",
    "no_preemption_metric": "the preemption counter is not there",
    "unhealthy": "/health is 503",
    "slow_health": "/health takes so many seconds (10)",
}
