"""The verdict for a terminal, as lines."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from verify.judge.types import Check, Verdict
from verify.reports.figures import headline, kv_rows, ordered, word

_STYLES = {"pass": "green", "FAIL": "red", "unknown": "yellow", "warning": "yellow", "n/a": "dim"}
_RESULTS = {"pass": "green", "fail": "red", "inconclusive": "yellow"}

Paint = Callable[[str, str], str]


def lines(verdict: Verdict, *, width: int = 80, paint: Paint = lambda text, _style: text) -> list[str]:
    """What decides first, then the other checks, then the pool; `paint` may colour a word, which says nothing new."""
    head = textwrap.wrap(headline(verdict), width, subsequent_indent="  ", break_long_words=False)
    head[0] = head[0].replace(
        verdict.verdict.upper(), paint(verdict.verdict.upper(), _RESULTS[verdict.verdict]), 1
    )  # fmt: skip
    out = [*head, ""]
    for check in ordered(verdict.checks):
        out += _check(check, width, paint)
    out += ["", *_pool(verdict)]
    for note in verdict.notes:
        out += textwrap.wrap(f"note: {note}", width, subsequent_indent="  ", break_long_words=False)
    return out


def verdict_line(verdict: Verdict) -> str:
    """The last line: nothing but the verdict and why, on one line."""
    return " ".join(headline(verdict).split())


def _check(check: Check, width: int, paint: Paint) -> list[str]:
    said = word(check)
    if said == "n/a":
        return []
    lead = f"  {said:<8} {check.id:<23} "
    wrapped = textwrap.wrap(
        lead + " ".join(check.reason.split()), width, subsequent_indent=" " * len(lead), break_long_words=False
    )  # fmt: skip
    wrapped[0] = wrapped[0].replace(said, paint(said, _STYLES[said]), 1)
    if check.remedy and check.status in ("fail", "unknown"):
        first = " " * len(lead) + "-> "
        wrapped += textwrap.wrap(
            " ".join(check.remedy.split()), width, initial_indent=first, subsequent_indent=" " * len(first),
            break_long_words=False,
        )  # fmt: skip
    return wrapped


def _pool(verdict: Verdict) -> list[str]:
    kv = verdict.kv
    blocks = kv.get("num_blocks")
    title = f"KV cache, {blocks:,} blocks" if isinstance(blocks, int) else "KV cache"
    head = ("phase", "peak blocks", "peak", "p95", "mean", "s full")
    rows = [head, *kv_rows(verdict)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
    table = [
        "  " + "  ".join([row[0].ljust(widths[0]), *(row[n].rjust(widths[n]) for n in range(1, len(head)))])
        for row in rows
    ]
    return [title, *table]
