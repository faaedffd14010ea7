"""What a verdict is made of: `kvadvise.verdict/1`. Every report is printed from one Verdict."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

VERDICT_SCHEMA = "kvadvise.verdict/1"

Result = Literal["pass", "fail", "inconclusive"]
Status = Literal["pass", "fail", "unknown", "not_applicable"]
Level = Literal["error", "warn"]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing asked of the run. `interval` is the range the truth lies in (95 % at each end), where it is a share or
    percentile; None at an end is unbounded, and so is a percentile observed as "unbounded": too many have failed.

    unknown: it could not be told; at level error that makes the verdict inconclusive. `is_validity`: it asks whether
    the run measured what it should have, not whether the server is good; such a one fails into `unknown`.
    """

    id: str
    phase: str | None
    level: Level
    status: Status
    observed: float | str | None
    threshold: float | str | None
    unit: str
    n: int | None
    interval: tuple[float | None, float | None] | None
    reason: str
    is_validity: bool = False
    remedy: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, and all it rests on. The keys are those of contracts section 4."""

    schema: str = VERDICT_SCHEMA
    kvadvise_version: str
    verdict: Result
    summary: str  # one sentence: the verdict and what decided it
    checks: tuple[Check, ...]
    kv: dict[str, Any]
    server: dict[str, Any]
    requests: dict[str, Any]
    latency: dict[str, Any]
    plan: dict[str, Any] | None
    target: dict[str, Any]
    environment: dict[str, Any]
    run: dict[str, Any]  # started_at, seconds, seed, schedule, ending, phases, files, how to reproduce
    diagnosis: dict[str, Any] | None = None  # where the engine did not start: code, message, remedy, evidence
    notes: tuple[str, ...] = ()
