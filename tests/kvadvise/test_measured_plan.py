"""The store of measured starts as `plan` meets it: looked up by key, hashed where used, never a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from advisor.measured import Measurement, Span
from advisor.plan_types import Plan
from kvadvise.measured_files import look_up, measured_dir
from kvadvise.pipeline import plan
from launch.measured_store import keep
from tests.kvadvise.processes import Shell

GIB = 1024**3


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "kvadvise" / "measured"


def measured(made: Plan, gib: float = 1.5, **changes: Any) -> Measurement:
    assert made.measured is not None
    key = msgspec.structs.replace(made.measured.key, **changes)
    middle = round(gib * GIB)
    return Measurement(key=key, kept_on="2026-01-02T03:04:05Z", activation=Span(middle, middle, middle))


def test_the_directory_follows_the_xdg_rules(tmp_path: Path) -> None:
    home = str(tmp_path)
    below = tmp_path / ".local" / "share" / "kvadvise" / "measured"
    assert measured_dir({"HOME": home}) == below
    assert measured_dir({"HOME": home, "XDG_DATA_HOME": "relative"}) == below
    assert measured_dir({"HOME": home, "XDG_DATA_HOME": "/data"}) == Path("/data/kvadvise/measured")


def test_the_next_plan_of_that_key_uses_it(store: Path) -> None:
    before = plan("chat-8k")
    keep(store, measured(before))
    after = plan("chat-8k")
    assert before.memory is not None
    assert after.memory is not None
    assert (before.memory.activation_bytes.basis, after.memory.activation_bytes.basis) == ("estimated", "measured")
    assert after.memory.activation_bytes.value == round(1.5 * GIB)
    assert after.inputs_sha256 != before.inputs_sha256
    assert after == plan("chat-8k")


def test_what_is_kept_for_another_key_changes_nothing(store: Path) -> None:
    before = plan("chat-8k")
    for changes in ({"max_num_seqs": 8}, {"vllm_version": "0.30.0"}, {"gpu": "L4"}, {"tensor_parallel_size": 2}):
        keep(store, measured(before, **changes))
    assert plan("chat-8k") == before


def test_the_hash_follows_the_bytes_that_were_used(store: Path) -> None:
    before = plan("chat-8k")
    first = keep(store, measured(before))
    one = plan("chat-8k")
    keep(store, measured(before))
    two = plan("chat-8k")
    assert len({before.inputs_sha256, one.inputs_sha256, two.inputs_sha256}) == 3
    first.path.unlink()
    assert plan("chat-8k") == before


def test_a_store_that_moves_the_plan_is_asked_again(store: Path) -> None:
    """A batch that costs so much is left for another key, which has a file of its own."""
    load = {"prompt_tokens": {"p95": 1500}, "output_tokens": {"p95": 500}, "concurrency": 100}
    work = {"model": "Qwen/Qwen2.5-7B-Instruct", "gpu": "L40S", "workload": load}
    first = plan(work)
    keep(store, measured(first, gib=16.0))
    moved = plan(work)
    assert moved.measured is not None
    assert first.measured is not None
    assert moved.measured.key != first.measured.key
    keep(store, measured(moved, gib=0.5))
    settled = plan(work)
    assert settled.measured is not None
    assert settled.measured.starts == 1
    assert settled.memory is not None
    assert settled.memory.activation_bytes.value == GIB // 2
    assert settled.inputs_sha256 not in (first.inputs_sha256, moved.inputs_sha256)


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"schema": "kvadvise.measured/1"}', b"\xff\xfe", b"[" * 5000, b"x" * 70_000]
)
def test_a_file_that_cannot_be_used_is_a_warning(store: Path, content: bytes) -> None:
    before = plan("chat-8k")
    assert before.measured is not None
    store.mkdir(parents=True)
    (store / before.measured.file).write_bytes(content)
    after = plan("chat-8k")
    assert [f.code for f in after.findings if f not in before.findings] == ["measurement-unusable"]
    assert (after.memory, after.flags, after.outcome) == (before.memory, before.flags, before.outcome)
    assert after.inputs_sha256 != before.inputs_sha256  # what it says differs
    keep(store, measured(before))
    assert plan("chat-8k").memory != before.memory


def test_the_file_of_another_key_is_not_used_silently(store: Path) -> None:
    before = plan("chat-8k")
    assert before.measured is not None
    foreign = keep(store, measured(before, gpu="L4"))
    foreign.path.rename(store / before.measured.file)
    after = plan("chat-8k")
    assert after.memory == before.memory
    [finding] = [f for f in after.findings if f.code == "measurement-unusable"]
    assert "another key" in finding.message


def test_a_directory_in_the_file_s_place_is_a_warning(store: Path) -> None:
    before = plan("chat-8k")
    assert before.measured is not None
    (store / before.measured.file).mkdir(parents=True)
    assert "measurement-unusable" in {f.code for f in plan("chat-8k").findings}
    found = look_up(store, before.measured.key)
    assert found is not None
    assert "cannot be read" in found.problem


def test_a_user_without_a_home_plans_all_the_same(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.env |= {"HOME": "/nonexistent", "XDG_DATA_HOME": "/dev/null/x"}
    assert shell.run("plan", "chat-8k", "--json").returncode == 0


def test_the_page_shows_the_basis_and_the_warning(store: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    made = json.loads(shell.run("plan", "chat-8k", "--json").stdout)
    before = plan("chat-8k")
    assert made["measured"]["file"] == before.measured.file if before.measured else False
    kept = keep(store, measured(before))
    page = shell.run("plan", "chat-8k").stdout
    assert "measured" in next(line for line in page.splitlines() if line.strip().startswith("activations"))
    assert "as measured with these very settings" in " ".join(page.split())
    kept.path.write_bytes(b"{")
    assert "measurement-unusable" in shell.run("plan", "chat-8k").stdout
