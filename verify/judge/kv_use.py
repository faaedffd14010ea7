"""Use of the KV cache over time: share, blocks, time full; per phase and over the whole load.

vLLM 0.32 (v1/core/block_pool.py, get_usage) says 1 - free / (num_blocks - 1): one block, the null block, is never given
out, and blocks that are cached but free count as free. Older releases divide by num_blocks and so say 1 / num_blocks of
an idle pool; which it is can be seen from the pool when nothing runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from verify.judge.evidence import LOADED, Evidence, finite

FULL_USAGE = 0.995  # what is printed as 100 %
_HOLDS_AT_MOST_S = 5.0  # how long a reading speaks for the time after it


class KvUse(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the pool, weighted by the time each reading stands for."""

    peak_usage: float
    p95_usage: float
    mean_usage: float
    seconds_full: float
    samples: int


class KvTimeline:
    """The pool's use in a run. Figures are None where the metric was not there."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence

    @cached_property
    def idle_usage(self) -> float | None:
        """What the pool says of itself before the load, with nothing running."""
        idle = [
            usage
            for seen, m in self._evidence.readings
            if seen.at_s <= self._evidence.first_sent_s and not m.running and (usage := finite(m.kv_usage)) is not None
        ]
        return min(idle, default=None)

    @cached_property
    def counts_null_block(self) -> bool:
        """Whether this server counts vLLM's own block as used."""
        blocks, idle = self._evidence.num_blocks, self.idle_usage
        return bool(blocks and idle) and abs((idle or 0.0) * (blocks or 0) - 1) < 0.01

    @cached_property
    def usable_blocks(self) -> int | None:
        """Blocks that requests may hold."""
        blocks = self._evidence.num_blocks
        return blocks - 1 if blocks is not None and blocks > 1 else None

    def blocks(self, usage: float | None) -> int | None:
        """Blocks that requests hold at this use."""
        if usage is None or self.usable_blocks is None:
            return None
        if self.counts_null_block:
            return round(usage * (self.usable_blocks + 1)) - 1
        return round(usage * self.usable_blocks)

    def use(self, *phases: str) -> KvUse | None:
        """Use in these phases; None where it was not read."""
        weighted = self._weighted(phases)
        if not weighted:
            return None
        ordered = sorted(weighted)
        total = sum(seconds for _, seconds in ordered)
        reached = 0.0
        p95 = ordered[-1][0]
        for usage, seconds in ordered:
            reached += seconds
            if reached >= 0.95 * total:
                p95 = usage
                break
        return KvUse(
            peak_usage=ordered[-1][0],
            p95_usage=p95,
            mean_usage=sum(usage * seconds for usage, seconds in ordered) / total,
            seconds_full=sum(seconds for usage, seconds in ordered if usage >= FULL_USAGE),
            samples=len(ordered),
        )

    @cached_property
    def loaded(self) -> KvUse | None:
        """Use over every phase with a load."""
        return self.use(*LOADED)

    @cached_property
    def after_drain(self) -> float | None:
        """Use at the last reading, once the load is over and the engine had time to settle."""
        evidence = self._evidence
        if "drain" not in evidence.marks:
            return None
        began = max(evidence.marks["drain"].began_s, evidence.last_ended_s)
        return next((u for at, u in reversed(evidence.values("kv_usage")) if at >= began), None)

    def report(self) -> dict[str, Any]:
        """The verdict's `kv`."""
        evidence, planned = self._evidence, self._evidence.run.planned
        return {
            "num_blocks": evidence.num_blocks,
            "block_size": evidence.block_size,
            "usable_blocks": self.usable_blocks,
            "planned_num_blocks": planned.num_blocks if planned is not None else None,
            "planned_peak_blocks": planned_peak_blocks(evidence),
            **self._figures(self.loaded),
            "after_drain_usage": self.after_drain,
            "after_drain_blocks": self.blocks(self.after_drain),
            "phases": {name: self._figures(self.use(name)) for name in LOADED if name in evidence.marks},
        }

    def _figures(self, use: KvUse | None) -> dict[str, Any]:
        if use is None:
            return {
                **dict.fromkeys(("peak_usage", "peak_blocks", "p95_usage", "mean_usage", "seconds_full")), "samples": 0
            }  # fmt: skip
        return {
            "peak_usage": use.peak_usage,
            "peak_blocks": self.blocks(use.peak_usage),
            "p95_usage": use.p95_usage,
            "mean_usage": use.mean_usage,
            "seconds_full": use.seconds_full,
            "samples": use.samples,
        }

    def _weighted(self, phases: Sequence[str]) -> list[tuple[float, float]]:
        """Usage and the seconds each reading stands for: until the next look, or the end of its phase."""
        looks, found = self._evidence.looks, []
        for number, seen in enumerate(looks):
            usage = finite(seen.metrics.kv_usage) if seen.metrics is not None else None
            if usage is None or seen.phase not in phases:
                continue
            mark = self._evidence.marks.get(seen.phase or "")
            until = looks[number + 1].at_s if number + 1 < len(looks) else seen.at_s
            if mark is not None and mark.ended_s is not None:
                until = min(until, mark.ended_s)
            found.append((usage, min(_HOLDS_AT_MOST_S, max(0.001, until - seen.at_s))))
        return found


def planned_peak_blocks(evidence: Evidence) -> int | None:
    """What the plan has the peak phase hold: the load's concurrency of p95 requests, and no more than there are."""
    planned, mark = evidence.run.planned, evidence.marks.get("peak")
    if planned is None or planned.blocks_per_request is None or mark is None or mark.concurrency is None:
        return None
    prefix = evidence.limits.shared_prefix_tokens
    shared = -(-prefix // planned.block_size) if prefix and planned.block_size else 0
    each = -(-mark.concurrency // evidence.engines)
    usable = evidence.num_blocks - 1 if evidence.num_blocks else None
    held = each * planned.blocks_per_request + shared
    return held if usable is None else min(held, usable)
