"""What is stored is read back; what is damaged is one clear error; no secret gets in."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from advisor.errors import InvalidInput
from tests.verify.runs import SERVED, answer, failed, healthy, healthy_rows
from verify.record.store import REQUESTS, RUN, TIMELINE, read_run, run_files, write_run
from verify.record.types import PhaseMark, Run


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    run = healthy()
    write_run(tmp_path / "out", run)
    assert read_run(tmp_path / "out") == run
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted([REQUESTS, RUN, TIMELINE])


def test_a_run_that_never_began(tmp_path: Path) -> None:
    run = Run(
        kvadvise_version="0.1.0", started_at="2026-01-02T03:04:05+00:00", schedule_sha256="", seed=0,
        workload_name=None, planned=None, served=SERVED, rows=(), snapshots=(), marks=(), ended="interrupted",
    )  # fmt: skip
    write_run(tmp_path, run)
    assert read_run(tmp_path) == run


def test_an_unfinished_phase_and_odd_text(tmp_path: Path) -> None:
    odd = failed(answer(0, "tail", 1.0), "http_5xx", error="a\u2028b\u0085c\x00\ud7ff ✓")
    run = healthy(rows=[odd], marks=(PhaseMark(name="tail", began_s=0.0, planned_requests=5),))
    write_run(tmp_path, run)
    assert read_run(tmp_path) == run


def test_equal_runs_give_equal_bytes() -> None:
    assert run_files(healthy()) == run_files(healthy())


def test_writing_again_replaces_the_whole(tmp_path: Path) -> None:
    write_run(tmp_path, healthy())
    other = healthy(rows=healthy_rows()[:10], seed=8)
    write_run(tmp_path, other)
    assert read_run(tmp_path) == other


def test_lines_are_json_with_the_names_of_the_types(tmp_path: Path) -> None:
    write_run(tmp_path, healthy())
    rows = gzip.decompress((tmp_path / REQUESTS).read_bytes()).decode().splitlines()
    assert json.loads(rows[0])["outcome"] == "ok"
    timeline = [json.loads(x) for x in gzip.decompress((tmp_path / TIMELINE).read_bytes()).decode().splitlines()]
    assert {next(iter(line)) for line in timeline} == {"mark", "snapshot"}


def test_no_secret_is_stored(tmp_path: Path) -> None:
    key = "sk-very-secret-key"
    rows = [failed(answer(0, "tail", 1.0), "http_4xx", error=f"bad key {key}")]
    served = msgspec.structs.replace(SERVED, url=f"http://user:{key}@host:8000")
    run = healthy(rows=rows, served=served, ending_text=f"refused {key}", environment={"x": key})
    write_run(tmp_path, run, secrets=(key, "", "a"))
    texts = [
        (tmp_path / RUN).read_bytes(),
        *(gzip.decompress((tmp_path / n).read_bytes()) for n in (REQUESTS, TIMELINE)),
    ]
    assert not any(key.encode() in text for text in texts)
    assert read_run(tmp_path).served.url == "http://host:8000"
    assert read_run(tmp_path).rows[0].error == "bad key [redacted]"


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _garbage(path: Path) -> None:
    path.write_bytes(b"\x00\xff garbage")


@pytest.mark.parametrize("name", [REQUESTS, RUN, TIMELINE])
@pytest.mark.parametrize("damage", [Path.unlink, _cut, _garbage], ids=["missing", "cut", "garbage"])
def test_a_damaged_directory_is_one_clear_error(tmp_path: Path, name: str, damage: object) -> None:
    write_run(tmp_path, healthy())
    damage(tmp_path / name)  # type: ignore[operator]
    with pytest.raises(InvalidInput) as caught:
        read_run(tmp_path)
    assert name in caught.value.where
    assert "again" in caught.value.hint


def test_files_of_two_runs_are_told_apart(tmp_path: Path) -> None:
    write_run(tmp_path, healthy())
    before = (tmp_path / REQUESTS).read_bytes()
    write_run(tmp_path, healthy(rows=healthy_rows()[:10]))
    (tmp_path / REQUESTS).write_bytes(before)
    with pytest.raises(InvalidInput, match="not the file"):
        read_run(tmp_path)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, msgspec.structs.replace(healthy(), schema="kvadvise.run/9"))
    with pytest.raises(InvalidInput, match=r"kvadvise\.run/9"):
        read_run(tmp_path)


def test_what_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(InvalidInput, match="cannot be written"):
        write_run(tmp_path / "file", healthy())


def test_a_failing_write_leaves_the_old_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = healthy()
    write_run(tmp_path, run)

    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InvalidInput, match="No space left"):
        write_run(tmp_path, healthy(seed=9))
    monkeypatch.undo()
    assert read_run(tmp_path) == run
    assert len(list(tmp_path.iterdir())) == 3
