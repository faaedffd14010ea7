"""What is written down while a run goes on. Times are seconds on the run's own monotonic clock, 0 at its start."""

from __future__ import annotations

from typing import Literal

import msgspec

from advisor.server_metrics import ServerMetrics
from verify.client.types import ClientFacts
from verify.load.types import PhaseName

# ok: what was expected came back whole. "refused" is a 4xx that was expected, "shortened" an answer that the server cut
# to its context, "cancelled" a client that left as planned. The others are classes of failure; "abandoned" is a request
# still open when the run was stopped.
Outcome = Literal[
    "ok", "refused", "shortened", "cancelled",
    "connect_error", "rejected", "http_4xx", "http_5xx", "stream_error", "truncated", "wrong_length", "client_timeout",
    "abandoned",
]  # fmt: skip


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it went. None: it did not come that far, or the server did not say.

    `sent_s` is when its first byte was written, `first_token_s` and `last_token_s` when the reads arrived that held its
    first and last token. `first_chunk_tokens` are the tokens that came with the first. `max_stall_s` is the longest gap
    between two reads with tokens. `chunk_gaps_s` is kept as (p50, p95, p99) of the gaps. `served_*` are the server's
    own counts.
    """

    index: int
    phase: PhaseName
    prompt_tokens: int
    output_tokens: int
    outcome: Outcome
    scheduled_s: float | None = None
    sent_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    ended_s: float | None = None
    first_chunk_tokens: int | None = None
    max_stall_s: float | None = None
    chunk_gaps_s: tuple[float, float, float] | None = None
    served_prompt_tokens: int | None = None
    served_output_tokens: int | None = None
    served_cached_tokens: int | None = None
    streamed_tokens: int = 0  # counted from the stream itself
    chunks: int = 0
    status: int | None = None  # HTTP
    finish_reason: str | None = None
    error: str | None = None  # short, redacted, one line
    retries: int = 0  # connections that broke before anything was sent on them
    process: int = 0
    is_recorded: bool = False  # a recorded request, sent as it was: its lengths are the log's and were not forced


class GpuMemory(msgspec.Struct, frozen=True, array_like=True):
    """One GPU at one moment, in bytes."""

    uuid: str
    used_bytes: int
    total_bytes: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the server. `metrics` is None with `error` where it did not answer or answered something else.

    `resident_bytes` is the engine's process group's, only where the engine runs here. `is_healthy` is what /health
    said, None where it was not asked.
    """

    at_s: float
    phase: PhaseName | None
    metrics: ServerMetrics | None = None
    error: str | None = None
    scrape_s: float | None = None
    is_healthy: bool | None = None
    resident_bytes: int | None = None
    gpus: tuple[GpuMemory, ...] | None = None


class PhaseMark(msgspec.Struct, frozen=True, kw_only=True):
    """When a phase began and ended; `ended_s` None where the run stopped in it."""

    name: PhaseName
    began_s: float
    ended_s: float | None = None
    concurrency: int | None = None  # places of a closed loop
    mode: str = "open"
    planned_requests: int = 0


class LogEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the engine's log that means something: "oom", "engine_dead", "jit", "restart" or a diagnosis code."""

    kind: str
    line: str
    at_s: float | None = None
    message: str = ""
    remedy: str = ""


class LogWatch(msgspec.Struct, frozen=True, kw_only=True):
    """The log as a whole: whether it was ours to read, whether it could be read to its end."""

    path: str | None
    readable: bool
    events: tuple[LogEvent, ...] = ()


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """What answered: as it said itself, before the load."""

    url: str
    model: str | None = None
    max_model_len: int | None = None
    vllm_version: str | None = None
    num_blocks: int | None = None
    block_size: int | None = None
    engines: int | None = None
    cache_config: dict[str, str] = {}


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What the plan said, as far as a verdict needs it; None where it gave no number."""

    inputs_sha256: str
    outcome: str
    num_blocks: int | None = None
    num_blocks_low: int | None = None
    num_blocks_high: int | None = None
    block_size: int | None = None
    capacity_tokens: int | None = None
    max_concurrency: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    kv_cache_bytes: int | None = None
    at_p95: int | None = None
    promised: int | None = None
    blocks_per_request: int | None = None
    flags: dict[str, object] = {}
    vllm_version: str | None = None
    gpu_total_bytes: int | None = None
    outside_budget_bytes: int | None = None
    gpu_memory_utilization: float | None = None


Ending = Literal["finished", "time_limit", "interrupted", "engine_lost", "hung", "load_refused", "harness_error"]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """All of a run, as stored in a report's directory. A verdict is a function of this and of thresholds.

    `ended` says why it ended; `ending_text` in words. `engine_exit` is how the engine's process ended where it is ours
    and has. `rows` are in the order of `index`, `snapshots` in the order of time.
    """

    schema: str = "kvadvise.run/1"
    kvadvise_version: str
    started_at: str  # ISO 8601 with zone: the wall clock at 0 s
    schedule_sha256: str
    seed: int
    workload_name: str | None
    planned: Planned | None
    served: Served
    rows: tuple[RequestRow, ...]
    snapshots: tuple[Snapshot, ...]
    marks: tuple[PhaseMark, ...]
    client: tuple[ClientFacts, ...] = ()
    log: LogWatch | None = None  # None where the log is not ours
    engine_exit: str | None = None
    is_local: bool = False  # the engine's processes run on this machine and were watched
    ended: Ending = "finished"
    ending_text: str = ""
    declared_hit_rate: float | None = None
    unsendable_requests: int = 0
    dropped: dict[str, int] = {}
    load_figures: dict[str, float] = {}
    load_notes: tuple[str, ...] = ()  # what the schedule could not do, in words
    environment: dict[str, str] = {}
