"""The reader of workload files: what it takes, what it refuses, and that it never does anything else."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from advisor.errors import InvalidInput
from advisor.problems import InvalidWorkload, Problem
from advisor.workload import Arrivals, GpuRef, Lengths, Load, ModelRef, Policy, Slo, TraceCut, WorkloadFile
from advisor.workload_yaml import read_workload, read_workload_bytes
from advisor.yaml_scalars import Doubt, plain_value
from tests.advisor.workload_samples import BAD, GOOD, MINIMAL, Bad, edited

FILE = "w.yaml"


def problems_of(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(InvalidWorkload) as caught:
        read_workload_bytes(text, FILE) if isinstance(text, bytes) else read_workload(text, FILE)
    return caught.value.problems


@pytest.fixture
def pure_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML as it is where libyaml is not installed."""
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)


# What is taken


def test_every_key_is_read() -> None:
    assert read_workload(GOOD, FILE) == WorkloadFile(
        file=FILE,
        name="chat",
        description="prompts up to 7k, answers up to 1k",
        origin="made up for the tests",
        model=ModelRef(id="Qwen/Qwen2.5-7B-Instruct", revision="abc123", quantization="fp8", weights_gib_per_gpu=7.5),
        gpu=GpuRef(name="H100 80GB", count=2, memory_gib=79.19, free_gib=78.68, compute_capability=(9, 0)),
        workload=Load(
            prompt_tokens=Lengths(p50=1200, p90=5000, p95=6500, p99=7000, max=7168),
            output_tokens=Lengths(p50=250, p95=900, max=1024),
            concurrency=32,
            requests_per_s=4.0,
            shared_prefix_tokens=1000,
            chat_template_tokens=64,
            trace="traces/chat.csv",
        ),
        slo=Slo(ttft_p50_s=1.0, ttft_p95_s=2.0, tpot_p95_s=0.05, e2e_p99_s=60.0),
        policy=Policy(kv_cache_quantization="ask", headroom=0.8),
        engine={
            "vllm_version": "0.32.0",
            "max_model_len": 8192,
            "compilation_config": {"mode": 3, "cudagraph_capture_sizes": [1, 2, 4]},
        },
        gate={"preemptions_max": 0, "kv_peak_max": 0.95},
        plan={"schema": "kvadvise.plan/1", "outcome": "fits", "kv": {"num_blocks": 12345}},
        lines=read_workload(GOOD, FILE).lines,
    )


def test_what_is_left_out_has_its_default() -> None:
    assert read_workload(MINIMAL, FILE) == WorkloadFile(
        file=FILE,
        model=ModelRef(id="Qwen/Qwen2.5-7B-Instruct"),
        gpu=GpuRef(name="RTX 4090"),
        workload=Load(prompt_tokens=Lengths(p95=6500), output_tokens=Lengths(max=1024), concurrency=32),
        slo=Slo(),
        policy=Policy(kv_cache_quantization="ask", headroom=0.8),
        lines=read_workload(MINIMAL, FILE).lines,
    )


def test_arrivals_and_a_part_of_a_trace_are_read() -> None:
    rates = "arrivals: {process: piecewise, rates: [[0, 2], [60, 5], [90, 0]]}"
    load = read_workload(edited("requests_per_s: 4", rates), FILE).workload
    assert load.arrivals == Arrivals(process="piecewise", rates=((0.0, 2.0), (60.0, 5.0), (90.0, 0.0)))
    assert load.requests_per_s == 5.0, "the plan counts with the highest"
    gamma = edited("requests_per_s: 4", "requests_per_s: 4\n  arrivals: {process: gamma, cv: 2}")
    assert read_workload(gamma, FILE).workload.arrivals == Arrivals(process="gamma", cv=2.0)
    part = edited("traces/chat.csv", "{file: a.csv, until_s: 600, time_scale: 0.5, requests_max: 9}")
    read = read_workload(part, FILE).workload
    assert (read.trace, read.trace_cut) == ("a.csv", TraceCut(until_s=600.0, time_scale=0.5, requests_max=9))
    assert read_workload(edited("traces/chat.csv", "{file: a.csv}"), FILE).workload == Load(
        **{**msgspec.structs.asdict(read_workload(GOOD, FILE).workload), "trace": "a.csv"}
    )


