"""What README and docs quote is what kvadvise prints; what they link to is there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.plan_types import Plan

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
QUOTE = re.compile(r"<!-- output: (?P<command>kvadvise .+?) -->\n```text\n(?P<text>.*?)```\n<!-- end -->", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)(?P<target>[^)#\s]+)(?:#[^)]*)?\)")
QUOTES = [(path, match["command"]) for path in DOCUMENTS for match in QUOTE.finditer(path.read_text("utf-8"))]


def printed(command: str, folder: Path) -> str:
    """stdout of a real process, 80 columns wide, without anything of one's own in the way."""
    env = os.environ | {"COLUMNS": "80", "PYTHONUTF8": "1", "XDG_CONFIG_HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    arguments = shlex.split(command)[1:]
    done = subprocess.run(
        [sys.executable, "-m", "kvadvise", *arguments],
        cwd=folder,
        env=env | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("path", "command"), QUOTES, ids=[f"{p.name}: {c}" for p, c in QUOTES])
def test_quoted_output_is_what_is_printed(
    path: Path, command: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = path.read_text("utf-8")
    now = printed(command, tmp_path)
    if request.config.getoption("--refresh-golden"):
        text = QUOTE.sub(lambda m: _quoted(m, now) if m["command"] == command else m[0], text)
        path.write_text(text, "utf-8")
    quoted = [match["text"] for match in QUOTE.finditer(text) if match["command"] == command]
    assert quoted
    assert all(quote == now for quote in quoted)


def _quoted(match: re.Match[str], now: str) -> str:
    return match[0].replace(f"```text\n{match['text']}```", f"```text\n{now}```")


def test_readme_shows_the_demo_and_the_help() -> None:
    commands = [command for path, command in QUOTES if path.name == "README.md"]
    assert commands == ["kvadvise plan chat-8k", "kvadvise plan --help"]
    assert "kvadvise demo --engine" in (ROOT / "Makefile").read_text()
    assert "<!-- demo -->" in (ROOT / "README.md").read_text("utf-8")  # held by tests/engine/test_demo.py


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = [match["target"] for match in LINK.finditer(path.read_text("utf-8"))]
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_every_key_of_a_plan_is_explained() -> None:
    text = (ROOT / "docs" / "plan.md").read_text("utf-8")
    identity = {"schema", "kvadvise_version"}
    assert [name for name in Plan.__struct_fields__ if f"`{name}`" not in text and name not in identity] == []


def test_every_document_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    missing = [path.name for path in (ROOT / "docs").glob("*.md") if path.name not in index]
    assert missing in ([], ["README.md"])
