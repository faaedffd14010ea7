"""One stream of chance for each purpose, all from one seed: other lengths leave the arrivals as they were."""

from __future__ import annotations

import hashlib
import random


def stream(seed: int, purpose: str) -> random.Random:
    """The stream of a purpose; the same in every process and every run (Python's own hash() is not)."""
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=16).digest()
    return random.Random(int.from_bytes(digest, "big"))  # noqa: S311 (a load, not a secret)