def test_lines_name_the_line_of_every_key() -> None:
    lines = read_workload(GOOD, FILE).lines
    written = GOOD.splitlines()
    assert lines["workload"] == 8
    assert lines["workload.prompt_tokens.p99"] == 9
    assert lines["engine.max_model_len"] == 22  # written max-model-len
    assert lines["engine.compilation_config.mode"] == 23
    assert lines["plan"] == 27
    assert not [key for key in lines if key.startswith("plan.")]
    for key, line in lines.items():
        last = key.rpartition(".")[2]
        assert last in written[line - 1] or last.replace("_", "-") in written[line - 1]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("9.0", (9, 0)), ('"9.0"', (9, 0)), ("12.1", (12, 1)), ('"12.1"', (12, 1)), ("10.0", (10, 0)), ("7.5", (7, 5))],
)
def test_compute_capability(written: str, meant: tuple[int, int]) -> None:
    text = edited("RTX 4090", f"{{name: GB10, compute_capability: {written}}}", MINIMAL)
    assert read_workload(text, FILE).gpu.compute_capability == meant


@pytest.mark.parametrize("written", ['"0.32.0"', '"0.32"', "0.32.0", "v0.19.0rc1", "'0.11.0+cu128'", '"0.10"'])
def test_vllm_version_is_text(written: str) -> None:
    version = read_workload(f"{MINIMAL}engine: {{vllm_version: {written}}}", FILE).engine["vllm_version"]
    assert version == written.strip("\"'")


@pytest.mark.parametrize("written", ["max_model_len", "max-model-len", "--max-model-len", "--max_model_len"])
def test_pins_have_one_name_however_written(written: str) -> None:
    read = read_workload(f"{MINIMAL}engine:\n  {written}: 8192\n", FILE)
    assert read.engine == {"max_model_len": 8192}
    assert read.lines["engine.max_model_len"] == 8


@pytest.mark.parametrize("section", ["slo", "policy", "engine", "gate"])
def test_a_section_may_be_empty(section: str) -> None:
    assert read_workload(f"{MINIMAL}{section}:  # nothing yet\n", FILE).lines[section] == 7


def test_a_model_may_be_a_directory_alone() -> None:
    read = read_workload(edited("Qwen/Qwen2.5-7B-Instruct", "{path: ./model}", MINIMAL), FILE)
    assert read.model == ModelRef(id="./model", path="./model")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("8192", 8192),
        ("0x20", 32),
        ("-1", -1),
        ("0.9", 0.9),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("true", True),
        ("False", False),
        ("fp8", "fp8"),
        ("'8k'", "8k"),
        ("8k", "8k"),
        ("'0.9'", "0.9"),
        ("2024-01-01", "2024-01-01"),
        ("localhost:8000", "localhost:8000"),
        ("[1, [two], {three: 3.5, four: null}]", [1, ["two"], {"three": 3.5, "four": None}]),
        ('"[1, 2]"', "[1, 2]"),
        ('"yes"', "yes"),
    ],
)
def test_pins_keep_the_type_they_were_written_with(written: str, value: object) -> None:
    pin = read_workload(f"{MINIMAL}engine: {{x: {written}}}", FILE).engine["x"]
    assert (type(pin), pin) == (type(value), value)


@pytest.mark.parametrize("prefix", ["", "\ufeff", "# a comment\n", "---\n", "%YAML 1.1\n---\n"])
def test_what_may_stand_before_the_keys(prefix: str) -> None:
    assert read_workload_bytes((prefix + MINIMAL).encode(), FILE).workload.concurrency == 32


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_are_counted_whatever_ends_them(ending: str) -> None:
    text = GOOD.replace("\n", ending)
    assert read_workload(text, FILE).lines == read_workload(GOOD, FILE).lines
    problem = problems_of(text.replace("concurrency: 32", "concurrency: 0"))[0]
    assert (problem.key, problem.line) == ("workload.concurrency", 11)


def test_json_is_read_too() -> None:
    data = yaml.safe_load(GOOD)
    data["engine"]["x"] = 1e-05  # JSON writes it as 1e-05, which YAML 1.1 takes for text
    read = read_workload(json.dumps(data, indent=1), FILE)
    assert read.engine["x"] == 1e-05
    assert read.workload == read_workload(GOOD, FILE).workload


# What is refused


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_refused(bad: Bad) -> None:
    problems = problems_of(bad.text)
    found = [problem for problem in problems if (problem.line, problem.key) == (bad.line, bad.key)]
    assert found, problems
    told = found[0].text(FILE)
    assert [part for part in bad.tells if part not in told] == []
    assert told.startswith(f"{FILE}:{bad.line}: {bad.key}")
    assert "\n" not in told
    if bad.alone:
        assert len(problems) == 1, problems


