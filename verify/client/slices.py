"""One phase for several processes: disjoint slices of one schedule, and what the processes were like as one."""

from __future__ import annotations

from verify.client.bodies import Fields
from verify.client.messages import Finished, Prepare
from verify.client.types import ClientFacts
from verify.load.types import Phase, PlannedRequest
from verify.record.types import RequestRow


def slices_of(phase: Phase, processes: int, fields: Fields, keeps_alive: bool) -> list[Prepare]:
    """A share for each process that gets one: every n-th request, and as even a part of the places as can be."""
    places = phase.concurrency or 1
    count = min(processes, places) if phase.mode == "closed" else processes
    count = max(1, min(count, len(phase.requests)))
    requests = phase.requests
    if phase.mode == "open":
        requests = tuple(sorted(requests, key=lambda r: r.scheduled_s or 0.0))
    return [
        Prepare(
            name=phase.name,
            mode=phase.mode,
            requests=requests[number::count],
            places=places // count + (number < places % count) if phase.mode == "closed" else 0,
            fields=fields,
            keeps_alive=keeps_alive,
        )
        for number in range(count)
    ]


def abandoned(request: PlannedRequest, why: str, process: int) -> RequestRow:
    """The row of a request whose process died: whether it was sent is not known."""
    return RequestRow(
        index=request.index,
        phase=request.phase,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        outcome="abandoned",
        error=why,
        process=process,
        is_recorded=request.body is not None,
    )


def merged(
    phase: str, *, loops: list[str], finished: list[Finished], faults: list[str], wall_s: float, began_s: float
) -> ClientFacts:
    """The worst of the processes where one can be worst, else the sum."""
    chunks = sum(f.chunks for f in finished)
    lags = [f.lag_p99_s for f in finished if f.lag_p99_s is not None]
    return ClientFacts(
        phase=phase,
        processes=len(loops),
        loop=", ".join(sorted(set(loops))),
        wall_s=wall_s,
        cpu_s=sum(f.cpu_s for f in finished),
        cpu_fraction=max((f.cpu_s / f.wall_s for f in finished if f.wall_s > 0), default=0.0),
        loop_lag_p99_s=max(lags, default=None),
        max_in_flight=sum(f.max_in_flight for f in finished),
        connections=sum(f.connections for f in finished),
        coalesced_fraction=sum(f.coalesced for f in finished) / chunks if chunks else None,
        stopped_early=any(f.stopped_early for f in finished),
        unsent=sum(f.unsent for f in finished),
        began_s=began_s,
        faults=(*faults, *(text for f in finished for text in f.faults)),
    )
