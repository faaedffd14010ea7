"""A log as the user names it: a file, or `-` for stdin."""

from __future__ import annotations

import sys
from pathlib import Path

from advisor.errors import InvalidInput


def read_log(name: str) -> bytes:
    """All of it. Raises InvalidInput where it cannot be read."""
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=name, hint="give the engine's log") from None