@pytest.mark.usefixtures("pure_parser")
@pytest.mark.parametrize("bad", [bad for bad in BAD if len(bad.text) < 100_000], ids=lambda bad: bad.name)
def test_refused_without_libyaml(bad: Bad) -> None:
    problems = problems_of(bad.text)
    assert any(problem.key == bad.key and abs(problem.line - bad.line) <= 1 for problem in problems), problems


@pytest.mark.usefixtures("pure_parser")
def test_read_without_libyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    without = read_workload(GOOD, FILE)
    monkeypatch.undo()
    assert without == read_workload(GOOD, FILE)


def test_the_table_holds_enough() -> None:
    assert len(BAD) >= 60
    assert len({bad.name for bad in BAD}) == len(BAD)


def test_every_problem_is_told_at_once_in_order() -> None:
    text = GOOD
    changes = [
        ("concurrency: 32", "concurrency: 7k"),
        ("ttft_p95_s: 2.0", "ttft_p95_ms: 2000"),
        ("count: 2", "count: 0"),
        ('"0.32.0"', "0.10"),
        ("preemptions_max", "premptions_max"),
    ]
    for old, new in changes:
        text = edited(old, new, text)
    with pytest.raises(InvalidInput) as caught:
        read_workload(text, FILE)
    error = caught.value
    assert isinstance(error, InvalidWorkload)
    assert [problem.key for problem in error.problems] == [
        "gpu.count",
        "workload.concurrency",
        "slo.ttft_p95_ms",
        "engine.vllm_version",
        "gate.premptions_max",
    ]
    assert error.exit_code == 2
    assert error.where == "w.yaml:7: gpu.count"
    assert error.hint == "expected a whole number of gpus, 1 or more"
    lines = str(error).splitlines()
    assert len(lines) == 5
    assert lines[0] == "w.yaml:7: gpu.count: is 0; expected a whole number of gpus, 1 or more"
    assert lines[2] == "w.yaml:16: slo.ttft_p95_ms: unknown key `ttft_p95_ms`; write ttft_p95_s: 2"


def test_all_missing_keys_are_told_at_once() -> None:
    keys = [problem.key for problem in problems_of("workload: {}\n")]
    assert sorted(keys) == [
        "gpu",
        "model",
        "workload.concurrency",
        "workload.output_tokens",
        "workload.prompt_tokens",
    ]


def test_a_wrong_value_is_not_also_missing() -> None:
    problems = problems_of(edited("{p95: 6500}", "{p95: 6.5k}", MINIMAL))
    assert [problem.key for problem in problems] == ["workload.prompt_tokens.p95"]


def test_a_long_list_of_problems_is_cut_as_text_only() -> None:
    with pytest.raises(InvalidWorkload) as caught:
        read_workload(MINIMAL + "".join(f"key{n}: 1\n" for n in range(100)), FILE)
    assert len(caught.value.problems) == 100
    assert str(caught.value).splitlines()[-1] == "... and 60 more"


@pytest.mark.parametrize(
    "rows",
    ["key{n}: 1\n", "a{n}: &a{n} 1\n", "again: {n}\n", "engine: {{X{n}: 1}}\n", "[{n}]: 1\n"],
    ids=["unknown", "anchored", "repeated", "repeated-pins", "odd-keys"],
)
def test_reading_gives_up_on_a_file_that_is_all_wrong(rows: str) -> None:
    problems = problems_of(MINIMAL + "".join(rows.format(n=n) for n in range(20_000)))
    assert len(problems) <= 200


def test_an_alias_bomb_is_refused_at_once() -> None:
    bomb = 'a: &a ["x","x","x","x","x","x","x","x","x"]\n' + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    problems = problems_of(bomb)  # 9 to the 8th strings if it were followed: the test would not end
    assert problems[0].line == 1
    assert problems[0].message == "`&a` is an anchor"
    assert any(problem.message == "`*a` is an alias" and problem.line == 2 for problem in problems)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "a:\n "])
def test_nesting_has_a_limit_and_no_recursion_error(opening: str) -> None:
    deep = "".join(" " * n + "a:\n" for n in range(900)) if opening == "a:\n " else opening * 100_000
    assert problems_of(deep)


