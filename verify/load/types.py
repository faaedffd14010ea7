"""A schedule as values: phases, requests, and what was left out and why. One (workload, seed), one schedule."""

from __future__ import annotations

from typing import Literal

import msgspec

PhaseName = Literal[
    "baseline", "warm_up", "regular", "long", "peak", "tail", "over_limit", "cancel", "drain",
]  # fmt: skip
Mode = Literal["open", "closed", "idle"]

# What a request must come back as: a whole answer of exactly its length; a clear refusal with a status of 4xx; such a
# refusal or an answer that the server has shortened to what its context leaves; or nothing, since its client leaves.
Expect = Literal["answer", "refusal", "refusal_or_shortened", "cancel"]


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A run of prompt tokens. Equal keys give equal tokens in every process and every run of one seed."""

    key: str
    tokens: int


class PlannedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, before it is sent.

    `index` is its place in the whole schedule and unique in it. `scheduled_s` counts from its phase's start; None in a
    closed loop, where it is sent as soon as one of the phase's places is free. `parts` add up to `prompt_tokens`.
    `cancel_after_tokens` (only with expect "cancel"): its client closes the connection after so many answer tokens, 0
    before the first. `body` is a recorded request to be sent as it is to /v1/chat/completions, with `max_tokens` of its
    own; its prompt's length is then what the log said and is not forced.
    """

    index: int
    phase: PhaseName
    prompt_tokens: int
    output_tokens: int
    parts: tuple[Part, ...]
    scheduled_s: float | None = None
    expect: Expect = "answer"
    cancel_after_tokens: int | None = None
    body: bytes | None = None


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """One phase: nothing but its own load runs while it lasts.

    open: requests go out at their `scheduled_s`, whatever the server does. closed: `concurrency` places, each sends
    the next request of `requests` when its last one has ended. idle: nothing is sent for `seconds`. `estimate_s` is
    how long it may take (None where nothing is known to work it out from), `reason` why it is there, with its sum.
    """

    name: PhaseName
    mode: Mode
    requests: tuple[PlannedRequest, ...] = ()
    concurrency: int | None = None
    seconds: float | None = None
    estimate_s: float | None = None
    reason: str = ""


class Unsendable(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of the workload that the server could never answer whole, found before anything is sent."""

    reason: str
    count: int
    longest_prompt_tokens: int
    longest_output_tokens: int
    phase: PhaseName | None = None  # the one they were meant for


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run before it starts.

    `sha256` identifies it (workload's load, seed, limits, phases). `dropped` counts rows of a trace by the reason they
    were left out for; rows read = kept + sum of dropped. `figures` are what was really drawn, for the report: mean
    rate, gap CV, dispersion at 1, 10 and 60 s, percentiles of lengths.
    """

    seed: int
    sha256: str
    phases: tuple[Phase, ...]
    unsendable: tuple[Unsendable, ...] = ()
    dropped: dict[str, int] = {}
    figures: dict[str, float] = {}
    declared_hit_rate: float | None = None  # prompt tokens that the prefix cache should serve, over all prompt tokens
    notes: tuple[str, ...] = ()
    times_are: str = ""  # whose the phases' times are, in words; empty where nobody knows them


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a server is: prompt tokens a second, of all its requests together, and seconds from one token of an
    answer to the next at the target concurrency.
    """

    prefill_tokens_per_s: float
    tpot_s: float


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the server that will be asked can take; None where it is not known.

    `capacity_tokens` and `blocks` are the KV pool's, `block_size` its tokens a block.
    """

    max_model_len: int
    max_num_seqs: int | None = None
    capacity_tokens: int | None = None
    block_size: int | None = None
