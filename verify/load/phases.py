"""The phases of a run but for its tail, each with the requests it asks with and why it asks so many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from advisor.workload import Load, WorkloadFile
from verify.load import lengths
from verify.load.prompts import own_key
from verify.load.types import Limits, Part, Phase, PhaseName, PlannedRequest, Unsendable

SHARED_KEY = "shared"
TURNOVERS = 2  # the pool's blocks are written so often in the peak
POOL_OF_TARGET = 8  # a pool that holds more than so many times the target is not written over and over
# Requests without a miss that show a percentile with 95 % (binomial tail), and those all phases of the load have.
_RESOLVES = {"p50": 5, "p95": 59, "p99": 299}
_WARM_UP_TOKENS = 16
_WARM_UP_AT_ONCE = 64
_SHORT_ANSWER = 16

Pair = tuple[int, int]  # prompt and answer, in tokens


class Maker:
    """Numbers requests as they are planned, and leaves out those that no answer could ever fit. One use."""

    def __init__(self, workload: WorkloadFile, limits: Limits, at_most: Mapping[PhaseName, int]) -> None:
        self.workload = workload
        self.load = workload.workload
        self.limits = limits
        self.notes: list[str] = []
        self._at_most = at_most
        self._index = 0
        self._unsendable: dict[tuple[PhaseName, str], list[Pair]] = {}

    def count(self, phase: PhaseName, wanted: int) -> int:
        """How many requests a phase gets: what it wants, unless the run has to be short."""
        return min(wanted, self._at_most.get(phase, wanted))

    def requests(self, phase: PhaseName, pairs: Sequence[Pair], *, is_shared: bool = True) -> list[PlannedRequest]:
        """Requests of these lengths; the shared prefix comes first, what follows it is each request's own."""
        return [self._request(phase, p, o, is_shared=is_shared) for p, o in pairs if self.fits(phase, p, o)]

    def beyond(self, phase: PhaseName, prompt: int, output: int) -> PlannedRequest:
        """A request that does not fit, on purpose."""
        return self._request(phase, prompt, output, is_shared=False)

    def next_index(self) -> int:
        """The number of a request made elsewhere."""
        self._index += 1
        return self._index - 1

    def fits(self, phase: PhaseName, prompt: int, output: int) -> bool:
        """Whether the server can answer it whole; what it cannot is counted."""
        most = self.limits.max_model_len
        if prompt + output <= most:
            return True
        what = "the prompt leaves no room for an answer in" if prompt >= most else "prompt + answer is more than"
        self._unsendable.setdefault((phase, f"{what} max_model_len {most}"), []).append((prompt, output))
        return False

    def unsendable(self) -> tuple[Unsendable, ...]:
        """What was left out, by phase and reason."""
        return tuple(
            Unsendable(
                phase=phase, reason=reason, count=len(pairs),
                longest_prompt_tokens=max(p for p, _ in pairs), longest_output_tokens=max(o for _, o in pairs),
            )
            for (phase, reason), pairs in self._unsendable.items()
        )  # fmt: skip

    def _request(self, phase: PhaseName, prompt: int, output: int, *, is_shared: bool) -> PlannedRequest:
        shared = min(self.load.shared_prefix_tokens, prompt - 1) if is_shared else 0
        parts = (Part(SHARED_KEY, shared),) if shared > 0 else ()
        index = self.next_index()
        return PlannedRequest(
            index=index, phase=phase, prompt_tokens=prompt, output_tokens=output,
            parts=(*parts, Part(own_key(index), prompt - shared)),
        )  # fmt: skip


def at_p95(load: Load) -> Pair:
    """Prompt (after the chat template) and answer at their p95: what the promise is made for."""
    return load.prompt_tokens.at_p95 + load.chat_template_tokens, load.output_tokens.at_p95


def longest(load: Load) -> Pair:
    """The longest prompt (after the chat template) and the longest answer."""
    return load.prompt_tokens.longest + load.chat_template_tokens, load.output_tokens.longest


def median(load: Load) -> Pair:
    """The median prompt (after the chat template) and answer; worked out where they are not stated."""
    prompt, output = (lengths.ordered(one, 101)[50] for one in (load.prompt_tokens, load.output_tokens))
    return prompt + load.chat_template_tokens, output


def resolving(workload: WorkloadFile) -> int:
    """Requests it takes to show the strictest percentile among the objectives; 0 without objectives."""
    given = [name for name, value in msgspec.structs.asdict(workload.slo).items() if value is not None]
    return max((n for share, n in _RESOLVES.items() if any(share in name for name in given)), default=0)


def idle(name: PhaseName, seconds: float, reason: str) -> Phase:
    """A phase in which nothing is sent."""
    return Phase(
        name=name, mode="idle", seconds=seconds, estimate_s=seconds if name == "baseline" else None, reason=reason
    )


def closed(name: PhaseName, requests: Sequence[PlannedRequest], concurrency: int, reason: str) -> Phase | None:
    """A phase of so many places; None where there is nothing to send."""
    if not requests:
        return None
    return Phase(
        name=name, mode="closed", requests=tuple(requests), concurrency=min(concurrency, len(requests)), reason=reason
    )


