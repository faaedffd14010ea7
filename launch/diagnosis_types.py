"""What a diagnosis is made of, and what it is made from. Values only."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from advisor.versions import Version, parse_version
from launch.log_lines import LogLine
from launch.progress import Phase
from launch.startup_facts import StartupFacts

Severity = Literal["error", "warning", "note"]
Confidence = Literal["high", "medium", "low"]


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong and the smallest change that helps.

    `change` maps vLLM arguments to new values (None: leave it out) and `environment` variables likewise; both None
    where no setting cures it and a person has to act. `retry` says whether the very same command may work next time.
    `evidence` is the log line (or the figures) it rests on, `signals` everything that was used, `not_seen` what would
    have made it surer. `code` is stable, and the plan's findings use the same one for the same thing.
    """

    code: str
    severity: Severity = "error"
    message: str
    remedy: str
    evidence: str
    line: int | None = None  # of the log, from 1
    change: dict[str, Any] | None = None
    environment: dict[str, str | None] | None = None
    retry: bool = False
    confidence: Confidence = "high"
    signals: tuple[str, ...] = ()
    not_seen: tuple[str, ...] = ()
    source: str = ""


class Holder(msgspec.Struct, frozen=True):
    """Another process that holds memory of the device."""

    pid: int
    name: str
    held_bytes: int


class ExitState(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine's process ended. `code` as subprocess gives it: negative is a signal; None while it lives.

    `asked` is whether the launcher, or its user, told it to stop; `seconds` how long it had run.
    """

    code: int | None = None
    asked: bool = False
    seconds: float | None = None

    @property
    def signal(self) -> int | None:
        """The signal that ended it, from a negative code or a shell's 128 + n."""
        if self.code is None:
            return None
        if self.code < 0:
            return -self.code
        return self.code - 128 if 128 < self.code <= 128 + 64 else None

    @property
    def has_failed(self) -> bool:
        """Whether it ended by itself and not well."""
        return self.code not in (None, 0) and not self.asked


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside the log; every field may be unknown. Sizes are those of the device chosen, before start."""

    flags: dict[str, Any] = {}  # vLLM arguments, snake_case, as the plan or the command gave them
    version: str | None = None
    environment: dict[str, str] = {}
    total_bytes: int | None = None
    free_bytes: int | None = None
    all_free_bytes: tuple[int, ...] = ()  # of every GPU of the machine, by index
    gpu_count: int | None = None
    others: tuple[Holder, ...] = ()  # on the device chosen, when the start failed
    others_grew_bytes: int | None = None  # how much more they held after than before
    allowed_tp: tuple[int, ...] = ()
    model_max_len: int | None = None
    vocab_size: int | None = None
    is_moe: bool | None = None
    weights_bytes: int | None = None  # of one rank
    planned_kv_bytes: int | None = None
    target_concurrency: int | None = None
    longest_request_tokens: int | None = None
    p95_request_tokens: int | None = None
    in_container: bool | None = None
    shm_bytes: int | None = None
    memory_limit_bytes: int | None = None  # the cgroup's
    earlier: tuple[tuple[str, ...], ...] = ()  # logs of earlier attempts, oldest first


class Case(msgspec.Struct, frozen=True):
    """One failed start (or one server's log) as the rules see it."""

    lines: Sequence[LogLine]
    phases: Sequence[Phase]  # how far the start had come at each line
    facts: StartupFacts
    exit: ExitState
    context: Context
    earlier: tuple[tuple[LogLine, ...], ...] = ()

    def flag(self, name: str) -> Any:
        """An argument's value: as given, else as the engine says it; None where neither is known."""
        for source in (self.context.flags, self.facts.args or {}):
            if source.get(name) is not None:
                return source[name]
        value = getattr(self.facts, name, None)
        return None if isinstance(value, msgspec.Struct) else value

    @property
    def version(self) -> Version | None:
        """The release: as the log says, else as the context does."""
        if self.facts.release is not None:
            return self.facts.release
        text = self.context.version
        return parse_version(text) if text else None

    @property
    def total_bytes(self) -> int | None:
        """The device's memory: from the context, else as the log prints it or lets it be worked out; None without."""
        if self.context.total_bytes is not None:
            return self.context.total_bytes
        if self.facts.total_gib is not None:
            return round(self.facts.total_gib.low * 1024**3)
        share, without = self.facts.gpu_memory_utilization, self.facts.utilization_without_graphs
        if self.facts.requested_gib is not None and share:
            return round(self.facts.requested_gib.low / share * 1024**3)
        graphs = self.facts.graphs_estimated_gib
        if graphs is not None and graphs.low > 0 and share and without and share > without:
            return round(graphs.low / (share - without) * 1024**3)  # true to a few hundredths
        return None

    @property
    def phase(self) -> Phase:
        """How far the start came."""
        return self.phases[-1] if self.phases else Phase.BEGINNING


class Seen(msgspec.Struct, frozen=True):
    """A rule's pattern found in a line."""

    case: Case
    match: re.Match[str]
    index: int  # of the line in the case

    @property
    def line(self) -> LogLine:
        """The line itself."""
        return self.case.lines[self.index]

    @property
    def phase(self) -> Phase:
        """How far the start had come at this line."""
        return self.case.phases[self.index]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's answer. `code` only where it differs from the rule's first."""

    message: str
    remedy: str
    code: str | None = None
    severity: Severity | None = None
    change: dict[str, Any] | None = None
    environment: dict[str, str | None] | None = None
    retry: bool = False
    confidence: Confidence = "high"
    signals: tuple[str, ...] = ()
    not_seen: tuple[str, ...] = ()


Explain = Callable[[Seen], Sequence[Advice] | Advice | None]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One line's shape and what it means.

    `codes` are all that it may answer with; `hint` is text (lower case) of which every line it can match
    holds one. A match takes away
    findings whose code is in `hides`: they are its consequences. `rank` orders causes, the smallest first.
    """

    codes: tuple[str, ...]
    hint: str | tuple[str, ...]
    pattern: re.Pattern[str]
    explain: Explain
    source: str
    severity: Severity = "error"
    hides: tuple[str, ...] = ()
    rank: int = 50


class StateRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of the whole case: the exit state, or figures that no line calls wrong."""

    codes: tuple[str, ...]
    explain: Callable[[Case], tuple[Advice, str, int | None] | None]  # with the evidence and its line
    source: str
    severity: Severity = "error"
    hides: tuple[str, ...] = ()
    rank: int = 50


def fixed(
    message: str,
    remedy: str,
    *,
    change: dict[str, Any] | None = None,
    environment: dict[str, str | None] | None = None,
    retry: bool = False,
    confidence: Confidence = "high",
) -> Explain:
    """An answer whose words take the pattern's groups, by number or name, and compute nothing."""

    def explain(seen: Seen) -> Advice:
        groups = [seen.match[0], *("" if group is None else group for group in seen.match.groups())]
        return Advice(
            message=message.format(*groups),
            remedy=remedy.format(*groups),
            change=dict(change) if change is not None else None,
            environment=dict(environment) if environment is not None else None,
            retry=retry,
            confidence=confidence,
        )

    return explain
