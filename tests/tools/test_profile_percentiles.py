"""The percentiles of bundled profiles: how they are worked out, on traces small enough to check by hand."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tools.profile_percentiles import Filter, as_yaml, figures_of, main, percentiles

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.1,0,9\r\n"


def test_nearest_rank_gives_a_length_that_was_seen() -> None:
    assert percentiles(Counter(range(1, 101))) == {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}
    assert percentiles(Counter([1, 2, 3])) == {"p50": 2, "p90": 3, "p95": 3, "p99": 3, "max": 3}
    assert percentiles(Counter({7: 2})) == dict.fromkeys(("p50", "p90", "p95", "p99", "max"), 7)


@given(st.lists(st.integers(1, 200_000), min_size=1, max_size=60))
def test_percentiles_rise_and_cover_their_share(lengths: list[int]) -> None:
    found = percentiles(Counter(lengths))
    assert list(found.values()) == sorted(found.values())
    assert found["max"] == max(lengths)
    for name, value in list(found.items())[:-1]:
        share = int(name[1:]) / 100
        assert sum(length <= value for length in lengths) >= share * len(lengths) - 1e-9
        assert sum(length < value for length in lengths) < share * len(lengths)


def test_a_csv_without_final_newline_and_an_empty_prompt(tmp_path: Path) -> None:
    trace = tmp_path / "azure.csv"
    trace.write_bytes(AZURE.encode() + b"2023-11-16 18:16:00,396,109")
    assert as_yaml(figures_of(trace, Filter())).splitlines() == [
        "# 3 requests",
        "#   left out 1: no tokens",
        "prompt_tokens: {p50: 374, p90: 396, p95: 396, p99: 396, max: 396}",
        "output_tokens: {p50: 44, p90: 109, p95: 109, p99: 109, max: 109}",
    ]


@pytest.mark.parametrize(
    "header",
    ["num_prefill_tokens,num_decode_tokens,num_total_tokens", "Timestamp,Model,Request tokens,Response tokens"],
)
def test_columns_are_found_by_name(tmp_path: Path, header: str) -> None:
    names = header.split(",")
    cells = {"num_prefill_tokens": "80.0", "num_decode_tokens": "9", "Request tokens": "80", "Response tokens": "9"}
    trace = tmp_path / "lengths.csv"
    trace.write_text(header + "\n" + ",".join(cells.get(name, "x") for name in names) + "\n", encoding="utf-8")
    figures = figures_of(trace, Filter())
    assert (figures.prompts, figures.outputs) == (Counter({80: 1}), Counter({9: 1}))


def test_unknown_columns_are_an_error(tmp_path: Path) -> None:
    trace = tmp_path / "other.csv"
    trace.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(click.UsageError, match="length columns"):
        figures_of(trace, Filter())


def _mooncake(tmp_path: Path) -> Path:
    rows = [
        {"timestamp": 0, "input_length": 1200, "output_length": 10, "hash_ids": [0, 1, 2]},
        {"timestamp": 999, "input_length": 1300, "output_length": 20, "hash_ids": [0, 1, 3]},
        {"timestamp": 1000, "input_length": 9000, "output_length": 30, "hash_ids": [0, 9]},
    ]
    trace = tmp_path / "moon.jsonl"
    trace.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return trace


def test_every_row_is_kept_or_counted(tmp_path: Path) -> None:
    chosen = Filter(until_s=1, max_prompt=1250)
    assert as_yaml(figures_of(_mooncake(tmp_path), chosen)).splitlines()[:3] == [
        "# 3 requests",
        "#   left out 1: arrived at 1 s or later, or at no known time",
        "#   left out 1: prompt over 1250",
    ]


@pytest.mark.parametrize(
    ("chosen", "shared"),
    [(Filter(), 512), (Filter(until_s=1), 1024), (Filter(max_prompt=1250), 1200)],
    ids=["all", "two", "one-whole-prompt"],
)
def test_blocks_all_prompts_share(tmp_path: Path, chosen: Filter, shared: int) -> None:
    assert as_yaml(figures_of(_mooncake(tmp_path), chosen)).splitlines()[-1] == f"shared_prefix_tokens: {shared}"


def test_limits_on_answers_and_totals_and_a_factor(tmp_path: Path) -> None:
    trace = _mooncake(tmp_path)
    assert figures_of(trace, Filter(max_output=20, prompt_factor=2)).prompts == Counter({2400: 1, 2600: 1})
    assert figures_of(trace, Filter(max_total=1210)).prompts == Counter({1200: 1})
    assert figures_of(trace, Filter(min_prompt=1300)).prompts == Counter({1300: 1, 9000: 1})


def _servegen(tmp_path: Path) -> Path:
    windows = {
        "0": {"input_tokens": "{10: 0.5, 20: 0.5}", "output_tokens": "{100: 1.0}"},
        "1200": {"input_tokens": "{30: 1.0}", "output_tokens": "{100: 0.5, 900: 0.5}"},
    }
    (tmp_path / "chunk-0-dataset.json").write_text(json.dumps(windows), encoding="utf-8")
    (tmp_path / "chunk-0-trace.csv").write_text(
        "0,0.1,1,Gamma,1,1\n600,0.1,1,Gamma,1,1\n1200,1.0,1,Gamma,1,1\n", encoding="utf-8"
    )
    return tmp_path


def test_histograms_are_weighted_by_rate(tmp_path: Path) -> None:
    figures = figures_of(_servegen(tmp_path), Filter())
    assert figures.read == 720  # 0.1/s for 1,200 s, then 1/s for 600 s
    assert figures.prompts == Counter({10: 60, 20: 60, 30: 600})
    assert figures.outputs == Counter({100: 420, 900: 300})
    cut = figures_of(tmp_path, Filter(max_prompt=20, max_output=500))
    assert cut.dropped == Counter({"prompt over 20": 600, "answer over 500": 300})
    assert percentiles(cut.prompts)["max"] == 20


def test_histograms_have_no_totals(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="--max-total"):
        figures_of(_servegen(tmp_path), Filter(max_total=10))


def test_as_a_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [str(_mooncake(tmp_path)), "--until-s", "1", "--min-prompt", "1250"])
    assert result.exit_code == 0
    assert result.output.splitlines()[-3:-1] == [
        "prompt_tokens: {p50: 1300, p90: 1300, p95: 1300, p99: 1300, max: 1300}",
        "output_tokens: {p50: 20, p90: 20, p95: 20, p99: 20, max: 20}",
    ]
    nothing = CliRunner().invoke(main, [str(tmp_path / "moon.jsonl"), "--min-prompt", "99999"])
    assert nothing.exit_code == 2
    assert "no request is left" in nothing.output
