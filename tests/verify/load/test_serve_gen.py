"""ServeGen's clients: rates by windows, histograms of lengths, and the same requests for the same seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from advisor.workload import TraceCut
from tests.verify.load.test_trace_cut import workload
from verify.load.arrivals import figures
from verify.load.schedule import make_schedule
from verify.load.serve_gen import drawn
from verify.load.trace_cut import cut
from verify.load.trace_file import read_trace
from verify.load.types import Limits

LENGTHS = {"0": {"input_tokens": "{100: 0.75, 200: 0.25}", "output_tokens": {"10": 1.0}},
           "1200": {"input_tokens": "{7: 2, 0: 5}", "output_tokens": "{3: 1}"}}  # fmt: skip


def client(folder: Path, number: int = 0, rates: str = "0,2,1,Gamma,1,1\n600,0,0,,,\n1200,4,2.5,Weibull,1,1\n") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"chunk-{number}-trace.csv"
    path.write_text(rates, encoding="utf-8")
    (folder / f"chunk-{number}-dataset.json").write_text(json.dumps(LENGTHS), encoding="utf-8")
    return path


@pytest.mark.parametrize("which", ["folder", "trace", "dataset"])
def test_a_client_has_its_rates_and_lengths(tmp_path: Path, which: str) -> None:
    path = client(tmp_path / "c")
    named = {"folder": path.parent, "trace": path, "dataset": path.with_name("chunk-0-dataset.json")}[which]
    trace = read_trace(named)
    rows = drawn(trace.clients, 1, from_s=0.0, until_s=None, most=10_000)
    times = [row.at_s or 0.0 for row in rows]
    early, late = [at for at in times if at < 600], [at for at in times if at >= 1200]
    assert len(early) + len(late) == len(times), "no request where the rate is 0"
    assert len(early) == pytest.approx(1200, abs=150)
    assert len(late) == pytest.approx(2400, abs=600)
    assert figures(early)["gap_cv"] == pytest.approx(1, abs=0.15)
    assert figures(late)["gap_cv"] == pytest.approx(2.5, rel=0.3)
    assert {(row.prompt_tokens, row.output_tokens) for row in rows[len(early) :]} == {(7, 3)}
    long = sum(row.prompt_tokens == 200 for row in rows[: len(early)])
    assert long / len(early) == pytest.approx(0.25, abs=0.06)


def test_clients_together_are_one_load_of_the_seed(tmp_path: Path) -> None:
    client(tmp_path / "c", 0)
    client(tmp_path / "c", 1, "0,1,1,Gamma,1,1\n")
    trace = read_trace(tmp_path / "c")
    found = cut(trace, workload(from_s=100.0, until_s=200.0), 3)
    assert found.read == len(found.rows) == pytest.approx(300, abs=80)
    assert [r.at_s for r in found.rows] == sorted(r.at_s or 0.0 for r in found.rows)
    assert all(0 <= (r.at_s or 0.0) < 100 for r in found.rows)
    assert found == cut(trace, workload(from_s=100.0, until_s=200.0), 3)
    assert found != cut(trace, workload(from_s=100.0, until_s=200.0), 4)
    assert "2 ServeGen clients" in found.notes[0]
    assert len(cut(trace, workload(), 3).rows) == 2000, "as many as of any trace"


def test_a_schedule_is_made_of_them(tmp_path: Path) -> None:
    trace = read_trace(client(tmp_path / "c"))
    made = make_schedule(
        workload(requests_max=100, time_scale=0.5), Limits(max_model_len=8192), 0, phases=("tail",), trace=trace
    )
    tail = made.phases[1]
    assert (tail.mode, len(tail.requests)) == ("open", 100)
    assert made.figures["rate_per_s"] == pytest.approx(4, rel=0.3)
    assert TraceCut().requests_max is None


@pytest.mark.parametrize(
    ("rates", "lengths", "said"),
    [
        ("0,2\n", LENGTHS, "chunk-0-trace.csv:1: has no second, rate and CV"),
        ("0,2,1\n600,x,1\n", LENGTHS, "chunk-0-trace.csv:2: has no second"),
        ("0,-2,1\n", LENGTHS, "chunk-0-trace.csv:1: has no second"),
        ("0,0,1\n", LENGTHS, "has no request in it"),
        ("0,2,1\n", {"0": {"input_tokens": "{1: 1}"}}, "dataset.json: holds no windows"),
        ("0,2,1\n", {"0": {"input_tokens": "{1: 1}", "output_tokens": "{1: 0}"}}, "holds no windows"),
        ("0,2,1\n", {"0": {"input_tokens": "import os", "output_tokens": "{1: 1}"}}, "holds no windows"),
        ("0,2,1\n", [1], "holds no windows"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, rates: str, lengths: object, said: str) -> None:
    path = client(tmp_path / "c", 0, rates)
    path.with_name("chunk-0-dataset.json").write_text(json.dumps(lengths), encoding="utf-8")
    with pytest.raises(InvalidInput) as caught:
        read_trace(path)
    assert said in str(caught.value)
