"""kvadvise: choose vLLM's flags from a workload, start it, and prove it holds.

    >>> import kvadvise
    >>> plan = kvadvise.plan("workload.yaml")
    >>> plan.outcome, plan.flags["max_model_len"]

Names are imported when they are used, so that the command starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.errors import EngineRefuses, InvalidInput, KvadviseError, NotUnderstood
    from advisor.plan_types import Plan
    from kvadvise.pipeline import plan

__version__ = "0.1.0"

__all__ = [
    "EngineRefuses",
    "InvalidInput",
    "KvadviseError",
    "NotUnderstood",
    "Plan",
    "plan",
]

_HOMES = {
    "EngineRefuses": "advisor.errors",
    "InvalidInput": "advisor.errors",
    "KvadviseError": "advisor.errors",
    "NotUnderstood": "advisor.errors",
    "Plan": "advisor.plan_types",
    "plan": "kvadvise.pipeline",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
