"""`inputs_sha256`: what a plan was made from, as one number.

Two plans with the same number were made from the same bytes. The hash covers the workload's bytes, the
model facts and what was read of the store of measured starts (a file that could not be used included: the
plan says so), and besides them the device: with `gpu: auto` the file alone does not say it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from advisor.facts import ModelFacts
from advisor.gpu import Gpu


def inputs_sha256(workload: bytes, facts: ModelFacts | None, gpu: Gpu | None, *, measured: bytes = b"") -> str:
    """Hash of everything a plan is made from; None where it could not be read, `measured` empty where
    nothing was.

    Each part is preceded by its length, so that no two different inputs run into one another. Line ends at
    the end of the file do not count: a profile has one between the workload and the plan saved in it.
    """
    digest = hashlib.sha256()
    for part in (workload.rstrip(b"\n"), _canonical(facts), _canonical(gpu), measured):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def used_bytes(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Files of the store as one: name and content, each preceded by its length."""
    parts = [part for name, data in files for part in (name.encode(), data)]
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def _canonical(value: ModelFacts | Gpu | None) -> bytes:
    return b"" if value is None else msgspec.json.encode(value, order="deterministic")
