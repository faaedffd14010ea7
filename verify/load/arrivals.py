"""When requests arrive, before the clock starts. Times are seconds from the phase's start, not falling.

Gaps are drawn at random and then scaled to the rate that was asked for: a hundred Poisson arrivals would else have a
rate that is ten percent off, with a fixed seed every time, and a load that is easier than stated may pass. What the
rate does over minutes is said by pieces.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise

from advisor.workload import Arrivals

_OPEN_PIECE_S = 60.0  # a last piece with a rate goes on so long at least
_CV_OFF = 0.25
_SMALLEST_CV = 0.001  # even in all but name
POISSON = Arrivals()


def evenly(n: int, rate: float) -> list[float]:
    """One every 1 / rate."""
    return [i / rate for i in range(n)]


def in_bursts(n: int, rate: float, cv: float, rng: random.Random) -> list[float]:
    """Gaps of a gamma distribution with this coefficient of variation: 1 is Poisson, which is what traffic of many
    users looks like within a minute; more comes in bursts, less more evenly.
    """
    if cv < _SMALLEST_CV or n < 2:
        return evenly(n, rate)
    shape = 1 / (cv * cv)
    gaps = [rng.gammavariate(shape, 1 / shape) for _ in range(n - 1)]
    total = math.fsum(gaps)
    if total <= 0:
        return evenly(n, rate)
    scale = (n - 1) / rate / total
    times, at = [0.0], 0.0
    for gap in gaps:
        at += gap * scale
        times.append(at)
    return times


def in_pieces(
    rates: Sequence[tuple[float, float]], rng: random.Random, *, fewest: int, most: int
) -> tuple[list[float], float]:
    """Poisson within pieces of constant rate, and when the last piece ends. `rates` are (from second, requests a
    second), the first from 0. Every piece has as many arrivals as its rate says, at random times in it. The last one,
    where its rate is not 0, lasts as long as the longest before it and until `fewest` have come; no more than `most`
    come at all.
    """
    lengths = [after - before for (before, _), (after, _) in pairwise(rates)]
    times: list[float] = []
    for (start, rate), seconds in zip(rates, lengths, strict=False):
        times += _at_random(start, seconds, min(round(rate * seconds), most - len(times)), rng)
    start, rate = rates[-1]
    if rate <= 0:
        return times, start
    n = max(1, round(rate * max([_OPEN_PIECE_S, *lengths])), fewest - len(times))
    seconds = n / rate
    return times + _at_random(start, seconds, min(n, most - len(times)), rng), start + seconds


def _at_random(start: float, seconds: float, n: int, rng: random.Random) -> list[float]:
    """So many arrivals in a stretch of time, which is what Poisson is where their number is known."""
    return sorted(start + seconds * rng.random() for _ in range(n))


def times(
    arrivals: Arrivals | None, rate: float, rng: random.Random, *, fewest: int, most: int
) -> tuple[list[float], str, tuple[str, ...]]:
    """When requests arrive, how in words, and what must be said of it. `fewest` come, unless pieces say otherwise."""
    wanted = arrivals or POISSON
    if wanted.rates is not None:
        found, end_s = in_pieces(wanted.rates, rng, fewest=fewest, most=most)
        notes = _pieces_notes(found, end_s, fewest=fewest, most=most)
        return found, f"at random at {len(wanted.rates)} rates over {end_s:.0f} s", notes
    n = min(fewest, most)
    if wanted.process == "constant":
        return evenly(n, rate), f"evenly at {rate:g} a second", ()
    cv = wanted.cv if wanted.process == "gamma" and wanted.cv is not None else 1.0
    found = in_bursts(n, rate, cv, rng)
    how = f"at random at {rate:g} a second" if cv == 1 else f"in bursts (CV {cv:g}) at {rate:g} a second"
    drawn = figures(found).get("gap_cv", cv)
    off = cv > 0 and abs(drawn - cv) > _CV_OFF * cv
    note = f"the gaps between {n:,} arrivals have a CV of {drawn:.2g}, not {cv:g}: so few show it no better"
    return found, how, (note,) if off and n > 1 else ()


def _pieces_notes(found: Sequence[float], end_s: float, *, fewest: int, most: int) -> tuple[str, ...]:
    if len(found) >= most:
        return (f"only {most:,} requests of the pieces are played, until {found[-1]:.0f} s",)
    if len(found) < fewest:
        return (f"{len(found):,} requests arrive until the pieces end at {end_s:.0f} s; {fewest:,} would tell more",)
    return ()


def figures(times: Sequence[float]) -> dict[str, float]:
    """What was really drawn: mean rate, the gaps' coefficient of variation, and the index of dispersion of arrivals per
    1, 10 and 60 s, where there are at least ten such windows. Poisson has 1 in all of them.
    """
    if len(times) < 2 or times[-1] <= times[0]:
        return {}
    span = times[-1] - times[0]
    gaps = [b - a for a, b in pairwise(times)]
    mean = span / len(gaps)
    spread = math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    found = {"rate_per_s": (len(times) - 1) / span, "gap_cv": spread / mean}
    for window in (1, 10, 60):
        n = int(span // window)
        if n >= 10:
            found[f"dispersion_{window}s"] = _dispersion(times, window, n)
    return found


def _dispersion(times: Sequence[float], window: int, n: int) -> float:
    """Variance over mean of the counts in `n` whole windows from the first arrival on."""
    counts = [0] * n
    for at in times:
        place = int((at - times[0]) // window)
        if place < n:
            counts[place] += 1
    mean = sum(counts) / n
    return sum((count - mean) ** 2 for count in counts) / n / mean if mean else 0.0
