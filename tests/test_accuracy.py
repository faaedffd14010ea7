"""The accuracy document is what the tool makes of the rows, and the tool touches nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.accuracy import DOCUMENT, main, percentile, updated
from tools.startups import load_rows

BEGIN, END = "<!-- startups:begin -->", "<!-- startups:end -->"


def test_the_document_is_up_to_date() -> None:
    assert main(["--check"]) == 0, "run `make accuracy`"


def test_only_the_part_between_the_markers_is_replaced() -> None:
    before = f"# Title\n\nothers' words\n\n{BEGIN}\nold\n{END}\n\n## Others' section\n"
    after = updated(before, "new\n")
    assert after == f"# Title\n\nothers' words\n\n{BEGIN}\nnew\n{END}\n\n## Others' section\n"
    assert updated(after, "new\n") == after


def test_a_document_without_markers_gets_the_section_at_its_end() -> None:
    assert updated("# Title\n", "new\n") == f"# Title\n\n{BEGIN}\nnew\n{END}\n"


def test_the_tool_writes_a_new_document_and_then_agrees_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "docs" / "accuracy.md"
    assert main(["--check", "--document", str(path)]) == 1
    assert "out of date" in capsys.readouterr().err
    assert main(["--document", str(path)]) == 0
    assert main(["--check", "--document", str(path)]) == 0
    assert [p.name for p in path.parent.iterdir()] == ["accuracy.md"]


def test_every_row_is_in_the_document() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert [row.id for row in load_rows() if f"| {row.id} |" not in text] == []


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 2.5), (0.9, 3.7), (1.0, 4.0)])
def test_percentiles_are_interpolated(share: float, value: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == pytest.approx(value)
