"""From a workload to the whole schedule of a run, before the clock starts. Pure: (workload, limits, seed) decide it.

Every phase asks one thing: the load's shapes (warm_up), an easy load (regular), the longest request (long), the target
at p95 for as long as it takes to use every block again (peak), the load as it comes (tail), what cannot be served
(over_limit), clients that leave (cancel), and before and after them an idle engine (baseline, drain).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence

import msgspec

from advisor.workload import Load, WorkloadFile
from verify.load import arrivals, lengths
from verify.load.bounding import bounded
from verify.load.prompts import own_key
from verify.load.randomness import stream
from verify.load.trace_types import Trace, TraceRow
from verify.load.types import Limits, Mode, Part, Phase, PhaseName, PlannedRequest, Schedule, Unsendable

PHASES: tuple[PhaseName, ...] = (
    "baseline", "warm_up", "regular", "long", "peak", "tail", "over_limit", "cancel", "drain",
)  # fmt: skip
SHARED_KEY = "shared"
BASELINE_S, DRAIN_S = 3.0, 60.0
TURNOVERS = 2  # the pool's blocks are written so often in the peak
_POOL_OF_TARGET = 8  # a pool that holds more than so many times the target is not written over and over
_RESOLVES = {"p50": 12, "p95": 59, "p99": 299}  # requests without a miss that show a percentile (binomial, 95 %)
_TAIL_REQUESTS = 100
_MOST_TAIL = 2000
_WARM_UP_TOKENS = 16


class _Maker:
    """Numbers requests as they are planned, and leaves out those that no answer could ever fit."""

    def __init__(self, load: Load, limits: Limits) -> None:
        self.load = load
        self.limits = limits
        self.index = 0
        self.unsendable: list[tuple[int, int]] = []

    def request(self, phase: PhaseName, prompt: int, output: int, *, is_shared: bool = True) -> PlannedRequest:
        """One request; the shared prefix comes first, what follows it is the request's own."""
        shared = min(self.load.shared_prefix_tokens, prompt - 1) if is_shared else 0
        parts = (Part(SHARED_KEY, shared),) if shared > 0 else ()
        made = PlannedRequest(
            index=self.index, phase=phase, prompt_tokens=prompt, output_tokens=output,
            parts=(*parts, Part(own_key(self.index), prompt - shared)),
        )  # fmt: skip
        self.index += 1
        return made

    def fits(self, prompt: int, output: int) -> bool:
        """Whether the server can answer it whole; what it cannot is counted."""
        if prompt + output <= self.limits.max_model_len and prompt >= 1 and output >= 1:
            return True
        self.unsendable.append((prompt, output))
        return False

    def traced(self, row: TraceRow, extra: int) -> PlannedRequest:
        """A recorded request: its blocks as parts, so that what was shared is shared again."""
        index, prompt = self.index, row.prompt_tokens + extra
        parts = [Part(f"b{block}", row.block_tokens) for block in row.blocks[:-1]]
        left = prompt - sum(part.tokens for part in parts)
        if row.blocks and not extra:
            parts.append(Part(f"b{row.blocks[-1]}", left))
        else:
            parts.append(Part(own_key(index), left))
        self.index += 1
        return PlannedRequest(
            index=index, phase="tail", prompt_tokens=prompt, output_tokens=row.output_tokens, parts=tuple(parts),
            scheduled_s=row.at_s, body=row.body,
        )  # fmt: skip


