"""How figures are written: one place, so that the page and the Markdown say the same."""

from __future__ import annotations

from typing import Any

from advisor.units import GIB

OUTCOMES = {
    "fits": "FITS",
    "fits_with_loss": "FITS WITH LOSS",
    "does_not_fit": "DOES NOT FIT",
    "not_understood": "NOT UNDERSTOOD",
    "invalid": "INVALID",
}
SEVERITIES = ("error", "warning", "note")


def gib(n_bytes: int | float) -> str:
    """Bytes as GiB with two decimals and no unit, for columns under a heading that has it."""
    return f"{n_bytes / GIB:.2f}"


def count(value: float | None) -> str:
    """A number with thousands separated; `unknown` where there is none."""
    if value is None:
        return "unknown"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def setting(value: Any) -> str:
    """A flag's value as a person writes it."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, dict):
        return ", ".join(f"{key} {setting(item)}" for key, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)
