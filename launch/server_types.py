"""What a look at a running server is made from and what it gives. Values only."""

from __future__ import annotations

import msgspec

from advisor.server_metrics import ServerMetrics
from launch.diagnosis_types import Diagnosis


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the server and the load beside its metrics; every field may be unknown.

    `samples` are readings between the first and the last, in order. `ladder` are (requests in flight, tokens per
    second) as measured at several loads. `symptoms` are complaints to look into: "quality-long-context".
    """

    samples: tuple[ServerMetrics, ...] = ()
    health_status: int | None = None  # of /health; None where it did not answer in time, which alone is not death
    max_num_seqs: int | None = None
    max_model_len: int | None = None
    kv_cache_dtype: str | None = None
    kv_scales_calibrated: bool | None = None
    rope_overridden: bool | None = None
    prefix_caching: bool | None = None
    declared_hit_rate: float | None = None  # share of prompt tokens
    offered_concurrency: int | None = None
    alone_ttft_s: float | None = None
    alone_tpot_s: float | None = None
    ladder: tuple[tuple[int, float], ...] = ()
    least_free_bytes: int | None = None  # of the GPU, over the time looked at
    queue_limit: bool | None = None
    symptoms: frozenset[str] = frozenset()

    @property
    def health_ok(self) -> bool | None:
        """Whether /health says that all is well."""
        return None if self.health_status is None else self.health_status == 200


class NotJudged(msgspec.Struct, frozen=True):
    """A symptom nobody can see from these readings, and what is missing for it."""

    code: str
    missing: str


class ServerDiagnosis(msgspec.Struct, frozen=True):
    """What was seen, worst first, and what could not be judged."""

    findings: tuple[Diagnosis, ...]
    not_judged: tuple[NotJudged, ...]


class Reading(msgspec.Struct, frozen=True):
    """Two readings, those between them, and what is known beside."""

    before: ServerMetrics
    after: ServerMetrics
    facts: ServerFacts

    @property
    def all(self) -> tuple[ServerMetrics, ...]:
        """Every reading in order."""
        return (self.before, *self.facts.samples, self.after)

    @property
    def seconds(self) -> float | None:
        """Between the first and the last; None where they have no time."""
        if self.before.at_s is None or self.after.at_s is None:
            return None
        return self.after.at_s - self.before.at_s

    def known(self, name: str) -> list[float]:
        """A figure of every reading that has it."""
        return [value for m in self.all if (value := getattr(m, name)) is not None]


Answer = Diagnosis | NotJudged | None
