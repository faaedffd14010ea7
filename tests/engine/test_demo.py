"""`kvadvise demo` from its first line to its last, on the real engine; the README shows what it prints."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvadvise.demo_model import demo_model

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
INTERRUPTIBLE = """
import signal
from kvadvise.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
main()
"""
QUOTE = re.compile(r"(?<=<!-- demo -->\n```text\n)(?P<text>.*?)(?=```\n<!-- end -->)", re.DOTALL)
REPLAYED = re.compile(r"(?s)6  Its load, replayed.*?(?=7  )")  # what is counted differs a little from run to run
VARIES = (
    (re.compile(r"/\S+/kvadvise/demo-[0-9a-f]+"), "PLACE"),
    (re.compile(r"(?m)^(3  vLLM [\d.]+  ).*$"), r"\1PYTHON"),
    (re.compile(r"(?<=after )\d+(?= s)|(?<=process )\d+|(?<=127\.0\.0\.1:)\d+|(?<=tokens in )[\d.]+"), "N"),
    (re.compile(r"(?<= -> ).*"), "ANSWER"),
)


def demo_environment(own_place: Path, engine_python: Path) -> dict[str, str]:
    changed = {"KVADVISE_ENGINE": str(engine_python), "XDG_CACHE_HOME": str(own_place / "cache"), "COLUMNS": "80"}
    return os.environ | changed | {"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "HF_HOME": str(own_place / "hub")}


def alike(text: str) -> str:
    """The text with what differs from run to run made the same."""
    for pattern, word in VARIES:
        text = pattern.sub(word, text)
    return REPLAYED.sub(lambda part: re.sub(r"[\d.,]+", "N", part[0]), text)


def test_the_demo_runs_and_prints_what_the_readme_shows(
    engine_python: Path, own_place: Path, request: pytest.FixtureRequest
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvadvise", "demo"],
        cwd=own_place,
        env=demo_environment(own_place, engine_python),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    readme = README.read_text("utf-8")
    if request.config.getoption("--refresh-golden"):
        shown = done.stdout.replace(str(own_place / "cache"), "/home/kvadvise/.cache")
        shown = shown.replace(str(engine_python), "/home/kvadvise/src/.engine/bin/python")
        readme = QUOTE.sub(lambda _: shown, readme, count=1)
        README.write_text(readme, "utf-8")
    quoted = QUOTE.search(readme)
    assert quoted is not None
    assert alike(quoted["text"]) == alike(done.stdout)
    assert not (own_place / "hub").exists()


def test_ctrl_c_leaves_nothing(engine_python: Path, own_place: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, "demo"],
        cwd=own_place,
        env=demo_environment(own_place, engine_python),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "reading the model's config" in line:
                demo.send_signal(signal.SIGINT)
        assert demo.wait(120) == 130


def test_the_same_files_are_made_each_time(engine_python: Path, tmp_path: Path) -> None:
    first, again, other = (
        demo_model(str(engine_python), tmp_path / place, os.environ) for place in ("one", "one", "two")
    )
    assert (first.was_made, again.was_made, again.directory) == (True, False, first.directory)
    names = sorted(path.name for path in first.directory.iterdir())
    assert names == ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert all((first.directory / name).read_bytes() == (other.directory / name).read_bytes() for name in names)
    assert str(first.directory) in first.workload.read_text("utf-8")
