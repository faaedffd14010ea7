"""A whole load through the scheduler, from the first arrival to the last answer.

Steps are the only clock here: what a step costs in seconds is another model's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisor.simulation.request import SimRequest, check_request
from advisor.simulation.results import Outcome, RequestOutcome, Simulation, Stretch
from advisor.simulation.rules import Rules
from advisor.simulation.scheduler import Scheduler
from advisor.simulation.state import Live

Watch = Callable[[int, Scheduler, int], None]  # called with (step, scheduler, tokens) after each step's decisions


def simulate(
    requests: Sequence[SimRequest], rules: Rules, *, watch: Watch | None = None, last_step: int | None = None
) -> Simulation:
    """Play the requests. With `watch` every step is played and shown; without it, equal steps are one stretch.

    `last_step` ends the simulation early (a load that never drains). Raises InvalidInput for a request no server would
    take, NotUnderstood for groups whose schedule is not modelled.
    """
    return _Play(requests, rules, watch, last_step).run()


class _Play:
    def __init__(self, requests: Sequence[SimRequest], rules: Rules, watch: Watch | None, last: int | None) -> None:
        for i, request in enumerate(requests):
            check_request(i, request, rules.max_model_len)
        self.requests = requests
        self.rules = rules
        self.watch = watch
        self.last = last
        self.scheduler = Scheduler(rules)
        self.lives: dict[int, Live] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.stretches: list[Stretch] = []
        self.arrivals = sorted(range(len(requests)), key=lambda i: (requests[i].arrival_step, i), reverse=True)
        aborting = (i for i, request in enumerate(requests) if request.abort_step is not None)
        self.aborts = sorted(aborting, key=lambda i: (requests[i].abort_step or 0, i), reverse=True)
        self.queued_tokens = 0
        self.limits_queue = rules.max_num_queued_reqs is not None or rules.max_num_queued_tokens is not None

    def run(self) -> Simulation:
        step, before, stuck = 0, False, False
        scheduler = self.scheduler
        while self.arrivals or self.aborts or scheduler.busy:
            if self.last is not None and step > self.last:
                break
            self._let_in(step)
            if not scheduler.busy:
                upcoming = self._next_event()
                if upcoming is None:
                    break
                step = upcoming
                continue
            tokens = scheduler.schedule(step)
            if self.watch is not None:
                self.watch(step, scheduler, tokens)
            flowing = scheduler.flowing
            self._record(step, 1, tokens)
            scheduler.settle(step)
            stuck = not tokens and not before and self._next_event() is None and scheduler.busy
            if stuck:
                break
            before = self.rules.async_scheduling and tokens > 0
            step += 1
            if scheduler.quiet and self.watch is None:
                upto = self._end_of_quiet(step)
                if upto > step:
                    self._record(step, upto - step, flowing)
                    before = self.rules.async_scheduling and flowing > 0
                    step = upto
        return self._result(stuck)

    def _next_event(self) -> int | None:
        """The next arrival or abort."""
        times = [self.requests[self.arrivals[-1]].arrival_step] if self.arrivals else []
        if self.aborts:
            times.append(self.requests[self.aborts[-1]].abort_step or 0)
        return min(times, default=None)

    def _end_of_quiet(self, step: int) -> int:
        """The first step from here on at which something happens."""
        calendar, upcoming = self.scheduler.calendar, self._next_event()
        if not self.scheduler.flowing:
            return step if upcoming is None else max(step, upcoming)
        while step not in calendar and step != upcoming:
            step += 1
        return step

    def _let_in(self, step: int) -> None:
        requests = self.requests
        while self.arrivals and requests[self.arrivals[-1]].arrival_step <= step:
            self._arrive(self.arrivals.pop())
        while self.aborts and (requests[self.aborts[-1]].abort_step or 0) <= step:
            index = self.aborts.pop()
            live = self.lives.get(index)
            if live is not None and (live.finish_step is None or live.ending):
                live.finish_step = None
                self.scheduler.abort(live)
                self.outcomes[index] = "aborted"
                live.aborted = True

    def _arrive(self, index: int) -> None:
        request = self.requests[index]
        if self.limits_queue and self._rejected():
            self.outcomes[index] = "rejected"
            return
        prompt = request.prompt_tokens
        limit = min(prompt + request.output_tokens, self.rules.max_model_len)
        live = Live(index, prompt, limit, request.priority, request.arrival_step)
        if self.rules.prefix_caching:
            live.segments = self.scheduler.memory.texts.segments(
                request.prompt, request.output_text or f"answer {index}"
            )
        self.lives[index] = live
        self.scheduler.add(live)

    def _rejected(self) -> bool:
        """AsyncLLM.check_admission, with the server's counts known at once."""
        open_ones = [live for live in self.lives.values() if live.finish_step is None and not live.aborted]
        limit = self.rules.max_num_queued_reqs
        if limit is not None and len(open_ones) + 1 > limit:
            return True
        tokens = self.rules.max_num_queued_tokens
        queued = sum(live.prompt_tokens for live in open_ones if live.first_token_step is None)
        return tokens is not None and queued >= tokens

    def _record(self, step: int, steps: int, tokens: int) -> None:
        s = self.scheduler
        pool = s.memory.pool
        used, lost = pool.total - pool.free, len(s.preempted)
        row = Stretch(step, steps, len(s.running), len(s.waiting), tokens, used, lost, s.flowing)
        self.stretches.append(row)

    def _result(self, stuck: bool) -> Simulation:
        rows = []
        for i, request in enumerate(self.requests):
            live = self.lives.get(i)
            outcome = self.outcomes.get(i)
            if live is None:
                rows.append(RequestOutcome(outcome=outcome or "not_sent", arrival_step=request.arrival_step))
                continue
            done = live.finish_step is not None and not live.ending
            rows.append(
                RequestOutcome(
                    outcome=outcome or ("finished" if done else "unfinished"),
                    arrival_step=request.arrival_step,
                    first_step=live.first_step,
                    first_token_step=live.first_token_step,
                    finish_step=live.finish_step,
                    preemptions=live.preemptions,
                    hit_tokens=live.hit_tokens,
                )
            )
        s = self.scheduler
        return Simulation(
            stretches=tuple(self.stretches),
            requests=tuple(rows),
            usable_blocks=s.memory.pool.total,
            hit_tokens=s.hit_tokens,
            query_tokens=s.query_tokens,
            stuck=stuck,
        )