def warm_up(maker: Maker) -> Phase | None:
    """The load's shapes, so that what compiles or is captured late does so now: the longest prompt, the target's batch.

    Field reports P82: the first requests of a server may take a hundred times as long as later ones.
    """
    load = maker.load
    prompt, output = at_p95(load)
    at_once = min(load.concurrency, _WARM_UP_AT_ONCE)
    answer = min(output, _WARM_UP_TOKENS)
    pairs = [(longest(load)[0], answer), *[(prompt, answer)] * at_once]
    return closed(
        "warm_up", maker.requests("warm_up", pairs[: maker.count("warm_up", len(pairs))]), at_once,
        f"the load's shapes, not judged: its longest prompt, and {at_once} of p95 length at once",
    )  # fmt: skip


def regular(maker: Maker) -> Phase | None:
    """An easy load."""
    prompt, output = median(maker.load)
    at_once = max(1, maker.load.concurrency // 4)
    n = maker.count("regular", min(32, max(8, 2 * at_once)))
    return closed(
        "regular", maker.requests("regular", [(prompt, output)] * n), at_once,
        f"an easy load: the median request ({prompt} + {output} tokens), {at_once} at once",
    )  # fmt: skip


def long(maker: Maker) -> Phase | None:
    """Both ends of what max_model_len allows, to the token: the longest answer after as long a prompt as there is room
    for, and the longest prompt before a short answer.
    """
    most = maker.limits.max_model_len
    answer = min(longest(maker.load)[1], most - 1)
    short = min(answer, max(1, most // 4), _SHORT_ANSWER)
    if answer < 1:
        return None
    pairs = [(most - short, short), (most - answer, answer)][: maker.count("long", 2)]
    return closed(
        "long", maker.requests("long", pairs), 1,
        f"max_model_len {most} filled to the token, one at a time: " + ", ".join(f"{p} + {o}" for p, o in pairs),
    )  # fmt: skip


def peak(maker: Maker, *, resolves: int) -> Phase | None:
    """The target at p95, for as long as it takes to write the pool over, and to tell of objectives."""
    load = maker.load
    prompt, output = at_p95(load)
    wanted, why = 3 * load.concurrency, f"3 x {load.concurrency} at once"
    turnover, how = _turnover(maker, prompt, output)
    if turnover > wanted:
        wanted, why = turnover, how
    if resolves and resolves + load.concurrency > wanted:
        wanted, why = resolves + load.concurrency, f"{load.concurrency} to fill the places, {resolves} that count"
    n = maker.count("peak", wanted)
    what = f"the promise: {load.concurrency} requests of p95 length ({prompt} + {output}) at once"
    reason = f"{what}; {why} = {wanted:,}" + (f", cut to {n:,}" if n < wanted else "")
    seqs = maker.limits.max_num_seqs
    if seqs is not None and seqs < load.concurrency:
        maker.notes.append(f"the server runs at most {seqs} requests at once: of {load.concurrency} some wait")
    return closed("peak", maker.requests("peak", [(prompt, output)] * n), load.concurrency, reason)


def _turnover(maker: Maker, prompt: int, output: int) -> tuple[int, str]:
    """Requests that write the pool's tokens over, and how that was worked out."""
    capacity, load = maker.limits.capacity_tokens, maker.load
    if capacity is None:
        maker.notes.append("how much the pool holds is not known: whether the peak writes it over is not, either")
        return 0, ""
    each = prompt + output
    own = each - min(load.shared_prefix_tokens, prompt - 1)
    most = POOL_OF_TARGET * load.concurrency * each
    whole = -(-TURNOVERS * capacity // own)
    if capacity <= most:
        return whole, f"{TURNOVERS} x the pool's {capacity:,} tokens / {own} a request"
    maker.notes.append(
        f"the pool holds {capacity / (load.concurrency * each):.0f} times the target: the peak does not write it over "
        f"{TURNOVERS} times, which takes {whole:,} requests"
    )
    return -(-TURNOVERS * most // own), f"{TURNOVERS} x {POOL_OF_TARGET} times the target's tokens / {own} a request"


def over_limit(maker: Maker) -> Phase | None:
    """What must not be served whole: a prompt beyond max_model_len, and one whose answer would end beyond it."""
    most = maker.limits.max_model_len
    answer = max(1, min(_SHORT_ANSWER, most // 4))
    if most <= answer:
        return None
    requests = [
        msgspec.structs.replace(maker.beyond("over_limit", most + 1, answer), expect="refusal"),
        msgspec.structs.replace(maker.beyond("over_limit", most - answer, 4 * answer), expect="refusal_or_shortened"),
    ]
    return closed(
        "over_limit", requests, 1,
        f"a prompt of {most + 1} tokens, to be refused, and one of {most - answer} that asks for {4 * answer} more",
    )  # fmt: skip


def cancel(maker: Maker) -> Phase | None:
    """Clients that leave: every second before its first token, the others within their answer."""
    load = maker.load
    prompt, output = at_p95(load)
    n = max(2, min(load.concurrency, 16))
    within = min(8, output // 2)
    requests = [
        msgspec.structs.replace(request, expect="cancel", cancel_after_tokens=0 if place % 2 else within)
        for place, request in enumerate(maker.requests("cancel", [(prompt, output)] * n))
    ]
    return closed("cancel", requests, load.concurrency, f"{n} clients that leave, half of them before the first token")
