"""Log fixtures: tests/data/logs/NAME.log, whose first line says where its figures and shape come from."""

from __future__ import annotations

from pathlib import Path

DIRECTORY = Path(__file__).resolve().parents[1] / "data" / "logs"
NAMES = sorted(path.stem for path in DIRECTORY.glob("*.log"))
HEALTHY = [name for name in NAMES if name.startswith("healthy-")]


def log(name: str) -> list[str]:
    """The lines of a fixture without its source line."""
    text = (DIRECTORY / f"{name}.log").read_text(encoding="utf-8")
    lines = text.split("\n")
    if not lines[0].startswith("# source: "):
        raise AssertionError(f"{name}.log does not name its source")
    return lines[1:]
