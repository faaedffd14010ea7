"""Reading and printing of sizes. Everywhere else a size is an integer of bytes."""

from __future__ import annotations

KIB = 1024
MIB = 1024**2
GIB = 1024**3


def gib(n_bytes: int | float) -> str:
    """Bytes as text in GiB with two decimals, as vLLM prints them."""
    return f"{n_bytes / GIB:,.2f} GiB"


def bytes_from_gib(n_gib: float) -> int:
    """GiB as a person wrote them, to whole bytes (rounded to nearest)."""
    return round(n_gib * GIB)
