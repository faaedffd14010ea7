"""From a workload to the whole schedule of a run, before the clock starts. Pure: (workload, limits, seed) decide it.

Every phase asks one thing: the load's shapes (warm_up), an easy load (regular), the longest request (long), the target
at p95 for as long as it takes to use every block again (peak), the load as it comes (tail), what cannot be served
(over_limit), clients that leave (cancel), and before and after them an idle engine (baseline, drain).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from advisor.workload import WorkloadFile
from verify.load import bounding, hits, tail
from verify.load import phases as parts
from verify.load.phases import SHARED_KEY, TURNOVERS, Maker
from verify.load.trace_cut import Cut, cut
from verify.load.trace_types import Trace
from verify.load.types import Limits, Pace, Phase, PhaseName, Schedule

__all__ = ("BASELINE_S", "DRAIN_S", "PHASES", "SHARED_KEY", "TURNOVERS", "make_schedule")
PHASES: tuple[PhaseName, ...] = (
    "baseline", "warm_up", "regular", "long", "peak", "tail", "over_limit", "cancel", "drain",
)  # fmt: skip
BASELINE_S, DRAIN_S = 3.0, 60.0


def make_schedule(
    workload: WorkloadFile,
    limits: Limits,
    seed: int,
    *,
    phases: Sequence[PhaseName] | None = None,
    minutes: float | None = None,
    trace: Trace | None = None,
    pace: Pace | None = None,
) -> Schedule:
    """The schedule of a run. `phases` are those to play (baseline and drain come with any), `minutes` bounds their time
    as far as it can be reckoned, by `pace` or else by the objectives.

    Raises InvalidInput where nothing of the trace is left, or it has not what the workload wants of it.
    """
    wanted = PHASES if phases is None else [name for name in PHASES if name in {*phases, "baseline", "drain"}]
    part = cut(trace, workload, seed) if trace is not None and "tail" in wanted else None
    ask = _Asked(workload, limits, seed, tuple(wanted), part, trace.name if trace is not None else "")
    estimate, whose = bounding.estimator(workload.slo, pace)
    maker, made = ask.phases({})
    notes: tuple[str, ...] = ()
    if minutes is not None:
        at_most, notes = _caps(ask, made, minutes, estimate if whose else None)
        maker, made = ask.phases(at_most) if at_most else (maker, made)
    timed = tuple(msgspec.structs.replace(phase, estimate_s=estimate(phase)) for phase in made)
    return Schedule(
        seed=seed,
        sha256=_identity(seed, limits, timed),
        phases=timed,
        unsendable=maker.unsendable(),
        dropped=part.dropped if part is not None else {},
        figures=_figures(timed, limits, part),
        declared_hit_rate=hits.declared_hit_rate(
            timed, block_size=limits.block_size, capacity_tokens=limits.capacity_tokens
        ),
        notes=(*notes, *dict.fromkeys(maker.notes), *(part.notes if part is not None else ())),
        times_are=whose,
    )


class _Asked(msgspec.Struct, frozen=True):
    """What decides the phases; they may have to be made a second time, shorter."""

    workload: WorkloadFile
    limits: Limits
    seed: int
    wanted: tuple[PhaseName, ...]
    part: Cut | None
    trace_name: str

    def phases(self, at_most: Mapping[PhaseName, int]) -> tuple[Maker, list[Phase]]:
        """Every wanted phase that has something to ask, with at most so many requests."""
        maker = Maker(self.workload, self.limits, at_most)
        is_closed = self.workload.workload.requests_per_s is None and self.part is None
        resolves = parts.resolving(self.workload) if is_closed else 0
        makers: dict[PhaseName, Callable[[], Phase | None]] = {
            "baseline": lambda: parts.idle("baseline", BASELINE_S, "the engine idle: nothing runs, no block is held"),
            "warm_up": lambda: parts.warm_up(maker),
            "regular": lambda: parts.regular(maker),
            "long": lambda: parts.long(maker),
            "peak": lambda: parts.peak(maker, resolves=resolves),
            "tail": lambda: self._tail(maker),
            "over_limit": lambda: parts.over_limit(maker),
            "cancel": lambda: parts.cancel(maker),
            "drain": lambda: parts.idle(
                "drain", DRAIN_S, "until nothing runs and every block is back, at most so long"
            ),
        }
        return maker, [phase for name in self.wanted if (phase := makers[name]()) is not None]

    def _tail(self, maker: Maker) -> Phase | None:
        if self.part is None:
            return tail.tail(maker, self.seed)
        return tail.traced(maker, self.part, self.trace_name, self.seed)


def _caps(
    ask: _Asked, made: Sequence[Phase], minutes: float, estimate: bounding.Estimate | None
) -> tuple[dict[PhaseName, int], tuple[str, ...]]:
    """How many requests phases may have in these minutes. Where nobody knows how long they take, arrivals get half."""
    herd = next((phase.concurrency or 0 for phase in made if phase.name == "tail"), 0)
    order = bounding.steps(ask.workload.workload.concurrency, parts.resolving(ask.workload), herd)

    def phases(at_most: Mapping[PhaseName, int]) -> Sequence[Phase]:
        return ask.phases(at_most)[1]

    if estimate is not None:
        return bounding.caps(phases, order, minutes, estimate)
    at_most, notes = bounding.caps(phases, order, minutes, bounding.at_least_s, bounding.OF_UNKNOWN)
    unknown = f"how long it takes is not known without objectives under slo: it is ended after {minutes:g} minutes"
    return at_most, (*notes, unknown)


def _identity(seed: int, limits: Limits, phases: Sequence[Phase]) -> str:
    content = msgspec.json.encode(
        [seed, limits, [[p.name, p.mode, p.concurrency, p.seconds, p.requests] for p in phases]]
    )
    return hashlib.sha256(content).hexdigest()


def _figures(phases: Sequence[Phase], limits: Limits, part: Cut | None) -> dict[str, float]:
    found = tail.figures(next((phase for phase in phases if phase.name == "tail"), None))
    if part is not None and limits.block_size is not None and found:
        found["ideal_hit_rate"] = hits.sharing(phases, limits.block_size).rate
    return found
