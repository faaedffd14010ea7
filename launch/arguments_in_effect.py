"""Arguments that an engine runs with and that are not those it was meant to have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from launch.startup_facts import StartupFacts

_FROM_ARGS = (
    *("max_model_len", "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "kv_cache_dtype"),
    *("block_size", "tensor_parallel_size", "kv_cache_memory_bytes"),
)
_SAID = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "tensor_parallel_size")
_LABELS = {"gpu_memory_utilization": float, "kv_cache_memory_bytes": int, "enable_prefix_caching": bool}


class Differing(msgspec.Struct, frozen=True, kw_only=True):
    """One argument: as planned, and as the engine has it."""

    name: str
    planned: Any
    actual: Any


def differing_arguments(
    planned: Mapping[str, Any], said: StartupFacts, labels: Mapping[str, str] | None = None
) -> tuple[Differing, ...]:
    """What differs, each argument once: from the arguments that the log prints, from what it says besides, and from the
    labels of vllm:cache_config_info. What the engine does not say is no difference; neither is a length that it fitted
    to its memory as it was asked to.
    """
    args = said.args or {}
    seen = {name: args[name] for name in _FROM_ARGS if name in args}
    seen |= {name: value for name in _SAID if (value := getattr(said, name)) is not None}
    seen |= _labelled(labels or {})
    fitted = ("max_model_len",) if said.auto_fit_to is not None or planned.get("max_model_len") in (-1, "auto") else ()
    return tuple(
        Differing(name=name, planned=planned[name], actual=value)
        for name, value in seen.items()
        if planned.get(name) is not None and name not in fitted and not _same(planned[name], value)
    )


def _labelled(labels: Mapping[str, str]) -> dict[str, Any]:
    """The labels that are arguments, as values; "None" is none."""
    found: dict[str, Any] = {}
    for name, kind in _LABELS.items():
        text = labels.get(name, "None")
        try:
            value = text == "True" if kind is bool else kind(text)
        except ValueError:
            continue
        if text != "None":
            found[name] = value
    return found


def _same(asked: object, says: object) -> bool:
    if isinstance(asked, int | float) and isinstance(says, int | float):
        return abs(asked - says) < 1e-9
    return asked == says or str(asked) == str(says)
