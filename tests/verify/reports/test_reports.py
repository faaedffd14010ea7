"""Every report is printed from one verdict: whole, escaped, the same each time, and never half written."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as Xml

import jsonschema
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import profiles
from advisor.errors import InvalidInput
from tests.verify.runs import PLANNED, SERVED, THRESHOLDS, changed_rows, failed, healthy, healthy_rows, set_metric
from verify.judge.types import Verdict
from verify.judge.verdict import engine_did_not_start, judge
from verify.record.store import REQUESTS, RUN, TIMELINE, read_run
from verify.record.types import RequestRow, Run
from verify.reports.machine import gate_prom, junit_xml, report_json
from verify.reports.page import report_html
from verify.reports.summary import LARGEST_BYTES, summary_md
from verify.reports.text import lines, verdict_line
from verify.reports.writer import REPORT, report_files, write_reports

SCHEMA = json.loads((Path(profiles.__file__).parent / "schema" / "verdict-1.schema.json").read_text("utf-8"))
FILES = {REPORT, "junit.xml", "summary.md", "gate.prom", "report.html", REQUESTS, TIMELINE}
NASTY = "<script>alert(1)</script> | `x` *b* [l](http://e) @team\x00\x0b\ud800 ]]> & \u2028 ::error::"


def _some_fail(number: int, row: RequestRow) -> RequestRow:
    return failed(row, "rejected", status=503, error="HTTP 503: queue full") if number % 10 == 0 else row


def _runs() -> dict[str, Run]:
    nasty = changed_rows("tail", lambda n, row: failed(row, "http_5xx", error=NASTY) if n == 0 else row)
    return {
        "pass": healthy(),
        "fail": healthy(rows=changed_rows("tail", _some_fail)),
        "inconclusive": healthy(metric=set_metric(preemptions=None, kv_usage=None)),
        "interrupted": healthy(rows=healthy_rows()[:20], ended="interrupted", ending_text="interrupted by SIGINT"),
        "empty": healthy(rows=[], marks=(), snapshots=(), planned=None, client=(), log=None, ended="interrupted"),
        "nasty": healthy(rows=nasty, workload_name=NASTY),
    }


RUNS = _runs()
NOT_STARTED = engine_did_not_start(
    {"code": "oom-kv-cache", "message": "no room", "remedy": "less", "evidence": "line 7: OOM", "line": 7},
    PLANNED, THRESHOLDS, kvadvise_version="0.1.0", started_at="2026-01-02T03:04:05+00:00", seconds=12.5,
    workload_name="chat",
)  # fmt: skip
VERDICTS: dict[str, Verdict] = {
    **{name: judge(run, THRESHOLDS) for name, run in RUNS.items()},
    "not-started": NOT_STARTED,
}
every = pytest.mark.parametrize("verdict", VERDICTS.values(), ids=VERDICTS)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@every
def test_report_json_is_what_the_schema_says(verdict: Verdict) -> None:
    document = json.loads(report_json(verdict))
    assert [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(document)] == []


def test_the_schema_knows_every_key() -> None:
    document = json.loads(report_json(VERDICTS["pass"]))
    assert set(document) == set(SCHEMA["properties"])
    assert set(document["checks"][0]) == set(SCHEMA["properties"]["checks"]["items"]["properties"])
    for key in ("kv", "requests"):
        assert set(document[key]) - set(SCHEMA["properties"][key]["properties"]) == set()


def test_the_schema_refuses_what_is_none() -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    good = json.loads(report_json(VERDICTS["pass"]))
    assert validator.is_valid(good)
    assert not validator.is_valid({**good, "verdict": "passed"})
    assert not validator.is_valid({**good, "schema": "kvadvise.verdict/2"})
    assert not validator.is_valid({key: value for key, value in good.items() if key != "checks"})


def test_a_report_reads_back_into_the_verdict() -> None:
    for verdict in VERDICTS.values():
        back = msgspec.json.decode(report_json(verdict), type=Verdict)
        assert back.verdict == verdict.verdict
        assert [c.status for c in back.checks] == [c.status for c in verdict.checks]


@every
def test_junit_says_what_the_verdict_says(verdict: Verdict) -> None:
    root = Xml.fromstring(junit_xml(verdict))  # noqa: S314 - written here
    suite = root[0]
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [check.id for check in verdict.checks]
    for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert int(suite.get(attribute, "")) == len(suite.findall(f"testcase/{kind}")) == int(root.get(attribute, ""))
    bad = int(suite.get("failures", "")) + int(suite.get("errors", ""))
    assert (bad == 0) == (verdict.verdict == "pass")
    for case, check in zip(cases, verdict.checks, strict=True):
        kinds = {child.tag for child in case} - {"properties"}
        wanted = {"pass": set(), "not_applicable": {"skipped"}, "fail": {"failure"}, "unknown": {"error"}}[check.status]
        assert kinds == ({"skipped"} if check.level == "warn" and wanted else wanted)
        names = {p.get("name"): p.get("value") for p in case.findall("properties/property")}
        assert names["status"] == check.status


@every
def test_the_summary_fits_and_holds_no_foreign_markup(verdict: Verdict) -> None:
    data = summary_md(verdict)
    text = data.decode()
    assert len(data) < 64 * 1024
    assert f"## kvadvise: {verdict.verdict}" in text
    assert "<script" not in text
    assert "@team" not in text
    assert "`x`" not in text
    assert "\n::error" not in text
    for line in text.splitlines():
        if line.startswith("|"):
            cells = line.replace("\\|", "").count("|")
            assert cells in (4, 7, 11)


def test_a_summary_that_would_be_too_long_is_cut() -> None:
    verdict = VERDICTS["pass"]
    notes = tuple(f"note {n} {'x' * 300}" for n in range(1000))
    data = summary_md(msgspec.structs.replace(verdict, notes=notes))
    assert len(data) <= LARGEST_BYTES
    assert b"### Checks" in data


@every
def test_the_gauges_are_prometheus_text(verdict: Verdict) -> None:
    families = {f.name: f for f in text_string_to_metric_families(gate_prom(verdict).decode())}
    results = {s.labels["verdict"]: s.value for s in families["kvadvise_verdict"].samples}
    assert results == {name: float(name == verdict.verdict) for name in ("pass", "fail", "inconclusive")}
    passed = {s.labels["check"]: s.value for s in families["kvadvise_check_passed"].samples}
    assert passed == {
        check.id: float(check.status == "pass") for check in verdict.checks if check.status != "not_applicable"
    }
    stamp = families["kvadvise_last_run_timestamp_seconds"].samples[0].value
    assert stamp == pytest.approx(1767323045 + verdict.run["seconds"])


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@every
def test_the_page_is_whole_and_loads_nothing(verdict: Verdict) -> None:
    reader = _Reader()
    text = report_html(verdict).decode()
    reader.feed(text)
    assert reader.open == []
    assert {"script", "link", "img", "iframe"} & set(reader.seen) == set()
    assert '<html lang="en">' in text
    assert reader.seen.count("h1") == reader.seen.count("main") == reader.seen.count("title") == 1
    assert all(check.id in text for check in verdict.checks)


@every
def test_lines_fit_the_terminal_and_begin_with_the_verdict(verdict: Verdict) -> None:
    out = lines(verdict, width=100)
    assert out[0].startswith(verdict.verdict.upper())
    assert max(len(line) for line in out if " " in line.strip()) <= 130
    assert verdict_line(verdict).startswith(f"{verdict.verdict.upper()}: ")
    assert "\n" not in verdict_line(verdict)


@every
def test_the_same_verdict_gives_the_same_bytes(verdict: Verdict) -> None:
    assert report_files(verdict) == report_files(verdict)


@pytest.mark.parametrize("name", [n for n in RUNS if n != "nasty"])
def test_all_files_are_written_and_the_run_can_be_read(tmp_path: Path, name: str) -> None:
    write_reports(tmp_path / "out", RUNS[name], VERDICTS[name])
    assert {p.name for p in (tmp_path / "out").iterdir()} == FILES | {RUN}
    assert read_run(tmp_path / "out") == RUNS[name]
    again = judge(read_run(tmp_path / "out"), THRESHOLDS)
    assert again == VERDICTS[name]


def test_half_a_character_does_not_stop_a_report(tmp_path: Path) -> None:
    write_reports(tmp_path, RUNS["nasty"], VERDICTS["nasty"])
    assert "?" in (read_run(tmp_path).workload_name or "")


def test_without_a_run_no_rows_of_another_are_left(tmp_path: Path) -> None:
    write_reports(tmp_path, healthy(), VERDICTS["pass"])
    write_reports(tmp_path, None, NOT_STARTED)
    assert {p.name for p in tmp_path.iterdir()} == FILES
    assert json.loads((tmp_path / REPORT).read_text())["verdict"] == "fail"
    with pytest.raises(InvalidInput, match=r"is missing"):
        read_run(tmp_path)


def test_an_interrupt_while_writing_leaves_the_old_report_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_reports(tmp_path, healthy(), VERDICTS["pass"])
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    written = Path.write_bytes

    def interrupted(self: Path, data: bytes) -> int:
        if "summary" in self.name:
            written(self, data[: len(data) // 2])
            raise KeyboardInterrupt
        return written(self, data)

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_reports(tmp_path, RUNS["fail"], VERDICTS["fail"])
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_no_secret_is_in_any_report(tmp_path: Path) -> None:
    key = "sk-very-secret-key"
    served = msgspec.structs.replace(SERVED, url="https://me:pass-word@host:8000")
    rows = changed_rows("tail", lambda n, r: failed(r, "http_4xx", error=f"key {key}") if n < 3 else r)
    run = healthy(rows=rows, served=served)
    write_reports(tmp_path, run, judge(run, THRESHOLDS), secrets=[key])
    texts = [p.read_bytes() for p in tmp_path.iterdir() if p.suffix != ".gz"]
    assert not any(word in text for text in texts for word in (key.encode(), b"pass-word"))
    assert key not in (read_run(tmp_path).rows[60].error or "")


GOLDEN = ("pass", "fail", "inconclusive", "not-started")


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_reports(name: str, golden: Callable[[str, str], None]) -> None:
    verdict = VERDICTS[name]
    golden(f"verdict/{name}.md", summary_md(verdict).decode())
    golden(f"verdict/{name}.txt", "\n".join(lines(verdict, width=100)) + "\n")
    golden(f"verdict/{name}.xml", junit_xml(verdict).decode())
    golden(f"verdict/{name}.prom", gate_prom(verdict).decode())
    golden(f"verdict/{name}.html", report_html(verdict).decode())
    golden(f"verdict/{name}.json", report_json(verdict).decode())
