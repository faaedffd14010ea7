"""What a plan is made of. msgspec.to_builtins of a Plan is the object that `kvadvise plan --json` prints."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from advisor.estimate import Estimate
from advisor.measured import MeasuredKey

PLAN_SCHEMA = "kvadvise.plan/1"

Outcome = Literal["fits", "fits_with_loss", "does_not_fit", "not_understood", "invalid"]
Severity = Literal["error", "warning", "note"]
Bound = Literal["kv", "mamba_blocks", "none"]


class Change(msgspec.Struct, frozen=True):
    """A second argument that one step moves with the first."""

    before: Any
    after: Any


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the priority table as walked. A step not needed has `after` equal to `before`.

    `binding` is what keeps the next request out, or the server from starting, before the step: `kv`,
    `mamba_blocks`, `start_check` (one request of max_model_len), `free_memory`, `weights`, `outside_budget`,
    `gpus` or `none`.
    """

    priority: int
    parameter: str
    before: Any
    after: Any
    reason: str
    binding: str
    concurrency_at_p95_before: int
    concurrency_at_p95_after: int
    starts_before: bool | None
    starts_after: bool | None
    also: dict[str, Change] = {}


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What the rank with least room holds, in bytes; `stage` is its pipeline rank."""

    total_bytes: Estimate
    budget_bytes: Estimate
    weights_bytes: Estimate
    activation_bytes: Estimate
    non_torch_bytes: Estimate
    cuda_graph_bytes: Estimate
    cuda_graphs_in_budget: bool
    kv_cache_bytes: Estimate
    outside_budget_bytes: Estimate
    stage: int = 0


class KvGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One KV cache group in vLLM's own grouping; `layers` counts real layers, not padding."""

    kind: str
    layers: int
    block_size: int
    page_size_bytes: int
    blocks_per_request: int


class Kv(msgspec.Struct, frozen=True, kw_only=True):
    """The KV pool as vLLM should report it, from the middle of the band; low and high are the band's ends.

    What depends on the size of the pool is None where that is not known (no size of the weights, no pin).
    """

    block_size: int
    num_blocks: int | None
    num_blocks_low: int | None
    num_blocks_high: int | None
    bytes_per_block: int
    bytes_per_token: int | None
    groups: tuple[KvGroup, ...]
    capacity_tokens: int | None
    max_concurrency: float | None
    bytes_per_request: int
    estimated_max_model_len: int | None
    needed_bytes: int | None  # what the target's p95 requests hold at once; the rest of the pool is only granted
    granted_bytes: int | None
    attention_backend: str


class Concurrency(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of p95 length held at once per data-parallel engine, counted at the low end of the band.

    at_p95 = (kv.num_blocks_low - 1 - shared_blocks) / blocks_per_request, rounded down: vLLM keeps one block
    back, and a shared prefix lies in the pool once.
    """

    target: int
    at_p95: int
    promised: int
    bound_by: Bound
    replicas: int
    at_p95_high: int  # the same at the high end of the band
    blocks_per_request: int  # what one request of p95 length holds, besides the shared prefix
    shared_blocks: int


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that holds for this plan, or is broken by it. `code` is stable, `source` says where it is known
    from."""

    code: str
    severity: Severity
    message: str
    remedy: str
    source: str


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """Another way, planned in full: its flags, what they hold, and whether that meets the target."""

    kind: str
    description: str
    outcome: Outcome
    starts: bool | None
    model: str
    gpu: str
    gpus: int
    flags: dict[str, Any]
    concurrency: Concurrency


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What was planned: the model, where its facts came from, and the device."""

    model: str
    revision: str | None
    resolved_from: str
    architecture: str | None
    gpu: str
    gpu_count: int
    vllm_version: str | None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Under which key a start of this plan is measured, the name of its file in the store, and how many starts with
    it the plan's own costs rest on: 0 where none is known.
    """

    key: MeasuredKey
    file: str
    starts: int = 0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Flags, and why: `kvadvise.plan/1`. The same input gives the same plan, byte for byte."""

    schema: str = PLAN_SCHEMA
    kvadvise_version: str
    inputs_sha256: str
    outcome: Outcome
    flags: dict[str, Any] = {}
    argv: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    memory: Memory | None = None
    kv: Kv | None = None
    concurrency: Concurrency | None = None
    starts: bool | None = None
    findings: tuple[Finding, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    assumptions: tuple[str, ...] = ()
    subject: Subject | None = None
    workload: dict[str, Any] | None = None
    measured: Measured | None = None
