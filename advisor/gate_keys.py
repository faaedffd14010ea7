"""The thresholds a workload file may set for verify, and the check each belongs to.

A new one is one row here. Its name ends in `_max` or `_min`, after the unit of what it bounds. Two keys bound nothing:
`over_limit` and `levels` say how much a failed check counts.
"""

from __future__ import annotations

import msgspec

from advisor.workload import Slo
from advisor.workload_fields import Field, Section, choice, number, share, whole

# Every check of a verdict that a workload file may make a warning, in the order they are told.
LOWERABLE = (
    *("workload_reproduced", "cache_hits_as_declared", "client_kept_up", "counters_agree", "no_restart"),
    *("requests_completed", "preemptions", "kv_peak", "kv_use_as_planned", "concurrency_served", "queue_drains"),
    *("kv_released", "blocks_as_planned", "over_limit_rejected", "gpu_memory_headroom", "memory_steady"),
    *("stalls", "slo_attainment", *Slo.__struct_fields__),
)
# Those without which there is no verdict.
FIXED = ("run_complete", "engine_alive", "no_oom")

LEVELS = Section(
    fields=dict.fromkeys(LOWERABLE, choice("error", "warn")) | dict.fromkeys(FIXED, choice("error")),
    example="a mapping such as {preemptions: warn}",
)


class GateKey(msgspec.Struct, frozen=True):
    """One threshold: the id of the check it sets, how it is read, its unit and what it bounds."""

    check: str
    field: Field
    unit: str
    meaning: str


GATE: dict[str, GateKey] = {
    "preemptions_max": GateKey("preemptions", whole("preemptions", 0), "count", "requests preempted during the run"),
    "success_rate_min": GateKey("requests_completed", share(), "share", "requests that completed, of those sent"),
    "failures_max": GateKey(
        "requests_completed", whole("requests", 0), "count", "requests that failed, whatever the class"
    ),
    "kv_peak_max": GateKey("kv_peak", share(), "share", "highest use of the KV cache"),
    "kv_full_s_max": GateKey("kv_peak", number("seconds", zero=True), "s", "time the KV cache was full"),
    "kv_after_drain_max": GateKey(
        "kv_released", share(zero=True), "share", "use of the KV cache after the last request"
    ),
    "waiting_max": GateKey("queue_drains", whole("requests", 0), "count", "longest queue"),
    "waiting_slope_per_s_max": GateKey("queue_drains", number("number", zero=True), "1/s", "growth of the queue"),
    "drain_s_max": GateKey("queue_drains", number("seconds"), "s", "time from the last arrival to an idle engine"),
    "blocks_difference_fraction_max": GateKey(
        "blocks_as_planned", share(zero=True), "share", "KV blocks the engine has, against the plan's"
    ),
    "length_difference_fraction_max": GateKey(
        "workload_reproduced", share(zero=True), "share", "lengths sent and received, against the workload's"
    ),
    "prefix_cache_hit_rate_min": GateKey(
        "cache_hits_as_declared", share(zero=True), "share", "tokens served from the prefix cache"
    ),
    "prefix_cache_hit_rate_max": GateKey(
        "cache_hits_as_declared", share(zero=True), "share", "tokens served from the prefix cache"
    ),
    "send_lag_p99_s_max": GateKey("client_kept_up", number("seconds"), "s", "p99 of sent minus scheduled"),
    "client_cpu_fraction_max": GateKey("client_kept_up", share(), "share", "one core's time the client used"),
    "gpu_memory_free_bytes_min": GateKey(
        "gpu_memory_headroom",
        whole("bytes", 0, 10**15),
        "bytes",
        "least free memory on any GPU during the run",
    ),
    "stall_s_max": GateKey("stalls", number("seconds"), "s", "longest gap between two tokens of one answer"),
    "slo_attainment_min": GateKey("slo_attainment", share(), "share", "requests that met every objective under `slo`"),
    "over_limit": GateKey(
        "over_limit_rejected",
        choice("error", "warn", "allow"),
        "level",
        "an answer that is shortened where its request should have been refused",
    ),
    "levels": GateKey(
        "any",
        LEVELS,
        "level",
        "`error` or `warn` by check: what fails at `warn` is told and does not fail the run",
    ),
}
