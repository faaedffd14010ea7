"""A log line taken apart, in every shape that vLLM and what surrounds it print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.log_lines import LogLine, is_ranked, last_start, read_line, read_lines, starts

SHAPES = {
    "plain, 0.8": (
        "INFO 04-25 10:12:01 [gpu_model_runner.py:1347] Model loading took 14.9889 GiB and 4.2 seconds",
        LogLine(1, "Model loading took 14.9889 GiB and 4.2 seconds", "", "", "INFO", "gpu_model_runner.py:1347"),
    ),
    "rank and pid, 0.8": (
        "(VllmWorker rank=1 pid=412) INFO 04-25 10:12:01 [a.py:1] text",
        LogLine(1, "text", "VllmWorker rank=1", "", "INFO", "a.py:1"),
    ),
    "engine and worker, 0.11": (
        "(EngineCore_DP0 pid=71) (Worker_TP1 pid=92) INFO 10-02 08:00:00 [b.py:2] text",
        LogLine(1, "text", "Worker_TP1", "EngineCore_DP0", "INFO", "b.py:2"),
    ),
    "a path as the source, DEBUG": (
        "(EngineCore pid=18) DEBUG 12-01 01:04:20 [v1/engine/core.py:1371] Waiting",
        LogLine(1, "Waiting", "EngineCore", "EngineCore", "DEBUG", "v1/engine/core.py:1371"),
    ),
    "a container's prefix": (
        "vllm-1  | (APIServer pid=1) INFO 12-01 00:55:42 [entry.py:140] Starting vLLM server",
        LogLine(1, "Starting vLLM server", "APIServer", "", "INFO", "entry.py:140"),
    ),
    "a cluster's time": (
        "2026-05-01T09:00:00.123456789Z INFO:     Application startup complete.",
        LogLine(1, "Application startup complete.", "", "", "INFO", ""),
    ),
    "colours": (
        "\x1b[1;36m(EngineCore pid=5)\x1b[0;0m INFO 12-01 00:00:00 [c.py:3] text",
        LogLine(1, "text", "EngineCore", "EngineCore", "INFO", "c.py:3"),
    ),
    "a progress bar's last state": (
        "Capturing: 10%|#  | 5/51\rCapturing: 20%|## | 10/51\n",
        LogLine(1, "Capturing: 20%|## | 10/51"),
    ),
    "ranks that only the pid tells apart": (
        "(RayWorkerWrapper pid=77, ip=10.0.0.2) INFO 01-01 00:00:00 [d.py:4] text",
        LogLine(1, "text", "RayWorkerWrapper pid=77, ip=10.0.0.2", "", "INFO", "d.py:4"),
    ),
    "a bare error": ("ValueError: (4, 5) is wrong", LogLine(1, "ValueError: (4, 5) is wrong")),
    "brackets that are no tag": ("(see below) text", LogLine(1, "(see below) text")),
    "nothing": ("\n", LogLine(1, "")),
}


@pytest.mark.parametrize(("line", "read"), SHAPES.values(), ids=SHAPES)
def test_a_line_is_taken_apart(line: str, read: LogLine) -> None:
    assert read_line(1, line) == read


def test_a_rank_of_an_engine_is_told_from_that_of_another() -> None:
    first, second = (
        read_line(1, f"(EngineCore_DP{i} pid=7) (Worker_TP0 pid=8) INFO 01-01 00:00:00 [a.py:1] x") for i in (0, 1)
    )
    assert first.speaker != second.speaker
    assert is_ranked(first.process)
    assert not is_ranked("APIServer")


def test_a_log_of_several_starts_is_split_where_a_server_names_its_version() -> None:
    text = [
        "before",
        "INFO 01-01 00:00:00 [a.py:1] vLLM API server version 0.9.2",
        "first",
        "(APIServer pid=1) INFO 01-01 00:01:00 [b.py:2] vLLM API server version 0.9.2",
        "second",
    ]
    attempts = list(starts(read_lines(text)))
    assert [[line.number for line in attempt] for attempt in attempts] == [[1, 2, 3], [4, 5]]
    assert [line.text for line in last_start(read_lines(text))][-1] == "second"


def test_a_log_without_a_version_is_one_start() -> None:
    lines = read_lines(["a", "b"])
    assert list(starts(lines)) == [lines]
    assert last_start([]) == []


@given(st.text(max_size=300))
def test_any_text_is_a_line(text: str) -> None:
    line = read_line(3, text)
    assert line.number == 3
    assert len(line.text) <= len(text)


def test_a_very_long_line_is_cut() -> None:
    assert len(read_line(1, "x" * 10_000_000).text) == 1 << 16
