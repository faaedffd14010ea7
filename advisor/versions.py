"""vLLM versions, and which of them kvadvise knows.

Known at first hand (vLLM's own answers in tests): 0.10.2, 0.11.2, 0.13.0, 0.16.0, 0.19.1, 0.22.1, 0.26.0, 0.29.0,
0.32.0. Every other version between 0.8 and 0.33 is planned by the rules of the boundaries found in vLLM's source.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from advisor.errors import InvalidInput

_PATTERN = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?([.+\-]?(?:a|b|rc|dev|post|\+)?[\w.+-]*)$")


class Version(NamedTuple):
    """A vLLM release; compares with plain tuples: `version >= (0, 26)`."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


OLDEST = Version(0, 8, 0)
NEWEST = Version(0, 33, 0)
DEFAULT = Version(0, 32, 0)
ASKED = frozenset(
    Version(*v)
    for v in (
        (0, 10, 2),
        (0, 11, 2),
        (0, 13, 0),
        (0, 16, 0),
        (0, 19, 1),
        (0, 22, 1),
        (0, 26, 0),
        (0, 29, 0),
        (0, 32, 0),
    )
)


def parse_version(text: str, *, where: str = "") -> Version:
    """A version as written (`0.32`, `0.32.0`, `v0.19.0rc1`, `0.11.0+cu128`); a suffix is accepted and dropped."""
    m = _PATTERN.match(text.strip())
    if m is None:
        raise InvalidInput(
            f"{text!r} is not a vLLM version", where=where, hint='write it as a string, such as "0.32.0"'
        )
    return Version(int(m[1]), int(m[2]), int(m[3] or 0))