def make_schedule(
    workload: WorkloadFile,
    limits: Limits,
    seed: int,
    *,
    phases: Sequence[PhaseName] | None = None,
    minutes: float | None = None,
    trace: Trace | None = None,
) -> Schedule:
    """The schedule of a run. `phases` are those to play (baseline and drain come with any), `minutes` bounds their time
    as far as it can be worked out from the objectives.
    """
    wanted = PHASES if phases is None else [name for name in PHASES if name in {*phases, "baseline", "drain"}]
    maker = _Maker(workload.workload, limits)
    makers: dict[PhaseName, Callable[[], Phase | None]] = {
        "baseline": lambda: _idle("baseline", BASELINE_S, "the engine before any load: nothing runs, no block is held"),
        "warm_up": lambda: _warm_up(maker),
        "regular": lambda: _regular(maker),
        "long": lambda: _long(maker),
        "peak": lambda: _peak(maker, workload),
        "tail": lambda: _tail(maker, workload, seed, trace),
        "over_limit": lambda: _over_limit(maker),
        "cancel": lambda: _cancel(maker),
        "drain": lambda: _idle("drain", DRAIN_S, "until nothing runs and every block is back, at most so long"),
    }
    made = [phase for name in wanted if (phase := makers[name]()) is not None]
    kept, notes = bounded(made, workload.slo, minutes)
    notes += trace.notes if trace is not None else ()
    return Schedule(
        seed=seed,
        sha256=_identity(seed, limits, kept),
        phases=tuple(kept),
        unsendable=_grouped(maker.unsendable),
        dropped=dict(trace.dropped) if trace is not None else {},
        figures=_figures(kept),
        declared_hit_rate=declared_hit_rate(kept, limits),
        notes=tuple(notes),
    )


def at_p95(load: Load) -> tuple[int, int]:
    """Prompt (after the chat template) and answer at their p95: what the promise is made for."""
    return load.prompt_tokens.at_p95 + load.chat_template_tokens, load.output_tokens.at_p95


def longest(load: Load) -> tuple[int, int]:
    """The longest prompt (after the chat template) and the longest answer."""
    return load.prompt_tokens.longest + load.chat_template_tokens, load.output_tokens.longest


