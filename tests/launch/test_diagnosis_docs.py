"""The docs name every code that launching or a diagnosis can give, and none that is not there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from launch.diagnosis_rules import all_codes
from launch.server_symptoms import SERVER_CODES

ROOT = Path(__file__).resolve().parents[2]
DIAGNOSIS = (ROOT / "docs" / "diagnosis.md").read_text(encoding="utf-8")
FINDINGS = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
CODE = re.compile(r"[a-z]+(?:-[a-z0-9]+)+")
NO_CODES = {"utf-8", "warm-up", "first-token", "not-started", "prefix-cache"}  # words that only look like one


def named_in(text: str) -> set[str]:
    """Codes of the first column of its tables."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {code for row in rows for code in re.findall(r"`([a-z0-9-]+)`", row) if CODE.fullmatch(code)}


def written_in(path: Path) -> set[str]:
    """Every text in a module that has a code's form, documentation left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {text for text in texts if CODE.fullmatch(text)}


def of_the_launcher() -> set[str]:
    return {code for path in (ROOT / "launch").glob("*.py") for code in written_in(path)} - NO_CODES


def test_the_launcher_s_codes_are_found() -> None:
    """The search itself: these were once without an entry."""
    assert of_the_launcher() >= {
        *("engine-broken", "flags-unchecked", "ports-collide", "host-not-here", "gpu-unread", "gpu-absent"),
        *("model-download", "draft-model-missing", "oom-host", "process-left", "port-not-released"),
        *("gpu-memory-not-released", "start-limit", "start-stalled", "wrong-server", "api-key", "no-completions"),
    }


def test_the_table_of_diagnoses_is_whole() -> None:
    codes = {code for code in (*all_codes(), *SERVER_CODES) if CODE.fullmatch(code)} | of_the_launcher()
    named = named_in(DIAGNOSIS)
    assert sorted(codes - named - named_in(FINDINGS)) == []
    assert sorted(named - codes) == []
    assert {"hang", "nccl", "stopped", "preemptions", "unexplained"} <= set(re.findall(r"`([a-z]+)`", DIAGNOSIS))


def test_every_cause_is_in_the_diagnosis_itself() -> None:
    """A plan's finding of the same name is described as a plan sees it, which is no diagnosis."""
    codes = {*all_codes(), *SERVER_CODES}
    rows = [line.split("|")[1] for line in DIAGNOSIS.splitlines() if line.startswith("| `")]
    assert codes - {code for row in rows for code in re.findall(r"`([a-z0-9-]+)`", row)} == set()


def test_what_planning_says_of_its_inputs_has_an_entry() -> None:
    said = written_in(ROOT / "kvadvise" / "pipeline.py")
    assert "measurement-unusable" in said
    assert sorted(said - named_in(FINDINGS)) == []
