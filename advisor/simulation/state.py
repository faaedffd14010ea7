"""A request while it is simulated. Mutable, and kept inside the simulation."""

from __future__ import annotations

from advisor.simulation.texts import Segment


class StateAt:
    """Where the states of one request lie in one Mamba group's table."""

    __slots__ = ("allocated", "inside", "previous", "retired")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As before the first block."""
        self.allocated = False
        self.previous: int | None = None
        self.retired = 0
        self.inside: tuple[int, int] | None = None  # (position, block) of a state written within this step's chunk


class Live:
    """One request's counters and block tables.

    While it only generates (`flowing`), `computed` at the start of step s is s + `offset`, so nothing is counted until
    `wake` comes: the next step at which a block is taken, filled, freed, or the end is reached.
    """

    __slots__ = (
        "aborted", "cached", "computed", "ending", "finish_step", "first_step", "first_token_step", "flowing",
        "hit_tokens", "index", "junction", "last_new", "last_step", "limit", "offset", "order", "preemptions",
        "prompt_tokens", "rank", "running", "segments", "stalled_step", "states", "tables", "tokens", "wake",
    )  # fmt: skip

    def __init__(self, index: int, prompt_tokens: int, limit: int, priority: int, arrival: int) -> None:
        self.index = index
        self.prompt_tokens = prompt_tokens
        self.limit = limit  # tokens, prompt and answer, at which it ends
        self.rank = (priority, arrival, index)
        self.segments: tuple[Segment, ...] = ()
        self.tokens = prompt_tokens  # known ones; meaningless while it flows
        self.computed = 0
        self.offset = 0
        self.wake = -1
        self.order = -1  # position in the running queue, of all that ever ran
        self.flowing = False
        self.running = False
        self.ending = False  # asynchronous scheduling: its last token is under way
        self.last_step = -9  # the last step in which it got a chunk, and how much
        self.last_new = 0
        self.stalled_step = -9  # the last step in which it should have generated and was passed over
        self.junction = 0  # a shared prefix that some group has not kept
        self.tables: list[list[int]] = []
        self.cached: list[int] = []
        self.states: list[StateAt] = []
        self.aborted = False
        self.preemptions = 0
        self.hit_tokens = 0
        self.first_step: int | None = None
        self.first_token_step: int | None = None
        self.finish_step: int | None = None
