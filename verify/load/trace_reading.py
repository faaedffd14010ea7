"""What has been read of a trace so far: rows kept, rows left out by reason, and what must be said of it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec

from verify.load.trace_types import Trace, TraceRow

MOST_ROWS = 500_000  # a schedule takes a few thousand; what is beyond them is not read
NO_PROMPT, NO_ANSWER, NO_TIME = "no prompt tokens", "no answer tokens", "no time"
_COARSE = 0.8  # a clock is coarse where fewer than so many of the rows have a time of their own


class Reading:
    """Collects rows. `take` says when it is enough."""

    def __init__(self, most: int | None = None) -> None:
        self.rows: list[TraceRow] = []
        self.dropped: Counter[str] = Counter()
        self._notes: list[str] = []
        self._most = MOST_ROWS if most is None else most

    @property
    def read(self) -> int:
        """Rows seen."""
        return len(self.rows) + self.dropped.total()

    def drop(self, reason: str) -> None:
        """One row is left out."""
        self.dropped[reason] += 1

    def note(self, text: str) -> None:
        """Something to be said once."""
        if text not in self._notes:
            self._notes.append(text)

    def take(self, row: TraceRow) -> bool:
        """Keep a row, or drop it where it has no tokens; True once there are enough."""
        if row.prompt_tokens < 1:
            self.drop(NO_PROMPT)
        elif row.output_tokens < 1:
            self.drop(NO_ANSWER)
        else:
            self.rows.append(row)
        if len(self.rows) < self._most:
            return False
        self.note(f"only its first {self.read:,} rows were read")
        return True

    def trace(self, name: str) -> Trace:
        """The rows by time, counted from the first; equal times in the order of the file."""
        timed = sum(1 for row in self.rows if row.at_s is not None)
        rows, step_s = self.rows, None
        if timed:
            for _ in range(len(rows) - timed):
                self.drop(NO_TIME)
            rows = [row for row in rows if row.at_s is not None]
            times = [row.at_s or 0.0 for row in rows]
            if any(b < a for a, b in pairwise(times)):
                self.note("its times do not rise: its rows are put in their order")
                rows.sort(key=lambda row: row.at_s or 0.0)
            first = rows[0].at_s or 0.0
            rows = [msgspec.structs.replace(row, at_s=(row.at_s or 0.0) - first) for row in rows]
            step_s = _step_s([row.at_s or 0.0 for row in rows])
        return Trace(
            name=name, rows=tuple(rows), read=len(rows) + self.dropped.total(), dropped=dict(self.dropped),
            notes=tuple(self._notes), step_s=step_s,
        )  # fmt: skip


def _step_s(times: list[float]) -> float | None:
    """The usual step between two times of a coarse clock."""
    distinct = sorted(set(times))
    if len(distinct) < 2 or len(distinct) > _COARSE * len(times):
        return None
    steps = sorted(b - a for a, b in pairwise(distinct))
    return steps[len(steps) // 2]
