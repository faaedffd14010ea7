"""What `kvadvise launch` says while a server starts and runs: JSON lines on stdout, or words on stderr."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from kvadvise.figures import planned_bands, planned_figures, planned_parts, side_by_side
from kvadvise.printing.starting import starting_on_stderr

if TYPE_CHECKING:
    from advisor.plan_types import Finding, Plan
    from kvadvise.after_start import Started
    from kvadvise.figures import Figure
    from launch.diagnosis_types import Diagnosis
    from launch.measured_store import Kept
    from launch.running_server import RunningServer, Stopped
    from launch.start_progress import StartProgress


class LaunchReport:
    """One start and its end, as they are told."""

    def __init__(self, plan: Plan, *, as_json: bool) -> None:
        self.plan = plan
        self.as_json = as_json
        self.planned = planned_figures(plan) | planned_parts(plan)
        self.actual: dict[str, Figure] = {}
        self._starting = starting_on_stderr()

    def say(self, text: str) -> None:
        """A line for a person; stdout stays for JSON."""
        from kvadvise.output import tell

        self._starting.end()
        tell(text)

    def progress(self, seen: StartProgress) -> None:
        """How the start goes on: a line that moves on a terminal, elsewhere what is new."""
        self._starting.show(seen)

    def end_progress(self) -> None:
        """The start is over, one way or the other: what comes next begins a line of its own."""
        self._starting.end()

    def findings(self, found: Iterable[Finding | Diagnosis]) -> None:
        """What was seen before the start, in its log, or after the stop."""
        for finding in found:
            self.say(f"{finding.severity}  {finding.code}: {finding.message}\n  -> {finding.remedy}")

    def failed(self, seconds: float, code: str, message: str, remedy: str, evidence: str | None) -> None:
        """Nothing runs, and why."""
        reason = {"code": code, "message": message, "remedy": remedy, "evidence": evidence}
        if self.as_json:
            self._line("failed", seconds=seconds, diagnosis=reason)
            return
        self.say(f"not started: {code}: {message}")
        self.say(f"  -> {remedy}")
        if evidence:
            self.say(f"  seen: {evidence}")

    def diagnosed(self, seconds: float, causes: list[Diagnosis], log_path: str) -> None:
        """The engine came up to some point and no further."""
        first = causes[0]
        self.failed(seconds, first.code, first.message, first.remedy, first.evidence)
        for other in causes[1:]:
            self.say(f"also {other.code}: {other.message}\n  -> {other.remedy}")
        self.say(f"the engine's log is {log_path}")

    def ready(self, server: RunningServer, started: Started, kept: Kept | None) -> None:
        """It answers: its figures beside the plan's, arguments that are not the plan's, what was kept."""
        self.actual = started.figures
        if self.as_json:
            self._line(
                "ready",
                seconds=server.seconds,
                url=server.url,
                pid=server.pid,
                log_path=str(server.log_path),
                arguments=msgspec.to_builtins(started.differing),
                findings=msgspec.to_builtins(started.findings),
                measured=str(kept.path) if kept is not None else None,
            )
        else:
            self.say(f"ready after {server.seconds:.0f} s at {server.url}, process {server.pid}, log {server.log_path}")
            for line in side_by_side(self.planned, started.figures, planned_bands(self.plan)):
                self.say(line)
        for one in started.differing:
            self.say(f"warning  the engine has {one.name} {one.actual}, planned is {one.planned}")
        self.findings(started.findings)
        self._kept(started, kept)

    def _kept(self, started: Started, kept: Kept | None) -> None:
        if kept is None:
            if started.not_measured:
                self.say(f"what the start cost is not kept: {started.not_measured}")
            return
        if kept.replaced:
            self.say(f"warning  {kept.path} {kept.replaced}; it was replaced")
        count = kept.measurement.starts
        starts = "this start" if count == 1 else f"{count} starts"
        self.say(f"what it cost is kept for the next plan ({starts}): {kept.path}")
        key, planned = kept.measurement.key, self.plan.measured.key if self.plan.measured is not None else None
        if planned is not None and key != planned:
            changed = [f for f in key.__struct_fields__ if getattr(key, f) != getattr(planned, f)]
            told = ", ".join(f"{name} {getattr(key, name)} instead of {getattr(planned, name)}" for name in changed)
            self.say(f"  it holds for {told}, so a plan uses it that says so")

    def not_kept(self, why: str) -> None:
        """The server is fine, the store is not."""
        self.say(f"warning  what the start cost could not be kept: {why}")

    def stopped(self, server: RunningServer, stopped: Stopped, seconds: float) -> None:
        """It is gone, and what it left."""
        if self.as_json:
            self._line("stopped", seconds=seconds, url=server.url, pid=server.pid)
        else:
            self.say(f"stopped after {stopped.seconds:.0f} s: {stopped.exit}")
        self.findings(stopped.findings)

    def _line(self, state: Any, **fields: Any) -> None:
        import json

        from kvadvise.output import emit
        from launch.state_line import state_line

        self._starting.end()
        emit(json.dumps(state_line(state, planned=self.planned, actual=self.actual, **fields), default=str))
