"""docs/workload.md names every key of a workload file, and its example is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.gate_keys import GATE
from advisor.workload_keys import SECTIONS, WORKLOAD
from advisor.workload_yaml import read_workload

PAGE = Path(__file__).resolve().parents[2] / "docs" / "workload.md"
START, END = "<!-- gate keys: kept by tests/advisor/test_workload_docs.py -->\n", "<!-- end of gate keys -->"
HEAD = "| key of `gate` | bounds | unit | check |\n|---|---|---|---|\n"


def test_the_example_is_a_workload() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert read_workload(example, "example.yaml").engine["max_model_len"] == 8192


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_is_named(section: str) -> None:
    named = set(re.findall(r"`([a-z0-9_.]+)`", PAGE.read_text(encoding="utf-8")))
    inner = (
        "" if section in ("", "workload", "workload.prompt_tokens", "gate") else f"{section.removeprefix('workload.')}."
    )
    keys = {f"{inner}{key}" for key in SECTIONS[section].fields}
    assert (
        keys - named - {name for name in WORKLOAD.fields if any(full.startswith(f"{name}.") for full in named)} == set()
    )


def test_the_table_of_gate_keys(request: pytest.FixtureRequest) -> None:
    """With --refresh-golden the table is written anew."""
    rows = "".join(f"| `{name}` | {key.meaning} | {key.unit} | `{key.check}` |\n" for name, key in GATE.items())
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    if request.config.getoption("--refresh-golden"):
        PAGE.write_text(f"{before}{START}{HEAD}{rows}{END}{after}", encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == f"{before}{START}{HEAD}{rows}{END}{after}"
