"""Nothing in the tree names a machine it was made on, and nothing in it is left over."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# In pieces, so that this file does not hold what it looks for.
MACHINE_PATHS = [
    re.compile("/" + "work" + r"/(?:main|shared|venv|engine|notes)\b"),
    re.compile("/tmp/" + "bash_jobs"),
    re.compile(r"/root/\." + "pyenv"),
    re.compile(r"/home/(?!vllm/|kvadvise/)[a-z]+/\." + "cache"),
    re.compile(r"\b(?:files\." + r"pythonhosted|registry\." + r"npmjs|deb\." + r"debian)\.org\b"),
    re.compile(r"\bpypi\." + r"org\b"),
]
LEFT_OVER = re.compile(r"\b(?:FIX" + r"ME|XX" + r"X|TO" + r"DO)\b|\bassert " + r"True\b|pragma: no " + "cover")
TEXT = {".py", ".md", ".yaml", ".yml", ".toml", ".json", ".jsonl", ".sh", ".txt", ".csv", ".cfg", ""}


def files() -> list[Path]:
    """What git would take: tracked, and new files that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file() and path.suffix in TEXT]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    if not (ROOT / ".git").exists():
        pytest.fail("the tree is no git checkout, so its files cannot be told from others")
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8", errors="replace") for path in files()}


@pytest.mark.parametrize("pattern", MACHINE_PATHS, ids=lambda p: p.pattern)
def test_no_machine_is_named(pattern: re.Pattern[str], texts: dict[str, str]) -> None:
    assert [name for name, text in texts.items() if pattern.search(text)] == []


def test_nothing_is_left_over(texts: dict[str, str]) -> None:
    code = {name: text for name, text in texts.items() if name.endswith((".py", ".sh")) or "/" not in name}
    assert [name for name, text in code.items() if LEFT_OVER.search(text)] == []
