"""All files of a report, from one verdict, put into a directory together."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

from verify.judge.types import Verdict
from verify.record.files import replace_files, without_secrets
from verify.record.store import REQUESTS, RUN, TIMELINE, run_files
from verify.record.types import Run
from verify.reports.machine import gate_prom, junit_xml, report_json
from verify.reports.page import report_html
from verify.reports.summary import summary_md

REPORT = "report.json"
# everything `write_reports` leaves in a directory
FILES = ("junit.xml", "summary.md", "gate.prom", "report.html", REPORT, REQUESTS, TIMELINE, RUN)


def report_files(verdict: Verdict, secrets: Iterable[str] = ()) -> dict[str, bytes]:
    """The printed reports by name; `secrets` are cut out of every text."""
    words = tuple(secrets)
    files = {
        "junit.xml": junit_xml(verdict),
        "summary.md": summary_md(verdict),
        "gate.prom": gate_prom(verdict),
        "report.html": report_html(verdict),
        REPORT: report_json(verdict),
    }
    return {name: without_secrets(data, words) for name, data in files.items()}


def write_reports(directory: Path, run: Run | None, verdict: Verdict, secrets: Iterable[str] = ()) -> None:
    """Put the reports, and the run they were judged from, into a directory.

    Without a run (the engine did not start) there are no rows, and those of an earlier run are not left beside the new
    verdict. Raises InvalidInput where the directory cannot be written.
    """
    words = tuple(secrets)
    rows = (
        run_files(run, words) if run is not None else dict.fromkeys((REQUESTS, TIMELINE), gzip.compress(b"", mtime=0))
    )
    replace_files(directory, {**rows, **report_files(verdict, words)})
    if run is None:
        (directory / RUN).unlink(missing_ok=True)
