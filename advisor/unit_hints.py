"""What a value in the wrong form or unit was probably meant to be: for messages, never for reading."""

from __future__ import annotations

import math
import re
from typing import Literal

from advisor.problems import written
from advisor.units import GIB, KIB, MIB

Quantity = Literal["tokens", "requests", "gpus", "preemptions", "bytes", "seconds", "gib", "fraction", "number"]

_WITH_UNIT = re.compile(r"([-+]?[0-9][0-9,._]*(?:[eE][-+]?[0-9]+)?)\s*([a-zA-Z%µ]*)(?:/s)?")
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60.0, "h": 3600.0}
_BYTES = {
    "b": 1,
    "bytes": 1,
    "k": KIB,
    "kib": KIB,
    "m": MIB,
    "mib": MIB,
    "g": GIB,
    "gib": GIB,
    "tib": 1024 * GIB,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
}
_GIB = {"": 1.0, **{unit: n_bytes / GIB for unit, n_bytes in _BYTES.items()}}
_COUNT = {"": 1, "k": 1000, "m": 1000**2} | dict.fromkeys(("token", "tokens", "tok", "requests", "req", "gpus"), 1)
_FACTORS: dict[Quantity, dict[str, float]] = {
    "seconds": _SECONDS,
    "gib": _GIB,
    "bytes": {"": 1, **_BYTES},
    "fraction": {"": 1.0, "%": 0.01},
    "number": {"": 1.0, "k": 1e3, "rps": 1.0, "qps": 1.0},
}


def meant(text: str, quantity: Quantity) -> str | None:
    """The value `text` was probably meant to be, as it should be written, or None."""
    match = _WITH_UNIT.fullmatch(text.strip())
    if match is None:
        return None
    unit = match[2].lower()
    factors = _FACTORS.get(quantity, _COUNT)
    try:
        value = float(match[1].replace(",", "").replace("_", "")) * factors[unit]
    except (ValueError, KeyError):
        return None
    if not 0 < value < math.inf or (quantity == "fraction" and value > 1):
        return None
    if quantity in ("seconds", "gib", "fraction", "number"):
        return written(value)
    whole = math.ceil(round(value, 6))
    binary = f" (or {math.ceil(value / 1000 * KIB)} if 1024 each are meant)"
    return f"{whole}{binary if unit == 'k' and quantity == 'tokens' else ''}"
