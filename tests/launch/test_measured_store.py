"""Measurements on disk: whole files, one writer at a time, one clear error for a file that cannot be used."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from advisor.errors import InvalidInput
from advisor.measured import Measurement, Span
from launch import measured_store as store
from tests.advisor.test_measured import KEY, span


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "share" / "kvadvise" / "measured"


def measured(gib: float = 2.0) -> Measurement:
    return Measurement(key=KEY, sources=(f"a log of {gib}",), activation=span(gib))


def test_nothing_is_known_at_first(directory: Path) -> None:
    assert store.load(directory, KEY) is None
    assert not directory.exists()


def test_what_is_kept_is_read_back(directory: Path) -> None:
    kept = store.keep(directory, measured())
    assert store.load(directory, KEY) == kept.measurement == measured()
    assert kept.replaced == ""
    path = directory / KEY.file_name
    assert kept.path == path
    assert json.loads(path.read_text())["schema"] == "kvadvise.measured/1"
    assert len(path.read_text().splitlines()) > 20  # for people too
    assert path.stat().st_mode & 0o077 == 0


def test_a_second_start_is_merged(directory: Path) -> None:
    store.keep(directory, measured(2.0))
    kept = store.keep(directory, measured(2.5)).measurement
    assert kept.starts == 2
    assert kept.activation == Span(span(2.5).value, span(2.0).low, span(2.5).high)


def test_a_start_that_is_known_is_not_counted_again(directory: Path) -> None:
    first = store.keep(directory, measured(2.0))
    again = store.keep(directory, measured(2.0))
    assert (again.was_known, again.measurement) == (True, first.measurement)


def test_nothing_is_left_beside_the_file(directory: Path) -> None:
    store.keep(directory, measured())
    assert [path.name for path in directory.iterdir()] == [KEY.file_name]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schema": "kvadvise.measured/1"}', b"[" * 5000, b"x" * 70_000],
    ids=["empty", "cut", "list", "null", "no text", "no key", "nested", "too large"],
)
def test_a_file_that_cannot_be_used_is_one_error_and_then_replaced(directory: Path, content: bytes) -> None:
    directory.mkdir(parents=True)
    (directory / KEY.file_name).write_bytes(content)
    with pytest.raises(InvalidInput, match=r".+"):
        store.load(directory, KEY)
    kept = store.keep(directory, measured())
    assert kept.measurement == measured()
    assert kept.replaced
    assert store.load(directory, KEY) == measured()


def test_a_file_of_another_schema_or_key_is_refused(directory: Path) -> None:
    store.keep(directory, measured())
    path = directory / KEY.file_name
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "schema": "kvadvise.measured/9"}))
    with pytest.raises(InvalidInput, match="schema"):
        store.load(directory, KEY)
    document["key"]["gpu"] = "another"
    path.write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match="another key"):
        store.load(directory, KEY)


def test_a_directory_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(InvalidInput, match="cannot be written"):
        store.keep(blocked / "measured", measured())
    assert store.load(blocked / "measured", KEY) is None


def test_a_directory_in_the_file_s_place_is_said(directory: Path) -> None:
    (directory / KEY.file_name).mkdir(parents=True)
    with pytest.raises(InvalidInput, match="cannot be read"):
        store.load(directory, KEY)
    with pytest.raises(InvalidInput, match="cannot be written"):
        store.keep(directory, measured())


def test_writers_at_once_lose_nothing(directory: Path) -> None:
    threads = [threading.Thread(target=store.keep, args=(directory, measured(1.0 + n / 10))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = store.load(directory, KEY)
    assert kept is not None
    assert kept.starts == 8
    assert [path.name for path in directory.iterdir()] == [KEY.file_name]
