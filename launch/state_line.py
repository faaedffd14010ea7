"""The JSON line that `kvadvise launch --json` prints for each state: schema `kvadvise.launch/1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

SCHEMA = "kvadvise.launch/1"
FIGURES = (
    "num_blocks",
    "block_size",
    "capacity_tokens",
    "max_concurrency",
    "max_model_len",
    "kv_cache_bytes",
    "weights_bytes",
    "activation_bytes",
    "non_torch_bytes",
    "cuda_graph_bytes",
)
DIAGNOSIS = ("code", "message", "remedy", "evidence")


def state_line(
    state: Literal["ready", "failed", "stopped"],
    *,
    seconds: float,
    url: str | None = None,
    pid: int | None = None,
    diagnosis: Mapping[str, Any] | None = None,
    planned: Mapping[str, Any] | None = None,
    actual: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One line's object. `seconds` since the start began; `planned` and `actual` always have every figure, null where
    it is not known; `diagnosis` is null where nothing went wrong. `more` is added as it is (log_path, findings).
    """
    return {
        "schema": SCHEMA,
        "state": state,
        "url": url,
        "pid": pid,
        "seconds": round(seconds, 3),
        "diagnosis": None if diagnosis is None else {key: diagnosis.get(key) for key in DIAGNOSIS},
        "planned": _figures(planned),
        "actual": _figures(actual),
    } | more


def _figures(given: Mapping[str, Any] | None) -> dict[str, Any]:
    given = given or {}
    return {name: given.get(name) for name in FIGURES}
