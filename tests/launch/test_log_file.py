"""The log: turned over with its first part kept, never in the engine's way, read while it grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.log_file import LogTail, RotatingLog, read_end, read_whole


def test_a_small_log_is_one_file(tmp_path: Path) -> None:
    log = RotatingLog(str(tmp_path / "log"))
    log.write(b"one\ntwo\n")
    log.close()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0
    assert read_whole(str(tmp_path / "log")) == ["one", "two"]


def test_the_first_part_and_the_newest_are_kept(tmp_path: Path) -> None:
    log = RotatingLog(str(tmp_path / "log"), max_bytes=100, keep=2)
    for i in range(100):
        log.write(f"line {i:04d}\n".encode())
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1", "log.2", "log.start"]
    assert (tmp_path / "log.start").read_text().startswith("line 0000\n")
    parts = [(tmp_path / name).read_text() for name in ("log.2", "log.1", "log")]
    newest = "".join(parts).splitlines()
    assert newest == [f"line {i:04d}" for i in range(100 - len(newest), 100)]
    assert all(part.endswith("\n") and len(part) <= 110 for part in parts)
    whole = read_whole(str(tmp_path / "log"))
    assert whole[0] == "line 0000"
    assert whole[-1] == "line 0099"


def test_the_first_part_outlives_a_second_start(tmp_path: Path) -> None:
    for run in ("first", "second"):
        log = RotatingLog(str(tmp_path / "log"), max_bytes=50, keep=1)
        for i in range(20):
            log.write(f"{run} {i}\n".encode())
        log.close()
    assert (tmp_path / "log.start").read_text().startswith("first 0\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1", "log.start"]


def test_a_full_disk_is_survived_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    log = RotatingLog(str(tmp_path / "log"))
    log.write(b"lost\n")
    log.write(b"lost too\n")
    assert log.dropped_bytes == 14
    log.close()
    log.path = str(tmp_path / "other")
    log._open()
    log.write(b"back\n")
    log.close()
    assert (tmp_path / "other").read_text() == "\n[kvadvise] 14 bytes of log could not be written here\nback\n"


def test_a_log_that_cannot_be_opened_loses_its_lines_only(tmp_path: Path) -> None:
    log = RotatingLog(str(tmp_path / "nowhere" / "log"))
    log.write(b"lost\n")
    assert log.dropped_bytes == 5
    log.close()
    assert read_end(str(tmp_path / "nowhere" / "log")) == []


def test_the_tail_gives_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = LogTail(str(path))
    assert tail.lines() == []
    path.write_bytes(b"one\ntw")
    assert tail.lines() == ["one"]
    with path.open("ab") as file:
        file.write("o\n 10%\r 20%\rä".encode())
    assert tail.lines() == ["two", " 10%", " 20%"]
    assert tail.lines() == []
    assert tail.last() == ["ä"]
    tail.close()


def test_the_tail_begins_where_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old\nnew\n")
    tail = LogTail(str(path), begin=4)
    assert tail.lines() == ["new"]
    tail.close()


def test_the_tail_follows_a_turn_over(tmp_path: Path) -> None:
    log = RotatingLog(str(tmp_path / "log"), max_bytes=64, keep=9)
    tail = LogTail(str(tmp_path / "log"))
    seen: list[str] = []
    for i in range(60):
        log.write(f"line {i}\n".encode())
        if i % 3 == 0:
            seen += tail.lines()
    seen += tail.last()
    assert seen == [f"line {i}" for i in range(60)]
    tail.close()
    log.close()


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100_000)
    tail = LogTail(str(path))
    assert [len(line) for line in tail.lines()] == [100_000]
    with path.open("ab") as file:
        file.write(b"y\n")
    assert tail.lines() == ["y"]
    tail.close()


def test_the_end_of_a_large_log_is_all_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(f"line {i}\n".encode() for i in range(100_000)))
    assert read_end(str(path), 12) == ["line 99999"]
    assert path.stat().st_size > 1 << 20
