"""What is shown while a start goes on: one moving line with a bar on a terminal, news only elsewhere."""

from __future__ import annotations

import io

import pytest

from kvadvise.printing.look import Look, look_of_terminal
from kvadvise.printing.starting import Starting
from launch.progress import Phase, Progress
from launch.start_progress import StartProgress


def seen(at_s: float, phase: Phase, done: int | None = None, still_s: float = 0.0) -> StartProgress:
    counted = Progress(phase, done, 4 if done is not None else None)
    return StartProgress(progress=counted, waiting_for="the next line of its log", elapsed_s=at_s, still_s=still_s)


START = [
    seen(0, Phase.BEGINNING),
    seen(7, Phase.CONFIGURING),
    seen(8, Phase.CONFIGURING),
    seen(9, Phase.LOADING, 0),
    seen(10, Phase.LOADING, 3),
    seen(20, Phase.LOADING, 3, still_s=10),
    seen(21, Phase.LOADING, 3, still_s=11),
    seen(51, Phase.LOADING, 3, still_s=41),
    seen(52, Phase.READY),
]


def shown(*, is_live: bool, look: Look, start: list[StartProgress] = START) -> str:
    written = io.StringIO()
    starting = Starting(written.write, look, is_live=is_live)
    for one in start:
        starting.show(one)
        starting.show(one)
    starting.end()
    starting.end()
    return written.getvalue()


def test_elsewhere_a_phase_is_said_once_and_a_wait_now_and_then() -> None:
    assert shown(is_live=False, look=Look()).splitlines() == [
        "      0 s  waiting for the engine's first line",
        "      7 s  reading the model's config",
        "      9 s  loading weights 0/4",
        "     51 s  loading weights 3/4: still waiting for the next line of its log (41 s without news)",
        "     52 s  ready",
    ]


def test_on_a_terminal_the_line_moves_and_a_phase_keeps_its_last() -> None:
    text = shown(is_live=True, look=Look(width=60, unicode=True))
    lines = [line.rpartition("\r\x1b[2K")[2] for line in text.split("\n")]
    assert lines == [
        "      0 s  waiting for the engine's first line",
        "      8 s  reading the model's config",
        "     51 s  loading weights 3/4: still waiting for the next ",
        "     52 s  ready",
        "",
    ]
    assert f"     10 s  loading weights 3/4  {'█' * 15}      75%" in text
    assert text.count("loading weights 3/4") == 4


@pytest.mark.parametrize("is_live", [True, False])
def test_nothing_seen_is_nothing_shown(is_live: bool) -> None:
    assert shown(is_live=is_live, look=Look(), start=[]) == ""


def test_the_look_is_that_of_the_stream() -> None:
    assert look_of_terminal(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) == Look(width=80, unicode=True)
