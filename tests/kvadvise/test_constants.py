from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from advisor.overhead_constants import FLAGS, Factor, OverheadConstants
from advisor.versions import ASKED, NEWEST, OLDEST, Version
from kvadvise.constants import load_constants, overheads_file

FIELDS = {field.name for field in msgspec.structs.fields(OverheadConstants)} - {"version", "encoders"}


@pytest.mark.parametrize("version", sorted({OLDEST, NEWEST, *ASKED, Version(0, 40, 0)}), ids=str)
def test_every_version_has_every_constant(version: Version) -> None:
    constants = load_constants().at(version)
    assert constants.version == version
    assert all(isinstance(getattr(constants, name), bool if name in FLAGS else Factor) for name in FIELDS)


def test_the_file_names_what_the_code_knows_and_where_it_was_seen() -> None:
    document = yaml.safe_load(overheads_file().read_text(encoding="utf-8"))
    assert set(document["constants"]) == FIELDS
    for name, constant in document["constants"].items():
        assert constant["meaning"], name
        assert all(len(entry["source"]) >= 8 for entry in constant["versions"]), name
    assert all(len(shape["source"]) >= 8 for shape in document["encoders"].values())


def test_the_last_entry_that_does_not_begin_later_holds() -> None:
    table = load_constants()
    assert table.at(Version(0, 16, 9)).sampler_copies.value == 9.0
    assert table.at(Version(0, 17, 0)).sampler_copies.value == 3.0
    assert [table.at(Version(0, n)).graphs_in_budget for n in (19, 20)] == [False, True]


def test_gibibytes_become_bytes() -> None:
    assert load_constants().at(Version(0, 19)).graph_base.value == 0.3 * 1024**3


def test_a_version_before_all_entries_is_a_bug_and_says_so() -> None:
    with pytest.raises(ValueError, match=r"base holds for vLLM 0\.7\.0"):
        load_constants().at(Version(0, 7, 0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema: other/1\n", "schema 'other/1'"),
        (
            "schema: kvadvise.vllm-overheads/1\nencoders: {}\nconstants:\n  base:\n    unit: GiB\n    versions:\n"
            '      - {from: "0.9", value: 1, low: 1, high: 1, source: one}\n'
            '      - {from: "0.8", value: 1, low: 1, high: 1, source: two}\n',
            "entries of base must follow",
        ),
        (
            "schema: kvadvise.vllm-overheads/1\nencoders: {}\nconstants:\n  base:\n    unit: GiB\n    versions:\n"
            '      - {from: "0.9", value: 3, low: 1, high: 2, source: one}\n',
            "must hold its value",
        ),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "overheads.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_constants(file)
