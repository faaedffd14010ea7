"""docs/diagnosis.md names every code, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from launch.diagnosis_rules import all_codes
from launch.server_symptoms import SERVER_CODES

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "diagnosis.md").read_text(encoding="utf-8")


def test_the_table_of_codes_is_whole() -> None:
    rows = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `")]
    named = {code for row in rows for code in re.findall(r"`([a-z0-9-]+)`", row)}
    assert named == {*all_codes(), *SERVER_CODES}
