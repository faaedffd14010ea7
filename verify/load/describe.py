"""The plan of a run in lines: what will be sent, why, and how long that may take."""

from __future__ import annotations

from verify.load.bounding import at_least_s
from verify.load.types import Phase, Schedule, Unsendable


def describe(schedule: Schedule) -> list[str]:
    """One line a phase, then totals, then what is left out."""
    lines = [
        f"{phase.name:<10} {_count(phase):>16}  {_tokens(phase):>9}  {_time(phase):>8}  {phase.reason}"
        for phase in schedule.phases
    ]
    requests = [request for phase in schedule.phases for request in phase.requests]
    prompt, output = sum(r.prompt_tokens for r in requests), sum(r.output_tokens for r in requests)
    lines.append(f"{len(requests):,} requests, {prompt:,} prompt and {output:,} answer tokens{_total(schedule)}")
    lines += [_arrivals(schedule)] if "rate_per_s" in schedule.figures else []
    lines += [_left_out(group) for group in schedule.unsendable]
    lines += [f"left out of the trace: {count:,} x {reason}" for reason, count in sorted(schedule.dropped.items())]
    lines += [f"note: {note}" for note in schedule.notes]
    lines.append(f"seed {schedule.seed}, schedule {schedule.sha256[:12]}")
    return lines


def _count(phase: Phase) -> str:
    if not phase.requests:
        return "idle"
    n = f"{len(phase.requests):,}"
    return f"{n} by {phase.concurrency}" if phase.mode == "closed" else f"{n} requests"


def _tokens(phase: Phase) -> str:
    """Prompt and answer tokens together, to three digits."""
    tokens = sum(r.prompt_tokens + r.output_tokens for r in phase.requests)
    if not tokens:
        return ""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if tokens >= size:
            return f"{tokens / size:.3g} {unit} tok"
    return f"{tokens} tok"


def _time(phase: Phase) -> str:
    if phase.name == "drain" and phase.seconds is not None:
        return f"<= {_seconds(phase.seconds)}"
    if phase.mode == "open" and phase.estimate_s is None:
        return f"> {_seconds(at_least_s(phase))}"
    return _seconds(phase.estimate_s)


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _total(schedule: Schedule) -> str:
    times = [phase.estimate_s for phase in schedule.phases if phase.requests]
    if not schedule.times_are or any(seconds is None for seconds in times):
        return "; how long that takes is not known without objectives under slo"
    return f"; {_seconds(sum(s or 0.0 for s in times))} {schedule.times_are}"


def _arrivals(schedule: Schedule) -> str:
    figures = schedule.figures
    parts = [f"{figures['rate_per_s']:.3g} a second", f"CV of gaps {figures['gap_cv']:.2f}"]
    parts += [
        f"dispersion in {window} s {figures[name]:.2f}"
        for window in (1, 10, 60)
        if (name := f"dispersion_{window}s") in figures
    ]
    return f"arrivals as drawn: {', '.join(parts)}"


def _left_out(group: Unsendable) -> str:
    whose = f" of {group.phase}" if group.phase is not None else ""
    longest = f"{group.longest_prompt_tokens} + {group.longest_output_tokens}"
    return f"not sent: {group.count:,} requests{whose}, {group.reason} (up to {longest} tokens)"