@pytest.mark.parametrize(
    ("data", "line", "tells"),
    [
        pytest.param(b"\xff\xfem\x00o\x00", 1, "UTF-16", id="utf-16-le"),
        pytest.param("model: x".encode("utf-16-be"), 1, r"\x00", id="utf-16-be-without-mark"),
        pytest.param(b"\xfe\xff" + "model: x".encode("utf-16-be"), 1, "UTF-16", id="utf-16-be"),
        pytest.param(b"\x1f\x8b\x08\x00\x00", 1, "gzip", id="gzip"),
        pytest.param(b"PK\x03\x04abc", 1, "zip", id="zip"),
        pytest.param(b"model: a\ngpu: caf\xe9\n", 2, "0xe9, which is not UTF-8", id="latin-1"),
        pytest.param(b"model: a\ngpu: b\n\x80", 3, "0x80", id="stray-byte"),
        pytest.param(b"model: a\x00b", 1, r"\x00", id="nul"),
        pytest.param(bytes(range(256)), 2, "0x80, which is not UTF-8", id="all-bytes"),
        pytest.param(b"\x7fELF\x02\x01\x01", 1, "UTF-8", id="program"),
        pytest.param(b"x" * (1024 * 1024 + 1), 1, "larger than 1 MiB", id="too-large"),
        pytest.param("\u20ac".encode() * 400_000, 1, "larger than 1 MiB", id="too-large-in-bytes"),
        pytest.param(b"", 1, "empty", id="empty"),
    ],
)
def test_bytes_that_are_no_workload(data: bytes, line: int, tells: str) -> None:
    (problem,) = problems_of(data)
    assert problem.line == line
    assert tells in problem.text(FILE)
    assert "UTF-8" in problem.text(FILE) or "MiB" in tells or tells == "empty"


def test_a_file_of_exactly_the_limit_is_read() -> None:
    padded = f"{MINIMAL}# "
    assert read_workload_bytes((padded + "x" * (1024 * 1024 - len(padded))).encode(), FILE).gpu.name == "RTX 4090"


def test_messages_hold_nothing_a_terminal_would_act_on() -> None:
    text = edited("RTX 4090", '"\\e]0;owned\\a\\x9b31m"', MINIMAL) + '"\\e[31m": "\\u202e"\n'
    with pytest.raises(InvalidWorkload) as caught:
        read_workload(text, FILE)
    assert str(caught.value).replace("\n", "").isprintable()


# Whatever comes in

_PIECES = st.sampled_from(
    [
        *":-#{}[]&*!|>'\"%@`,?\t\n ~<=",
        *(": ", "- ", "? ", "<<: ", "&a ", "*a", "!!int ", "---\n", "...\n", "\r", "\x85", "\u2028", "\ufeff", "\x00"),
        *(
            "1e999",
            ".nan",
            "-.inf",
            "9" * 5000,
            "0o17",
            "0b1",
            "1_0",
            "1:30",
            "yes",
            "null",
            "\\",
            '"\\U7fffffff"',
            "\ud800",
        ),
        *("model", "gpu", "workload:", "p95: 1", "engine: ", "plan:", "[" * 50, "{a: " * 50, "é", "\U0001f600"),
    ]
)
_EDITS = st.lists(
    st.tuples(st.integers(0, len(GOOD)), st.integers(0, 30), st.lists(_PIECES, max_size=4)), min_size=1, max_size=6
)


def _mutated(edits: list[tuple[int, int, list[str]]]) -> str:
    text = GOOD
    for position, cut, pieces in edits:
        text = text[:position] + "".join(pieces) + text[position + cut :]
    return text


def _read_or_refused(text: str) -> None:
    try:
        read_workload(text, FILE)
        return
    except InvalidWorkload as error:
        told, problems = str(error), error.problems
    last = len(text.splitlines()) + 2
    assert problems
    assert all(1 <= problem.line <= last for problem in problems)
    assert all(problem.message and problem.text(FILE).isprintable() for problem in problems)
    assert told.encode()


@settings(max_examples=400, deadline=None)
@given(_EDITS)
@example([(0, len(GOOD), ["\ud800"])])
def test_a_mutated_file_is_read_or_refused(edits: list[tuple[int, int, list[str]]]) -> None:
    _read_or_refused(_mutated(edits))


