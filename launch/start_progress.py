"""Whether a start still moves: its log, and what its processes read and write. No clock of its own decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from launch.log_lines import read_line
from launch.process_tree import Process, transferred_bytes
from launch.progress import Phase, Progress, advance

_MOVED_BYTES = 4 << 20  # idle processes exchange less between two looks
_LOOK_S = 2.0
_NUMBERS = re.compile(r"\d+")
_REMEMBERED_TEXTS = 4096


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """How long a start may take. It is given up when nothing has moved for `stall_s`, however long it has taken;
    `limit_s` bounds the whole (None: nothing does), `poll_s` is how often it is looked at.
    """

    stall_s: float = 600.0
    limit_s: float | None = None
    poll_s: float = 0.25


class StartProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What to show of a start: the phase, what is waited for, since when nothing has moved. Seconds."""

    progress: Progress
    waiting_for: str
    elapsed_s: float
    still_s: float

    @property
    def is_waiting(self) -> bool:
        """Whether there has been no news for a while."""
        return self.still_s >= 10.0

    @property
    def text(self) -> str:
        """The phase in words, and after a while without news that it is still waited for."""
        if not self.is_waiting:
            return self.progress.text
        return f"{self.progress.text}: still waiting for {self.waiting_for} ({self.still_s:.0f} s without news)"


class Movement:
    """Follows one start. `now` is a monotonic clock, `members` lists the engine's processes."""

    def __init__(self, now: Callable[[], float], members: Callable[[], Iterable[Process]]) -> None:
        self.progress = Progress()
        self._now = now
        self._members = members
        self._began = self._moved = self._looked = now()
        self._number = 0
        self._texts: set[str] = set()
        self._bytes: dict[int, int] = {}

    @property
    def elapsed_s(self) -> float:
        """Since it began."""
        return self._now() - self._began

    @property
    def still_s(self) -> float:
        """Since something last moved."""
        return self._now() - self._moved

    def feed(self, lines: Iterable[str]) -> None:
        """New lines of the log. A line that only says again what another did, with other numbers, is no movement:
        a hung engine repeats its complaints.
        """
        for line in lines:
            self._number += 1
            parsed = read_line(self._number, line)
            further = advance(self.progress, parsed)
            text = _NUMBERS.sub("#", parsed.text)
            is_news = text not in self._texts
            if is_news and len(self._texts) < _REMEMBERED_TEXTS:
                self._texts.add(text)
            if further is not self.progress or (is_news and len(self._texts) < _REMEMBERED_TEXTS):
                self._moved = self._now()
            self.progress = further

    def look(self) -> None:
        """At what the processes have transferred: weights that are read or fetched without a line are movement."""
        if self._now() - self._looked < _LOOK_S:
            return
        self._looked = self._now()
        counts = {process.pid: transferred_bytes(process.pid) for process in self._members()}
        if sum(max(0, n - self._bytes.get(pid, 0)) for pid, n in counts.items()) > _MOVED_BYTES:
            self._moved = self._now()
        self._bytes = counts

    def note(self) -> None:
        """Something else has moved: the server answered for the first time."""
        self._moved = self._now()

    def shown(self, waiting_for: str) -> StartProgress:
        """What to show now."""
        ready = self.progress.phase is Phase.READY
        words = waiting_for if ready or self.progress.phase is Phase.STARTING_SERVER else "the next line of its log"
        return StartProgress(progress=self.progress, waiting_for=words, elapsed_s=self.elapsed_s, still_s=self.still_s)
