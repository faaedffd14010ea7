"""What two readings of a running server show: preemptions, thrash, a queue without end, a frozen engine, and the rest.

Pure: readings come in parsed (advisor/server_metrics.py). Every symptom is judged or named as not judged; a
metric that the server lacks is never taken for zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.server_metrics import ServerMetrics
from launch import symptoms_load, symptoms_state
from launch.diagnosis_types import Diagnosis
from launch.server_types import Answer, NotJudged, Reading, ServerDiagnosis, ServerFacts

_LOOKS: Sequence[Callable[[Reading], Answer]] = (
    *(symptoms_state.dead, symptoms_state.frozen, symptoms_load.preemptions, symptoms_load.thrash, symptoms_load.queue),
    *(symptoms_load.waiting_with_room, symptoms_load.client_limited, symptoms_load.flat_throughput),
    *(symptoms_load.slow_together, symptoms_load.prefix_cache, symptoms_state.device_room),
    *(symptoms_state.host_memory, symptoms_state.rejections, symptoms_state.quality),
)

SERVER_CODES: tuple[str, ...] = (
    *(
        "server-restarted",
        "engine-died",
        "engine-frozen",
        "preemptions",
        "kv-thrash",
        "queue-unbounded",
        "waiting-low-usage",
    ),
    *("client-limited", "memory-free-throughput-flat", "alone-fast-together-slow", "prefix-cache-warm"),
    *("prefix-cache-cold", "prefix-cache-off", "gpu-memory-thin", "host-memory-grows", "admission-rejected"),
    "quality-long-context",
)


def diagnose_server(before: ServerMetrics, after: ServerMetrics, facts: ServerFacts | None = None) -> ServerDiagnosis:
    """Every symptom that two readings of one server (and those in between) show."""
    reading = Reading(before, after, facts or ServerFacts())
    gone = symptoms_state.anew(reading)
    answers = [gone] if gone is not None else [look(reading) for look in _LOOKS]
    findings = [a for a in answers if isinstance(a, Diagnosis)]
    order = {"error": 0, "warning": 1, "note": 2}
    return ServerDiagnosis(
        tuple(sorted(findings, key=lambda f: order[f.severity])),
        tuple(a for a in answers if isinstance(a, NotJudged)),
    )
