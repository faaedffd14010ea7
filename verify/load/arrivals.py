"""When requests arrive, before the clock starts. Times are seconds from the phase's start, not falling."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise, takewhile


def constant(n: int, rate: float) -> list[float]:
    """One every 1 / rate."""
    return [i / rate for i in range(n)]


def poisson(n: int, rate: float, rng: random.Random) -> list[float]:
    """Gaps that remember nothing, which is what traffic of many users looks like within a minute."""
    return gamma(n, rate, 1.0, rng)


def gamma(n: int, rate: float, cv: float, rng: random.Random) -> list[float]:
    """Gaps of a gamma distribution with this coefficient of variation: 1 is Poisson, more comes in bursts."""
    if cv == 0:
        return constant(n, rate)
    shape = 1 / (cv * cv)
    at = 0.0
    times = []
    for _ in range(n):
        times.append(at)
        at += rng.gammavariate(shape, 1 / (rate * shape))
    return times


def piecewise(n: int, rates: Sequence[tuple[float, float]], rng: random.Random) -> list[float]:
    """Poisson within pieces of constant rate: `rates` are (from second, requests a second), the first from 0.

    The last piece goes on until all have arrived; a rate of 0 is a pause, and not the last.
    """
    times: list[float] = []
    ends = [*(start for start, _ in rates[1:]), math.inf]
    for (start, rate), end in zip(rates, ends, strict=True):
        at = start
        while rate > 0 and len(times) < n:
            at += rng.expovariate(rate)
            if at >= end:
                break
            times.append(at)
    return times


def figures(times: Sequence[float]) -> dict[str, float]:
    """What was really drawn: mean rate, the gaps' coefficient of variation, and the index of dispersion of arrivals per
    1, 10 and 60 s, where there are at least ten such windows. Poisson has 1 in all of them.
    """
    if len(times) < 2 or times[-1] <= times[0]:
        return {}
    span = times[-1] - times[0]
    gaps = [b - a for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    found = {"rate_per_s": (len(times) - 1) / span, "gap_cv": spread / mean}
    for window in (1, 10, 60):
        n = int(span // window)
        if n >= 10:
            found[f"dispersion_{window}s"] = _dispersion(times, window, n)
    return found


def _dispersion(times: Sequence[float], window: int, n: int) -> float:
    counts = [0] * n
    for at in takewhile(lambda t: t - times[0] < n * window, times):
        counts[int((at - times[0]) // window)] += 1
    mean = sum(counts) / n
    return sum((count - mean) ** 2 for count in counts) / n / mean if mean else 0.0
