"""The waiting queue, first come first served or by priority.

Source: vLLM 0.32 v1/core/sched/request_queue.py and Request.__lt__.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush

from advisor.simulation.state import Live


class Waiting:
    """First come, first served; a preempted request goes to the front."""

    def __init__(self) -> None:
        self._queue: deque[Live] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, live: Live) -> None:
        """A request arrives."""
        self._queue.append(live)

    def put_back(self, live: Live) -> None:
        """A request was preempted."""
        self._queue.appendleft(live)

    def head(self) -> Live:
        """The request to be admitted next."""
        return self._queue[0]

    def take(self) -> Live:
        """Admit the head."""
        return self._queue.popleft()

    def remove(self, live: Live) -> None:
        """A request leaves without having been admitted."""
        self._queue.remove(live)


class WaitingByPriority(Waiting):
    """The smallest (priority, arrival) first, preempted or not."""

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[tuple[int, int, int], Live]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, live: Live) -> None:
        """A request arrives."""
        heappush(self._heap, (live.rank, live))

    def put_back(self, live: Live) -> None:
        """A request was preempted; it takes its place by priority."""
        self.add(live)

    def head(self) -> Live:
        """The request to be admitted next."""
        return self._heap[0][1]

    def take(self) -> Live:
        """Admit the head."""
        return heappop(self._heap)[1]

    def remove(self, live: Live) -> None:
        """A request leaves without having been admitted."""
        self._heap = [entry for entry in self._heap if entry[1] is not live]
        heapify(self._heap)
