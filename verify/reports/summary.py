"""The verdict as Markdown, for a job's step summary or a comment: below 64 kB, and no text of a server's is markup."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verify.judge.types import Check, Verdict
from verify.reports.figures import (
    KV_HEAD,
    LATENCY_HEAD,
    facts,
    headline,
    kv_rows,
    latency_rows,
    observed,
    ordered,
    plan_rows,
    request_rows,
    threshold,
    word,
)

LARGEST_BYTES = 60_000
_LONGEST = 400
_MARKUP = re.compile(r"([\\`*_\[\]|~#!$])")


def summary_md(verdict: Verdict) -> bytes:
    """The whole document; the last parts are left out where it would be too long."""
    parts = ["\n".join(lines) for lines in _parts(verdict) if lines]
    while True:
        text = "\n\n".join(parts) + "\n"
        if len(text.encode()) <= LARGEST_BYTES or len(parts) == 1:
            return text.encode()
        parts = parts[:-1]


def _parts(verdict: Verdict) -> list[list[str]]:
    decisive = [check for check in ordered(verdict.checks) if check.status in ("fail", "unknown")]
    return [
        [f"## kvadvise: {verdict.verdict}", "", escaped(headline(verdict))],
        _remedies(decisive),
        ["### Checks", "", *_table(_CHECK_HEAD, [_check(check) for check in ordered(verdict.checks)])],
        ["### KV cache", "", *_table(KV_HEAD, kv_rows(verdict), right=range(1, 6)), "", _pool(verdict)],
        _diagnosis(verdict),
        _section("### Planned and actual", ("", "planned", "actual"), plan_rows(verdict)),
        ["### Requests", "", ", ".join(f"{escaped(name)} {count}" for name, count in request_rows(verdict))],
        ["### Run", "", *(f"- {escaped(name)}: {escaped(value)}" for name, value in facts(verdict))],
        ["### Notes", "", *(f"- {escaped(note)}" for note in verdict.notes)] if verdict.notes else [],
        _folded("Latency", _table(LATENCY_HEAD, latency_rows(verdict), right=range(5, 10))),
    ]  # fmt: skip


_CHECK_HEAD = ("", "check", "level", "observed", "threshold", "why")


def _check(check: Check) -> tuple[str, ...]:
    return (word(check), check.id, check.level, observed(check), threshold(check), check.reason)


def _remedies(checks: Sequence[Check]) -> list[str]:
    lines = [f"- **{escaped(check.id)}**: {escaped(check.remedy)}" for check in checks if check.remedy]
    return ["What helps:", "", *lines] if lines else []


def _diagnosis(verdict: Verdict) -> list[str]:
    said = verdict.diagnosis
    if not said:
        return []
    lines = [f"- {escaped(key)}: {escaped(str(value))}" for key, value in said.items() if value]
    return ["### Why the engine did not start", "", *lines]


def _pool(verdict: Verdict) -> str:
    kv = verdict.kv
    if kv.get("num_blocks") is None:
        return "The server does not say how many blocks it has."
    usable, after = kv.get("usable_blocks"), kv.get("after_drain_blocks")
    back = f"; {after:,} in use after the load" if isinstance(after, int) else ""
    size = f" of {kv['block_size']} tokens" if kv.get("block_size") is not None else ""
    ours = f", {usable:,} of them for requests" if isinstance(usable, int) else ""
    return f"{kv['num_blocks']:,} blocks{size}{ours}{back}."


def _section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [title, "", *_table(head, rows)] if rows else []


def _folded(title: str, lines: list[str]) -> list[str]:
    if len(lines) <= 2:
        return []
    return ["<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    rule = ["---:" if n in right else "---" for n in range(len(head))]
    return [_row(head), _row(rule, plain=True), *(_row(row) for row in rows)]


def _row(cells: Sequence[str], *, plain: bool = False) -> str:
    return "| " + " | ".join(cell if plain else escaped(cell) for cell in cells) + " |"


def escaped(text: str) -> str:
    """The text as text: one line, no markup, no HTML, nobody mentioned."""
    line = " ".join(text.split())
    if len(line) > _LONGEST:
        line = line[: _LONGEST - 1] + "…"
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    return _MARKUP.sub(r"\\\1", line)
