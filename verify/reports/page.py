"""The verdict as one HTML file: no script, nothing loaded, readable without colour and by a screen reader."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from verify.judge.types import Check, Verdict
from verify.reports.figures import (
    KV_HEAD,
    LATENCY_HEAD,
    facts,
    kv_rows,
    latency_rows,
    observed,
    ordered,
    plan_rows,
    request_rows,
    threshold,
    word,
)

_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8886; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.verdict { border-left: .5rem solid; padding-left: 1rem; }
.pass { border-color: #1a7f37; } .fail { border-color: #cf222e; } .inconclusive { border-color: #9a6700; }
td.FAIL, td.unknown, td.warning { font-weight: bold; }
.remedy { display: block; }
"""


def report_html(verdict: Verdict) -> bytes:
    """The page."""
    name = escape(str(verdict.run.get("workload") or verdict.target.get("model") or "run"))
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{verdict.verdict}: {name}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        "<main>",
        f"<h1>{name}: {verdict.verdict}</h1>",
        f'<p class="verdict {verdict.verdict}">{escape(verdict.summary)}</p>',
        *_diagnosis(verdict),
        *_checks(verdict),
        *_table("KV cache", KV_HEAD, kv_rows(verdict)),
        *_table("Planned and actual", ("", "planned", "actual"), plan_rows(verdict)),
        *_table("Requests", ("", "count"), request_rows(verdict)),
        *_table("Latency", LATENCY_HEAD, latency_rows(verdict), text=5),
        *_table("Run", ("", ""), facts(verdict), text=2),
        *_notes(verdict),
        "</main>",
        "</body>",
        "</html>",
    ]
    return ("\n".join(parts) + "\n").encode("utf-8", "replace")


def _checks(verdict: Verdict) -> list[str]:
    rows = [_check(check) for check in ordered(verdict.checks)]
    head = _head(("", "check", "phase", "level", "observed", "threshold", "n", "why"))
    return ["<h2>Checks</h2>", "<table>", head, "<tbody>", *rows, "</tbody>", "</table>"]


def _check(check: Check) -> str:
    said = word(check)
    why = escape(check.reason)
    if check.remedy and check.status in ("fail", "unknown"):
        why += f'<span class="remedy">What helps: {escape(check.remedy)}</span>'
    count = f"{check.n:,}" if check.n is not None else ""
    return (
        f'<tr><td class="{said.split("/")[0]}">{said}</td><th scope="row">{escape(check.id)}</th>'
        f"<td>{escape(check.phase or '')}</td><td>{check.level}</td><td>{escape(observed(check))}</td>"
        f'<td>{escape(threshold(check))}</td><td class="number">{count}</td><td>{why}</td></tr>'
    )


def _diagnosis(verdict: Verdict) -> list[str]:
    said = verdict.diagnosis
    if not said:
        return []
    rows = [(str(key), str(value)) for key, value in said.items() if value]
    return _table("Why the engine did not start", ("", ""), rows, text=2)


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], text: int = 1) -> list[str]:
    """A table whose first `text` columns are words and whose others are numbers."""
    if not rows:
        return []
    body = []
    for row in rows:
        cells = [f'<td class="number">{escape(cell)}</td>' for cell in row[1:]]
        cells[: text - 1] = [f"<td>{escape(cell)}</td>" for cell in row[1:text]]
        body.append(f'<tr><th scope="row">{escape(row[0])}</th>{"".join(cells)}</tr>')
    return [f"<h2>{escape(title)}</h2>", "<table>", _head(head), "<tbody>", *body, "</tbody>", "</table>"]


def _head(names: Sequence[str]) -> str:
    cells = "".join(f'<th scope="col">{escape(name)}</th>' if name else "<td></td>" for name in names)
    return f"<thead><tr>{cells}</tr></thead>" if any(names) else ""


def _notes(verdict: Verdict) -> list[str]:
    if not verdict.notes:
        return []
    return ["<h2>Notes</h2>", "<ul>", *(f"<li>{escape(note)}</li>" for note in verdict.notes), "</ul>"]
