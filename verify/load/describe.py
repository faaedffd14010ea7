"""The plan of a run in lines: what will be sent, why, and how long that may take."""

from __future__ import annotations

from verify.load.types import Phase, Schedule


def describe(schedule: Schedule) -> list[str]:
    """One line a phase, then totals, then what is left out."""
    lines = [
        f"{phase.name:<10} {_count(phase):>16}  {_time(phase.estimate_s):>8}  {phase.reason}"
        for phase in schedule.phases
    ]
    requests = [request for phase in schedule.phases for request in phase.requests]
    prompt, output = sum(r.prompt_tokens for r in requests), sum(r.output_tokens for r in requests)
    lines.append(f"{len(requests):,} requests, {prompt:,} prompt and {output:,} answer tokens{_total(schedule)}")
    lines += [
        f"not sent: {group.count:,} requests, {group.reason} (up to {group.longest_prompt_tokens} + "
        f"{group.longest_output_tokens} tokens)"
        for group in schedule.unsendable
    ]
    lines += [f"left out of the trace: {count:,} x {reason}" for reason, count in sorted(schedule.dropped.items())]
    lines += [f"note: {note}" for note in schedule.notes]
    lines.append(f"seed {schedule.seed}, schedule {schedule.sha256[:12]}")
    return lines


def _count(phase: Phase) -> str:
    if not phase.requests:
        return "idle"
    places = f" by {phase.concurrency}" if phase.mode == "closed" else ""
    return f"{len(phase.requests):,} requests{places}" if phase.mode == "open" else f"{len(phase.requests):,}{places}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _total(schedule: Schedule) -> str:
    times = [phase.estimate_s for phase in schedule.phases if phase.requests]
    if any(seconds is None for seconds in times):
        return "; how long that takes is not known without objectives under slo"
    return f"; {_time(sum(s or 0.0 for s in times))} for a server that just meets the objectives"
