"""The text of a workload: found by file name, `-` or profile name, and parted from the plan saved in it.

A saved plan stands under the top-level key `plan`. It is an answer, not a part of the question: what is
planned (and hashed) is the text without it, byte for byte what it was before the plan was saved.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from advisor.errors import InvalidInput

_BYTES_READ = 1024**2 + 1  # one more than the reader of workload files takes: it says what is wrong then
SAVED_PLAN_MARK = b"# The plan kvadvise saved for the workload above; `kvadvise plan --save` writes it anew.\n"


class WorkloadText(msgspec.Struct, frozen=True, kw_only=True):
    """What was read, how the user named it, and where relative paths in it start."""

    data: bytes
    label: str
    base_dir: Path

    @property
    def question(self) -> bytes:
        """The workload's own bytes, without a plan that kvadvise saved beside it."""
        return self.data.partition(SAVED_PLAN_MARK)[0]


def read_text(reference: str) -> WorkloadText:
    """The workload that `reference` names: `-` is stdin, then a file, then a profile's name.

    Raises InvalidInput where there is none, or it cannot be read.
    """
    if reference == "-":
        data = sys.stdin.buffer.read(_BYTES_READ)
        return WorkloadText(data=data, label="<stdin>", base_dir=Path.cwd())
    path = Path(reference)
    if path.exists() or path.suffix in (".yaml", ".yml", ".json") or "/" in reference:
        return _read_file(path, reference)
    return read_profile(reference)


def read_profile(name: str) -> WorkloadText:
    """The profile of that name, the user's before the bundled one.

    Raises InvalidInput with the nearest names where there is none.
    """
    from kvadvise.profile_store import find_profile, nearest_names

    profile = find_profile(name)
    if profile is None:
        near = nearest_names(name)
        hint = f"did you mean {' or '.join(near)}?" if near else "`kvadvise profiles` lists the profiles"
        raise InvalidInput("there is no such file, and no profile of that name", where=name, hint=hint)
    return _read_file(profile.path, name)


def with_plan(text: WorkloadText, plan: dict[str, Any]) -> bytes:
    """The text with `plan` saved in it. The text must be a block-style mapping, as `block_style` makes it."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    saved = yaml.dump({"plan": plan}, Dumper=dumper, sort_keys=False, allow_unicode=True, width=110).encode()
    body = text.question
    return body + (b"" if body.endswith(b"\n") else b"\n") + SAVED_PLAN_MARK + saved


def _read_file(path: Path, label: str) -> WorkloadText:
    try:
        with path.open("rb") as file:
            return WorkloadText(data=file.read(_BYTES_READ), label=label, base_dir=path.parent)
    except OSError as error:
        raise InvalidInput(
            f"cannot read: {error.strerror}", where=label, hint="give a workload file; `kvadvise profiles` lists others"
        ) from error
