"""The inside of the fake server: a block pool with prefix caching and a scheduler that steps, as vLLM v1 has them.

Block arithmetic is the real one: a block holds `block_size` tokens, one is kept back, a request owns what its computed
tokens need, cached blocks that nobody holds are free. A request that finds no block preempts the last one admitted.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Job:
    """A request inside the engine."""

    id: str
    prompt: list[int]
    max_tokens: int
    salt: str
    arrived: float
    stop_at: int  # answers end after so many tokens
    send: Callable[[Job, bool], None]  # called with each token; True with the last
    computed: int = 0
    cached: int = 0
    produced: int = 0
    preempted: int = 0
    blocks: list[int] = field(default_factory=list)
    admitted: float | None = None
    token_times: list[float] = field(default_factory=list)
    gone: bool = False  # its client left


class Pool:
    """Blocks, their hashes, and who holds them. Block 0 is kept back."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self.refs = [0] * num_blocks
        self.hash_of: dict[int, int] = {}
        self.by_hash: dict[int, int] = {}

    @property
    def usage(self) -> float:
        """Share of the usable blocks that somebody holds."""
        return 1.0 - len(self.free) / (self.num_blocks - 1)

    def hashes(self, salt: str, tokens: list[int]) -> list[int]:
        """One hash for each whole block, each over all before it."""
        found, last = [], hash(salt)
        for start in range(0, len(tokens) - self.block_size + 1, self.block_size):
            last = hash((last, *tokens[start : start + self.block_size]))
            found.append(last)
        return found

    def cached(self, hashes: list[int]) -> list[int]:
        """The longest run of blocks from the start that is still there."""
        blocks = []
        for key in hashes:
            block = self.by_hash.get(key)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def hold(self, blocks: list[int]) -> None:
        for block in blocks:
            if self.refs[block] == 0:
                del self.free[block]
            self.refs[block] += 1

    def take(self, count: int) -> list[int] | None:
        """`count` fresh blocks, or None where there are not as many."""
        if count > len(self.free):
            return None
        taken = []
        for _ in range(count):
            block, _ = self.free.popitem(last=False)
            key = self.hash_of.pop(block, None)
            if key is not None and self.by_hash.get(key) == block:
                del self.by_hash[key]
            self.refs[block] = 1
            taken.append(block)
        return taken

    def remember(self, block: int, key: int) -> None:
        if key not in self.by_hash:
            self.by_hash[key], self.hash_of[block] = block, key

    def release(self, blocks: list[int]) -> None:
        for block in reversed(blocks):
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.free[block] = None


@dataclass
class Counters:
    """What /metrics counts."""

    preemptions: float = 0
    prefix_queries: float = 0
    prefix_hits: float = 0
    prompt_tokens: float = 0
    generation_tokens: float = 0
    iterations: float = 0
    iteration_tokens: float = 0
    done: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0.0)
    )
    rejections: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("max_num_queued_reqs", "max_num_queued_tokens"), 0.0)
    )
    ttft: list[float] = field(default_factory=lambda: [0.0, 0.0])  # count, sum
    itl: list[float] = field(default_factory=lambda: [0.0, 0.0])
    tpot: list[float] = field(default_factory=lambda: [0.0, 0.0])
    e2e: list[float] = field(default_factory=lambda: [0.0, 0.0])
    queue: list[float] = field(default_factory=lambda: [0.0, 0.0])


