"""What a simulated load did: the timeline in steps, each request's fate, and the figures drawn from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import msgspec

Outcome = Literal["finished", "aborted", "rejected", "unfinished", "not_sent"]


class Stretch(NamedTuple):
    """`steps` equal steps from `first_step` on: one, unless nothing but a token per request happened.

    `blocks` are in use while the step is computed (the null block not counted), `tokens` computed in each step,
    `generating` of them one each for requests that only generate.
    """

    first_step: int
    steps: int
    running: int
    waiting: int
    tokens: int
    blocks: int
    preempted: int
    generating: int


class RequestOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One request's way. Steps are None where it did not come so far.

    `first_step` is its first admission, `first_token_step` computed its first token, `finish_step` its last;
    `hit_tokens` were found in the prefix cache, over all its admissions.
    """

    outcome: Outcome
    arrival_step: int
    first_step: int | None = None
    first_token_step: int | None = None
    finish_step: int | None = None
    preemptions: int = 0
    hit_tokens: int = 0


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run. `stuck`: a request could never be admitted, and the engine would wait for ever."""

    stretches: tuple[Stretch, ...]
    requests: tuple[RequestOutcome, ...]
    usable_blocks: int
    hit_tokens: int
    query_tokens: int
    stuck: bool = False

    @property
    def steps(self) -> int:
        """Steps in which the engine had something to do."""
        return sum(s.steps for s in self.stretches)

    @property
    def tokens(self) -> int:
        """Tokens computed, those computed again after a preemption among them."""
        return sum(s.tokens * s.steps for s in self.stretches)

    @property
    def peak_blocks(self) -> int:
        """The most blocks ever in use."""
        return max((s.blocks for s in self.stretches), default=0)

    @property
    def peak_running(self) -> int:
        """The most requests that ever ran at once."""
        return max((s.running for s in self.stretches), default=0)

    @property
    def peak_waiting(self) -> int:
        """The longest queue."""
        return max((s.waiting for s in self.stretches), default=0)

    @property
    def mean_blocks(self) -> float:
        """Blocks in use in the mean step."""
        return sum(s.blocks * s.steps for s in self.stretches) / self.steps if self.stretches else 0.0

    @property
    def mean_running(self) -> float:
        """Running requests in the mean step."""
        return sum(s.running * s.steps for s in self.stretches) / self.steps if self.stretches else 0.0

    def blocks_at(self, fraction: float) -> int:
        """Blocks in use that this share of the steps does not exceed (0.95: p95)."""
        return self._at(fraction, lambda s: s.blocks)

    def waiting_at(self, fraction: float) -> int:
        """The queue's length that this share of the steps does not exceed."""
        return self._at(fraction, lambda s: s.waiting)

    def _at(self, fraction: float, value: Callable[[Stretch], int]) -> int:
        rows = sorted((value(s), s.steps) for s in self.stretches)
        wanted, seen = fraction * self.steps, 0
        for found, steps in rows:
            seen += steps
            if seen >= wanted:
                return found
        return 0

    def full_steps(self, blocks_free: int = 0) -> int:
        """Steps in which no more than this many blocks were free."""
        return sum(s.steps for s in self.stretches if self.usable_blocks - s.blocks <= blocks_free)

    @property
    def preemptions(self) -> int:
        """How often a request lost its blocks and had to be computed again."""
        return sum(r.preemptions for r in self.requests)

    @property
    def preempted_share(self) -> float:
        """The share of admitted requests that were preempted at least once."""
        admitted = [r for r in self.requests if r.first_step is not None]
        return sum(r.preemptions > 0 for r in admitted) / len(admitted) if admitted else 0.0

    @property
    def prefix_hit_rate(self) -> float | None:
        """Prompt tokens found in the prefix cache, of all looked up; None without a cache or a request."""
        return self.hit_tokens / self.query_tokens if self.query_tokens else None

    def queue_growth_per_step(self) -> float | None:
        """By how many requests the queue grows in a step (least squares over the arrivals' time); None: too short.

        A positive slope that does not die out says the rate is more than the engine serves.
        """
        last = max((r.arrival_step for r in self.requests), default=0)
        rows = [(s.first_step + (s.steps - 1) / 2, s.waiting, s.steps) for s in self.stretches if s.first_step <= last]
        weight = sum(n for _, _, n in rows)
        if weight < 2:
            return None
        mean_x = sum(x * n for x, _, n in rows) / weight
        mean_y = sum(y * n for _, y, n in rows) / weight
        spread = sum(n * (x - mean_x) ** 2 for x, _, n in rows)
        return sum(n * (x - mean_x) * (y - mean_y) for x, y, n in rows) / spread if spread else None

    def each_step(self) -> Iterator[Stretch]:
        """The timeline, one row a step."""
        for s in self.stretches:
            for i in range(s.steps):
                yield s._replace(first_step=s.first_step + i, steps=1)
