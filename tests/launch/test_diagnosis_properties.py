"""Diagnosis of anything: it never raises, invents no number without a rule's match, and stays quick."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launch.diagnosis import diagnose, read_case
from launch.diagnosis_rules import RULES, all_codes
from launch.diagnosis_types import Context, ExitState, Holder, Rule
from launch.oom import read_oom
from launch.progress import Phase
from launch.startup_wordings import WORDINGS, Wording
from tests.launch.logs import NAMES, log

CODES = set(all_codes())

holders = st.builds(Holder, st.integers(1, 9), st.just("VLLM::EngineCor"), st.integers(0, 9))
contexts = st.builds(
    Context,
    total_bytes=st.none() | st.integers(1, 1 << 38),
    free_bytes=st.none() | st.integers(0, 1 << 38),
    all_free_bytes=st.lists(st.integers(0, 1 << 38), max_size=4).map(tuple),
    gpu_count=st.none() | st.integers(1, 8),
    allowed_tp=st.lists(st.integers(1, 16), max_size=4).map(tuple),
    others=st.lists(holders, max_size=2).map(tuple),
)
exits = st.builds(
    ExitState,
    code=st.none() | st.integers(-20, 255),
    asked=st.booleans(),
    seconds=st.none() | st.floats(0, 5000),
)


@given(st.lists(st.text(max_size=200), max_size=10), exits, contexts)
def test_any_text_is_diagnosed(lines: list[str], state: ExitState, context: Context) -> None:
    assert {finding.code for finding in diagnose(lines, state, context)} <= CODES


@settings(max_examples=150)
@given(st.sampled_from(NAMES), st.integers(0, 30000), st.integers(0, 30000), exits, contexts)
def test_a_log_cut_anywhere_is_diagnosed(
    name: str, start: int, length: int, state: ExitState, context: Context
) -> None:
    text = "\n".join(log(name))[start : start + length]
    for finding in diagnose(text.split("\n"), state, context):
        assert finding.code in CODES
        for flag, value in (finding.change or {}).items():
            sane(flag, value)


def sane(flag: str, value: object) -> None:
    """A change is one that vLLM takes, whatever the context said."""
    if flag == "gpu_memory_utilization":
        assert isinstance(value, float)
        assert 0 < value <= 1
        assert round(value * 100, 6) == round(value * 100)
    elif value is not None and not isinstance(value, bool | str):
        assert isinstance(value, int)
        assert value >= (0 if flag in ("swap_space", "kv_cache_memory_bytes") else 1)


@given(st.lists(st.text(alphabet="abcdefghij .:()[]/{}'", max_size=200), max_size=10))
def test_text_without_numbers_gives_no_number(lines: list[str]) -> None:
    for finding in diagnose(lines, ExitState(code=1)):
        assert re.findall(r"\d+", finding.message) == ["1"]  # the exit status
        assert finding.change is None


@given(st.text(max_size=400))
def test_any_text_is_an_out_of_memory_message_or_none(text: str) -> None:
    says = read_oom(text)
    for size in (says.wanted_bytes, says.total_bytes, says.free_bytes, says.allocated_bytes):
        assert size is None or size >= 0
    if says.wanted_bytes is not None:
        assert "allocate" in text


def test_a_log_of_a_hundred_thousand_lines_takes_seconds() -> None:
    line = "(APIServer pid=1) INFO 12-01 00:00:00 [loggers.py:1] Engine 000: Running: 12 reqs, Waiting: 0 reqs, x"
    lines = [*log("cpu-pool"), *[line] * 100_000]
    began = time.process_time()
    found = diagnose(lines)
    assert [f.code for f in found] == ["kv-pool-too-small"]
    assert time.process_time() - began < 20


def test_a_line_of_a_million_characters_takes_no_time() -> None:
    for text in (
        "To serve at least one request with the model's max seq len (" * 20_000,
        "(" * 1_000_000,
        "1" * 1_000_000,
    ):
        began = time.perf_counter()
        diagnose([text], ExitState(code=1))
        assert time.perf_counter() - began < 2


def test_a_case_knows_how_far_the_start_came() -> None:
    case = read_case(log("healthy-0.8.5"))
    assert len(case.phases) == len(case.lines)
    assert case.phase is Phase.READY


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.codes[0])
def test_no_pattern_grows_out_of_hand(rule: Rule) -> None:
    hints = (rule.hint,) if isinstance(rule.hint, str) else rule.hint
    began = time.perf_counter()
    for hint in hints:
        for filler in ("", " ", "1", "a", "-"):
            rule.pattern.search(((hint + filler) * 70_000)[:65_536])
    assert time.perf_counter() - began < 2.0 * len(hints)


@pytest.mark.parametrize("wording", WORDINGS, ids=lambda wording: wording.hint.strip())
def test_no_wording_grows_out_of_hand(wording: Wording) -> None:
    began = time.perf_counter()
    for filler in ("", " ", "1", "1.", "a("):
        wording.pattern.search(((wording.hint + filler) * 70_000)[:65_536])
    assert time.perf_counter() - began < 2.0