class Engine:
    """Requests in, tokens out, one step at a time; the caller keeps the clock."""

    def __init__(
        self, *, num_blocks: int, block_size: int, max_num_seqs: int, max_num_batched_tokens: int, caching: bool = True
    ) -> None:
        self.pool = Pool(num_blocks, block_size)
        self.max_num_seqs, self.max_num_batched_tokens, self.caching = max_num_seqs, max_num_batched_tokens, caching
        self.waiting: deque[Job] = deque()
        self.running: list[Job] = []
        self.counters = Counters()
        self.leaks = False  # blocks of clients that left stay held
        self.admits = True  # False: nobody leaves the queue
        self.peak_blocks = 0

    def add(self, job: Job) -> None:
        self.waiting.append(job)

    def abort(self, job: Job) -> None:
        """Its client left: what it holds is free again, unless the engine leaks."""
        if job.gone:
            return
        job.gone = True
        if job in self.running:
            self.running.remove(job)
            if not self.leaks:
                self.pool.release(job.blocks)
        elif job in self.waiting:
            self.waiting.remove(job)
        else:
            return
        self.counters.done["abort"] += 1

    def step(self) -> int:
        """Schedule, compute and send; the tokens computed."""
        producing: list[Job] = []
        budget, preempted = self._decode(self.max_num_batched_tokens, producing)
        if not preempted:
            budget = self._prefill(budget, producing)
        used = self.max_num_batched_tokens - budget
        if used:
            self.counters.iterations += 1
            self.counters.iteration_tokens += used
        self.peak_blocks = max(self.peak_blocks, self.pool.num_blocks - 1 - len(self.pool.free))
        now = time.perf_counter()
        for job in producing:
            self._emit(job, now)
        return used

    def _decode(self, budget: int, producing: list[Job]) -> tuple[int, bool]:
        """What each running request still has to compute; whether somebody had to make room for it."""
        preempted = False
        for job in list(self.running):
            if job.preempted and job not in self.running:
                continue
            length = len(job.prompt) + job.produced
            new = min(length - job.computed, budget)
            if new <= 0:
                continue
            while not self._grow(job, job.computed + new):
                victim = self.running[-1]
                preempted = True
                self._preempt(victim)
                if victim in producing:
                    producing.remove(victim)
                if victim is job:
                    break
            else:
                job.computed += new
                budget -= new
                if job.computed == length:
                    producing.append(job)
        return budget, preempted

    def _prefill(self, budget: int, producing: list[Job]) -> int:
        while self.waiting and self.admits and len(self.running) < self.max_num_seqs and budget > 0:
            job = self.waiting[0]
            tokens = len(job.prompt) + job.produced
            hashes = self.pool.hashes(job.salt, job.prompt) if self.caching else []
            hits = self.pool.cached(hashes[: (len(job.prompt) - 1) // self.pool.block_size])
            self.pool.hold(hits)
            job.blocks, job.computed = list(hits), len(hits) * self.pool.block_size
            new = min(tokens - job.computed, budget)
            if not self._grow(job, job.computed + new):
                self.pool.release(hits)
                job.blocks, job.computed = [], 0
                break
            self.waiting.popleft()
            self.running.append(job)
            if job.preempted == 0:
                self.counters.prefix_queries += len(job.prompt)
                self.counters.prefix_hits += job.computed
                job.cached = job.computed
                job.admitted = time.perf_counter()
                self._record(self.counters.queue, job.admitted - job.arrived)
            job.computed += new
            budget -= new
            for block, key in zip(job.blocks, hashes, strict=False):
                self.pool.remember(block, key)
            if job.computed == tokens:
                producing.append(job)
        return budget

    def _grow(self, job: Job, tokens: int) -> bool:
        need = -(-tokens // self.pool.block_size) - len(job.blocks)
        if need <= 0:
            return True
        fresh = self.pool.take(need)
        if fresh is None:
            return False
        job.blocks += fresh
        return True

    def _preempt(self, job: Job) -> None:
        self.running.remove(job)
        self.pool.release(job.blocks)
        job.blocks, job.computed = [], 0
        job.preempted += 1
        self.counters.preemptions += 1
        self.waiting.appendleft(job)

    def _emit(self, job: Job, now: float) -> None:
        if job.produced == 0:
            self.counters.prompt_tokens += len(job.prompt)
            self._record(self.counters.ttft, now - job.arrived)
        else:
            self._record(self.counters.itl, now - job.token_times[-1])
        job.produced += 1
        self.counters.generation_tokens += 1
        last = job.produced >= min(job.stop_at, job.max_tokens)
        job.token_times.append(now)
        if last:
            self.running.remove(job)
            self.pool.release(job.blocks)
            job.gone = True
            self.counters.done["length" if job.produced == job.max_tokens else "stop"] += 1
            self._record(self.counters.e2e, now - job.arrived)
            if job.produced > 1:
                self._record(self.counters.tpot, (now - job.token_times[0]) / (job.produced - 1))
        job.send(job, last)

    @staticmethod
    def _record(pair: list[float], value: float) -> None:
        pair[0] += 1
        pair[1] += value
