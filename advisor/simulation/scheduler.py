"""vLLM's scheduler, step by step, without an engine.

Source: vLLM 0.32 v1/core/sched/scheduler.py (schedule, _preempt_request, update_from_output), async_scheduler.py.
Left out: LoRA limits, speculative decoding, KV connectors, encoder inputs, pausing, prefill throttling across
data-parallel ranks, more than one pipeline stage.

A request that only generates is not touched between the steps at which something happens to it (see state.Live): a
step in which all running requests generate is one subtraction, and a stretch of such steps can be skipped whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from advisor.simulation.memory import Memory
from advisor.simulation.queues import Waiting, WaitingByPriority
from advisor.simulation.rules import Rules
from advisor.simulation.splits import aligned_chunk
from advisor.simulation.state import Live

_ORDER = attrgetter("order")
_RANK = attrgetter("rank")


class Scheduler:
    """The queues, one step at a time: `add` and `abort`, then `schedule`, then `settle`, for rising step numbers."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.memory = Memory(rules)
        self.by_priority = rules.policy == "priority"
        self.waiting = WaitingByPriority() if self.by_priority else Waiting()
        self.running: dict[Live, None] = {}  # in the order of admission
        self.filling: dict[Live, None] = {}  # those of them that have a prompt to compute, in the same order
        self.flowing = 0  # how many only generate, those that end excluded
        self.stopping: list[Live] = []  # their last token is computed in this step
        self.ending: list[Live] = []  # asynchronous: it was computed in the step before
        self.stalled: list[Live] = []
        self.preempted: list[Live] = []  # in this step
        self.calendar: dict[int, list[Live]] = {}
        self.quiet = False  # until an arrival, an abort or the calendar says otherwise, every step is as this one
        self.hit_tokens = 0
        self.query_tokens = 0
        self._passed_over = False
        self._admissions = 0
        self._newest_flowing = -1
        self._asynchronous = rules.async_scheduling
        lag = 1 if self._asynchronous else 0
        settled_lag = lag if rules.behaviour.free_settled_only else 0
        changes = {c for table in self.memory.tables for c in table.changes(settled_lag)}
        if rules.prefix_caching:
            whole = self.memory.publishes_aligned
            changes |= {(1 - lag, self.memory.alignment if whole else table.block_size) for table in self.memory.tables}
        self._changes = sorted(changes)
        aligned = any(group.aligned for group in rules.groups)
        self._split_at = min(group.block_size for group in rules.groups) if aligned else 0

    def add(self, live: Live) -> None:
        """A request arrives."""
        self.memory.start(live)
        self.waiting.add(live)

    def abort(self, live: Live) -> None:
        """A client gives up: its request leaves, wherever it is."""
        if live.running:
            self._leave(live)
            self.memory.release(live)
        else:
            self.waiting.remove(live)
        if live.ending:
            self.ending.remove(live)
            live.ending = False

    @property
    def busy(self) -> bool:
        """Whether anything runs or waits."""
        return bool(self.running) or len(self.waiting) > 0

    def schedule(self, step: int) -> int:
        """Running requests first, then waiting ones; returns how many tokens are computed in this step."""
        self.preempted.clear()
        self._passed_over = False
        self.memory.new_step(step)
        full = self.rules.max_num_batched_tokens
        limit = self._prompt_limit()
        oldest_filling = next(iter(self.filling)).order if self.filling else self._admissions
        if self.flowing <= full and oldest_filling > self._newest_flowing and not self.by_priority:
            budget = full - self._flow(step)
            if self.filling:
                budget = self._in_order(list(self.filling), step, budget, limit)
        else:
            self.calendar.pop(step, None)
            budget = self._in_order(list(self.running), step, full, limit)
        self.quiet = not self.preempted
        if self.quiet and budget > 0:
            budget = self._admit(step, budget, limit)
        self.quiet = self.quiet and not (self.filling or self.stopping or self.ending or self._passed_over)
        return full - budget

    def settle(self, step: int) -> None:
        """The end of a step: requests that are done leave and give back their blocks."""
        if not self._asynchronous:
            done, self.stopping = self.stopping, []
            done.sort(key=_ORDER)
            for live in done:
                live.finish_step = step
                self._leave(live)
                self.memory.release(live)
        else:
            self._settle_one_behind(step)
        self.stalled.clear()

    def _settle_one_behind(self, step: int) -> None:
        """Asynchronous scheduling: what the step before has computed is known only now."""
        for live in self.ending:
            if live.running:
                self.memory.publish(live, live.limit - 1)
                self._leave(live)
                self.memory.release(live)
            else:
                self.waiting.remove(live)
            live.ending = False
        for live in self.stalled:
            if live.running:
                self.memory.publish(live, step + 1 + live.offset)
        self.ending, self.stopping = self.stopping, []
        self.ending.sort(key=_ORDER)
        for live in self.ending:
            live.ending = True
            live.finish_step = step
            self.flowing -= 1

    def _leave(self, live: Live) -> None:
        del self.running[live]
        live.running = False
        if live.flowing:
            live.flowing = False
            live.wake = -1
            self.flowing -= not live.ending
        else:
            self.filling.pop(live, None)

    def _prompt_limit(self) -> int:
        """The most tokens of one prompt in this step (0: no limit)."""
        limit = self.rules.long_prefill_token_threshold
        if not limit:
            return 0
        count = len(self.running) + len(self.waiting)
        if count <= 1 and self.rules.behaviour.lone_prompt_unlimited:
            return 0
        if self.rules.long_prefill_token_threshold_adaptive:
            return max(limit, self.rules.max_num_batched_tokens // max(count, 1))
        return limit

    # running requests

    def _flow(self, step: int) -> int:
        """All that only generate get a token; those to whom something happens are seen to, the oldest first."""
        awake = self.calendar.pop(step, None)
        if awake:
            if len(awake) > 1:
                awake.sort(key=_ORDER)
            for live in awake:
                if live.wake == step and not self._grow_flowing(live, step):
                    break  # it was the last one itself
        return self.flowing

    def _in_order(self, requests: list[Live], step: int, budget: int, limit: int) -> int:
        """The same one by one, for prompts and for steps that cannot serve all; returns what is left of the budget."""
        given: dict[Live, int] = {}
        for at, live in enumerate(requests):
            if not live.running or live.ending:
                continue
            new = 1 if live.flowing else self._chunk(live, live.computed, live.tokens - live.computed, budget, limit)
            if new == 0:
                continue
            served = budget > 0 and self._serve(live, step, new)
            for victim in self.preempted:  # by priority: its tokens can be given to others
                budget += given.pop(victim, 0)
            if not served:
                self._stall(requests[at:], step)
                break
            given[live] = new
            budget -= new
        return budget

    def _serve(self, live: Live, step: int, new: int) -> bool:
        """Give a running request its tokens; False when it was preempted for want of blocks."""
        if live.flowing:
            return live.wake != step or self._grow_flowing(live, step)
        in_flight = live.last_new if live.last_step == step - 1 and self._asynchronous else 0
        while not self.memory.grow(live, live.computed, new, in_flight, live.tokens):
            if self._preempt(step) is live:
                return False
        self._advance(live, step, new)
        return True

    def _grow_flowing(self, live: Live, step: int) -> bool:
        computed = step + live.offset
        in_flight = 0
        if self._asynchronous and live.stalled_step != step - 1:
            in_flight = live.last_new if live.last_step == step - 1 else 1
        known = computed if in_flight else computed + 1
        while not self.memory.grow(live, computed, 1, in_flight, known):
            if self._preempt(step) is live:
                return False
        if computed + 2 >= live.limit:
            self.stopping.append(live)
            live.wake = -1
            return True
        after = computed + 1
        nearest = live.limit - 2
        if self._asynchronous and (live.stalled_step == step - 1 or live.last_step == step - 1):
            nearest = after
        for shift, modulus in self._changes:
            at = after + (-(after + shift)) % modulus
            if at < nearest:
                nearest = at
        self._wake_at(live, nearest - live.offset)
        return True

    def _wake_at(self, live: Live, step: int) -> None:
        live.wake = step
        entries = self.calendar.get(step)
        if entries is None:
            self.calendar[step] = [live]
        else:
            entries.append(live)

    def _stall(self, requests: Iterable[Live], step: int) -> None:
        """Those that could not be served in this step fall back by one."""
        for live in requests:
            if not live.running or not live.flowing or live.ending:
                continue
            live.offset -= 1
            self._passed_over = True
            if self._asynchronous:
                if live.stalled_step != step - 1:
                    self.stalled.append(live)
                self._wake_at(live, step + 1)
            else:
                self._wake_at(live, live.wake + 1)
            live.stalled_step = step

    def _preempt(self, step: int) -> Live:
        """Take back everything from the last, or from the least important."""
        victim = max(self.running, key=lambda r: r.rank[:2]) if self.by_priority else next(reversed(self.running))
        if victim.flowing:
            victim.tokens = step + victim.offset + 1
            if victim in self.stopping:
                self.stopping.remove(victim)
        self._leave(victim)
        self.memory.release(victim)
        victim.computed = 0
        victim.preemptions += 1
        self.waiting.put_back(victim)
        self.preempted.append(victim)
        return victim

    def _advance(self, live: Live, step: int, new: int) -> None:
        """Count a chunk of a prompt; after its last one the request generates."""
        live.computed += new
        live.last_step, live.last_new = step, new
        if live.computed < live.tokens:
            return
        self.filling.pop(live, None)
        live.flowing = True
        self.flowing += 1
        self._newest_flowing = max(self._newest_flowing, live.order)
        live.offset = live.tokens - step - 1
        if live.first_token_step is None:
            live.first_token_step = step
        if live.tokens + 1 >= live.limit:
            self.stopping.append(live)
        else:
            self._wake_at(live, step + 1)

    # waiting requests

    def _chunk(self, live: Live, computed: int, new: int, budget: int, limit: int) -> int:
        if 0 < limit < new:
            new = limit
        new = min(new, budget)
        return aligned_chunk(live, computed, new, self._split_at, self.rules) if self._split_at else new

    def _admit(self, step: int, budget: int, limit: int) -> int:
        """Admit from the head of the queue while it fits; returns what is left of the budget."""
        memory, rules = self.memory, self.rules
        while budget > 0 and len(self.waiting) and len(self.running) < rules.max_running:
            live = self.waiting.head()
            if memory.hopeless(live, beside=bool(self.running)):
                break
            hits, found = memory.find(live)
            rest = live.tokens - found
            if not rules.chunked_prefill and (min(rest, limit) if limit else rest) > budget:
                break
            new = self._chunk(live, found, rest, budget, limit)
            if new == 0:
                break
            if not memory.admit(live, hits, found, new, beside=bool(self.running)):
                if memory.waits_for_state():
                    self.quiet = False
                break
            self._start(self.waiting.take(), step, found, new)
            budget -= new
            self.quiet = False
        return budget

    def _start(self, live: Live, step: int, found: int, new: int) -> None:
        live.order = self._admissions
        self._admissions += 1
        live.running = True
        self.running[live] = None
        self.filling[live] = None
        live.computed = found
        if self.memory.caching:
            self.query_tokens += live.tokens
            self.hit_tokens += found
            live.hit_tokens += found
        if live.first_step is None:
            live.first_step = step
        self._advance(live, step, new)