def declared_hit_rate(phases: Iterable[Phase], limits: Limits) -> float | None:
    """Prompt tokens that the prefix cache should serve, of all that are sent; None where a prompt's blocks are a
    trace's or the block size is not known. Whole blocks only, and a prefix is computed once before it is found.
    """
    requests = [request for phase in phases for request in phase.requests if request.expect == "answer"]
    if any(r.body is not None or any(p.key.startswith("b") for p in r.parts) for r in requests) or not requests:
        return None
    shared = [part.tokens for request in requests for part in request.parts if part.key == SHARED_KEY]
    if not shared:
        return 0.0
    if limits.block_size is None:
        return None
    whole = sum(tokens // limits.block_size * limits.block_size for tokens in shared)
    first = max(shared) // limits.block_size * limits.block_size
    return (whole - first) / sum(request.prompt_tokens for request in requests)


def _idle(name: PhaseName, seconds: float, reason: str) -> Phase:
    return Phase(
        name=name, mode="idle", seconds=seconds, estimate_s=seconds if name == "baseline" else None, reason=reason
    )


def _closed(name: PhaseName, requests: list[PlannedRequest], concurrency: int, reason: str) -> Phase | None:
    if not requests:
        return None
    return Phase(
        name=name, mode="closed", requests=tuple(requests), concurrency=min(concurrency, len(requests)), reason=reason
    )


def _warm_up(maker: _Maker) -> Phase | None:
    """The load's shapes, so that what compiles or is captured late does so now: the target's batch, the longest."""
    load = maker.load
    prompt, output = at_p95(load)
    most, _ = longest(load)
    n = min(load.concurrency, 64)
    shapes = [(most, min(output, _WARM_UP_TOKENS)), *[(prompt, min(output, _WARM_UP_TOKENS))] * n]
    return _closed(
        "warm_up", [maker.request("warm_up", p, o) for p, o in shapes if maker.fits(p, o)], n,
        f"the load's shapes, not judged: the longest prompt, then {n} at once",
    )  # fmt: skip


def _regular(maker: _Maker) -> Phase | None:
    load = maker.load
    n = lengths.ordered(load.prompt_tokens, 101)[50] + load.chat_template_tokens
    output = lengths.ordered(load.output_tokens, 101)[50]
    at_once = max(1, load.concurrency // 4)
    count = min(32, max(8, 2 * at_once))
    return _closed(
        "regular", [maker.request("regular", n, output) for _ in range(count) if maker.fits(n, output)], at_once,
        f"an easy load: the median request ({n} + {output} tokens), {at_once} at once",
    )  # fmt: skip


def _long(maker: _Maker) -> Phase | None:
    """Fills max_model_len to the token: the load's longest answer after as long a prompt as there is room for."""
    most = maker.limits.max_model_len
    output = min(longest(maker.load)[1], most // 2)
    prompt = most - output
    if prompt < 1 or output < 1:
        return None
    return _closed(
        "long", [maker.request("long", prompt, output) for _ in range(2)], 1,
        f"the longest request this server takes: {prompt} + {output} = max_model_len {most}, one at a time",
    )  # fmt: skip


def _peak(maker: _Maker, workload: WorkloadFile) -> Phase | None:
    load = maker.load
    prompt, output = at_p95(load)
    if not maker.fits(prompt, output):
        return None
    each, reasons = prompt + output, [f"3 x {load.concurrency} at once"]
    needed = 3 * load.concurrency
    capacity = maker.limits.capacity_tokens
    if capacity is not None:
        own = each - min(load.shared_prefix_tokens, prompt - 1)
        pool = min(capacity, _POOL_OF_TARGET * load.concurrency * each)
        turnover = -(-TURNOVERS * pool // own)
        if turnover > needed:
            needed = turnover
            what = (
                f"the pool's {capacity:,} tokens"
                if pool == capacity
                else f"{_POOL_OF_TARGET} times the target's tokens"
            )
            reasons = [f"{TURNOVERS} x {what} / {own} a request"]
    resolve = _resolving(workload) if load.requests_per_s is None and load.trace is None else 0
    if resolve > needed:
        needed, reasons = resolve, [f"{resolve} requests tell whether an objective is met"]
    what = f"{load.concurrency} requests of p95 length ({prompt} + {output}) at once"
    return _closed(
        "peak", [maker.request("peak", prompt, output) for _ in range(needed)], load.concurrency,
        f"the promise: {what}; {reasons[0]} = {needed}",
    )  # fmt: skip


def _resolving(workload: WorkloadFile) -> int:
    """Requests it takes to show the strictest percentile among the objectives."""
    given = [name for name, value in msgspec.structs.asdict(workload.slo).items() if value is not None]
    return max((n for share, n in _RESOLVES.items() if any(share in name for name in given)), default=0)


def _tail(maker: _Maker, workload: WorkloadFile, seed: int, trace: Trace | None) -> Phase | None:
    """The load as it comes, in its own lengths: a trace, arrivals at the rate, or the target at once."""
    load = workload.workload
    if trace is not None:
        return _of_trace(maker, trace)
    herd = load.concurrency if load.requests_per_s is None else 0  # the first of a closed loop come all at once
    n = max(_TAIL_REQUESTS, _resolving(workload) + herd)
    prompts = lengths.sample(load.prompt_tokens, n, stream(seed, "prompt lengths"), extra=load.chat_template_tokens)
    outputs = lengths.sample(load.output_tokens, n, stream(seed, "output lengths"))
    pairs = [(p, o) for p, o in zip(prompts, outputs, strict=True) if maker.fits(p, o)]
    requests = [maker.request("tail", p, o) for p, o in pairs]
    if load.requests_per_s is None:
        return _closed(
            "tail", requests, load.concurrency, f"the load's own lengths, {load.concurrency} at once; {n} show its p99"
        )
    times, how = _times(load, len(requests), stream(seed, "arrivals"))
    timed = [msgspec.structs.replace(r, scheduled_s=at) for r, at in zip(requests, times, strict=True)]
    if not timed:
        return None
    return Phase(
        name="tail", mode="open", requests=tuple(timed), reason=f"the load's own lengths, arriving {how}, whatever the "
        "server does",
    )  # fmt: skip


def _times(load: Load, n: int, rng: random.Random) -> tuple[list[float], str]:
    rate = load.requests_per_s or 1.0
    return arrivals.poisson(n, rate, rng), f"at random at {rate:g} a second"


def _of_trace(maker: _Maker, trace: Trace) -> Phase | None:
    extra = maker.load.chat_template_tokens
    rows = trace.rows[:_MOST_TAIL]
    requests = [maker.traced(row, extra) for row in rows if maker.fits(row.prompt_tokens + extra, row.output_tokens)]
    if not requests:
        return None
    of = f"{len(requests):,} of {trace.read:,} requests of {trace.name}"
    if any(request.scheduled_s is None for request in requests):
        return _closed("tail", requests, maker.load.concurrency, f"{of}, {maker.load.concurrency} at once")
    mode: Mode = "open"
    return Phase(name="tail", mode=mode, requests=tuple(requests), reason=f"{of}, as they came")


def _over_limit(maker: _Maker) -> Phase | None:
    """What must not be served whole: a prompt beyond max_model_len, and one whose answer would end beyond it."""
    most = maker.limits.max_model_len
    answer = min(16, most // 4)
    too_long = maker.request("over_limit", most + 1, answer, is_shared=False)
    no_room = maker.request("over_limit", most - answer, 4 * answer, is_shared=False)
    requests = [
        msgspec.structs.replace(too_long, expect="refusal"),
        msgspec.structs.replace(no_room, expect="refusal_or_shortened"),
    ]
    return _closed(
        "over_limit", requests, 1,
        f"a prompt of {most + 1} tokens, to be refused, and one of {most - answer} that asks for {4 * answer} more",
    )  # fmt: skip


def _cancel(maker: _Maker) -> Phase | None:
    """Clients that leave: every second before its first token, the others after a few."""
    load = maker.load
    prompt, output = at_p95(load)
    if not maker.fits(prompt, output):
        return None
    n = max(2, min(load.concurrency, 16))
    leaving = [0 if i % 2 else max(1, min(8, output // 2)) for i in range(n)]
    requests = [
        msgspec.structs.replace(maker.request("cancel", prompt, output), expect="cancel", cancel_after_tokens=tokens)
        for tokens in leaving
    ]
    return _closed("cancel", requests, n, f"{n} clients that leave, half of them before the first token")


def _identity(seed: int, limits: Limits, phases: Sequence[Phase]) -> str:
    content = msgspec.json.encode(
        [seed, limits, [[phase.name, phase.mode, phase.concurrency, phase.requests] for phase in phases]]
    )
    return hashlib.sha256(content).hexdigest()


def _grouped(pairs: Sequence[tuple[int, int]]) -> tuple[Unsendable, ...]:
    if not pairs:
        return ()
    return (
        Unsendable(
            reason="prompt + answer is more than max_model_len",
            count=len(pairs),
            longest_prompt_tokens=max(p for p, _ in pairs),
            longest_output_tokens=max(o for _, o in pairs),
        ),
    )


def _figures(phases: Iterable[Phase]) -> dict[str, float]:
    tail = next((phase for phase in phases if phase.name == "tail"), None)
    if tail is None:
        return {}
    found: dict[str, float] = {}
    for name in ("prompt_tokens", "output_tokens"):
        values = [getattr(request, name) for request in tail.requests]
        for share in (50, 90, 95, 99):
            found[f"{name}_p{share}"] = lengths.nearest_rank(values, share / 100)
        found[f"{name}_max"] = max(values)
    if tail.mode == "open":
        found |= arrivals.figures(sorted(r.scheduled_s for r in tail.requests if r.scheduled_s is not None))
    return found