@settings(max_examples=100, deadline=None)
@given(_EDITS)
def test_a_mutated_file_is_read_or_refused_without_libyaml(edits: list[tuple[int, int, list[str]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(yaml, "CSafeLoader", raising=False)
        _read_or_refused(_mutated(edits))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_bytes_are_read_or_refused(data: bytes) -> None:
    with pytest.raises(InvalidWorkload):
        read_workload_bytes(data, FILE)


_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(read_workload(GOOD, FILE).lines)), _TREES)
def test_any_value_under_any_key_is_read_or_refused(key: str, value: object) -> None:
    data: dict[str, Any] = yaml.safe_load(GOOD.replace("max-model-len", "max_model_len"))
    *parents, last = key.split(".")
    place = data
    for parent in parents:
        place = place[parent]
    place[last] = value
    _read_or_refused(yaml.safe_dump(data, allow_unicode=True))


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="0123456789+-._:eExXobBaAfFtTrRuUnNyYsSlLiI~", min_size=1, max_size=9))
@example("1e5")
@example("0._")
@example("2024-01-01")
def test_a_bare_word_means_the_same_to_other_readers(word: str) -> None:
    value = plain_value(word)
    try:
        other = yaml.safe_load(f"[{word}]")[0]
    except (yaml.YAMLError, ValueError, IndexError):
        return
    if isinstance(value, Doubt) or isinstance(other, date | dict):
        return
    if isinstance(value, float) and isinstance(other, str):  # 1e5, a number in YAML 1.2 and JSON
        assert float(other) == value
    else:
        assert (type(value), value) == (type(other), other)


# Valid files come back as they went in

_COUNTS = st.integers(1, 10**9)
_NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_./-]{0,20}", fullmatch=True).filter(
    lambda name: name.lower() not in ("yes", "no", "on", "off", "true", "false", "null") and " x" not in name
)
_SECONDS = st.floats(0.001, 10, allow_nan=False)


@st.composite
def _lengths(draw: st.DrawFn) -> dict[str, int]:
    names = [name for name in ("p50", "p90", "p95", "p99", "max") if name == "p95" or draw(st.booleans())]
    return dict(zip(names, sorted(draw(st.lists(_COUNTS, min_size=len(names), max_size=len(names)))), strict=True))


@st.composite
def _files(draw: st.DrawFn) -> dict[str, Any]:
    prompt = draw(_lengths())
    data: dict[str, Any] = {
        "model": draw(st.one_of(_NAMES, st.fixed_dictionaries({"id": _NAMES}, optional={"revision": _NAMES}))),
        "gpu": draw(
            st.one_of(
                _NAMES,
                st.fixed_dictionaries(
                    {"name": _NAMES, "count": st.integers(1, 64)}, optional={"memory_gib": st.floats(1, 300)}
                ),
            )
        ),
        "workload": {
            "prompt_tokens": prompt,
            "output_tokens": draw(_lengths()),
            "concurrency": draw(_COUNTS),
            "shared_prefix_tokens": draw(st.integers(0, min(prompt.values()))),
        },
    }
    if draw(st.booleans()):
        data["slo"] = {"ttft_p95_s": draw(_SECONDS), "tpot_p95_s": draw(_SECONDS)}
    if draw(st.booleans()):
        data["policy"] = {
            "kv_cache_quantization": draw(st.sampled_from(["never", "ask", "prefer"])),
            "headroom": draw(st.floats(0.01, 1)),
        }
    if draw(st.booleans()):
        data["engine"] = draw(
            st.dictionaries(
                st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True).filter(lambda name: name != "vllm_version"),
                st.one_of(
                    st.booleans(),
                    st.integers(-(2**63), 2**63),
                    st.floats(allow_nan=False, allow_infinity=False),
                    _NAMES,
                ),
                max_size=4,
            )
        )
    return data


@settings(max_examples=200, deadline=None)
@given(_files(), st.sampled_from(["block", "flow", "json"]))
def test_a_valid_file_round_trips(data: dict[str, Any], style: str) -> None:
    if style == "json":
        text = json.dumps(data)
    else:
        text = yaml.safe_dump(data, sort_keys=False, default_flow_style=style == "flow")
    read = read_workload(text, FILE)
    model, gpu, load = data["model"], data["gpu"], data["workload"]
    assert read.model == (ModelRef(id=model) if isinstance(model, str) else ModelRef(**model))
    assert read.gpu == (GpuRef(name=gpu) if isinstance(gpu, str) else GpuRef(**gpu))
    assert read.workload.prompt_tokens == Lengths(**load["prompt_tokens"])
    assert read.workload.output_tokens == Lengths(**load["output_tokens"])
    assert read.workload.concurrency == load["concurrency"]
    assert read.workload.shared_prefix_tokens == load["shared_prefix_tokens"]
    assert read.slo == Slo(**data.get("slo", {}))
    assert read.policy == Policy(**data.get("policy", {}))
    assert read.engine == data.get("engine", {})
    assert [type(pin) for pin in read.engine.values()] == [type(pin) for pin in data.get("engine", {}).values()]


# Quick


def test_importing_the_reader_imports_nothing_heavy() -> None:
    code = "import advisor.workload_yaml, sys; print(*sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"yaml", "difflib", "advisor.unit_hints", "advisor.key_hints", "advisor.yaml_syntax"}.isdisjoint(modules)
