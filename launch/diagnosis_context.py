"""What a plan knows that a diagnosis can use: flags, sizes, the load. Whoever starts the engine adds its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from advisor.plan_types import Plan
from launch.diagnosis_types import Context, Holder
from launch.engine_command import EngineCommand
from launch.gpu_state import GpuState

_LENGTHS = ("max", "p99", "p95", "p90", "p50")


def context_of(plan: Plan) -> Context:
    """The context of a start from a plan; what the plan leaves open stays unknown.

    Left to the caller: the environment, other processes, free memory (`as_started`), the container's limits, earlier
    attempts.
    """
    load = (plan.workload or {}).get("workload")
    load = load if isinstance(load, dict) else {}
    memory, subject = plan.memory, plan.subject
    is_cpu = subject is not None and subject.gpu.lower().startswith("cpu")
    return Context(
        flags=dict(plan.flags),
        version=subject.vllm_version if subject is not None else None,
        total_bytes=None if memory is None or is_cpu else memory.total_bytes.value,
        weights_bytes=memory.weights_bytes.value if memory is not None else None,
        planned_kv_bytes=memory.kv_cache_bytes.value
        if memory is not None and memory.kv_cache_bytes.value > 0
        else None,
        gpu_count=None if subject is None or is_cpu else subject.gpu_count,
        target_concurrency=plan.concurrency.target if plan.concurrency is not None else None,
        longest_request_tokens=_request(load, _longest),
        p95_request_tokens=_request(load, _p95),
    )


def as_started(context: Context, command: EngineCommand, env: Mapping[str, str], gpus: Sequence[GpuState]) -> Context:
    """The same with what the launcher knows: the engine's release and environment, and what the GPUs hold now. Which of
    several GPUs the start was on is not known here, so other processes are only those of a machine with one.
    """
    alone = gpus[0] if len(gpus) == 1 else None
    held = [Holder(p.pid, p.name, p.used_bytes or 0) for p in alone.processes] if alone is not None else []
    return msgspec.structs.replace(
        context,
        version=str(command.entry.version) if command.entry.version is not None else context.version,
        environment=dict(env) | command.env,
        all_free_bytes=tuple(gpu.free_bytes for gpu in gpus),
        free_bytes=alone.free_bytes if alone is not None else None,
        others=tuple(held),
    )


def _request(load: dict[str, Any], of: Callable[[Any], int | None]) -> int | None:
    """Prompt, template and output of one request; None where either is not stated."""
    prompt, output = of(load.get("prompt_tokens")), of(load.get("output_tokens"))
    if prompt is None or output is None:
        return None
    template = load.get("chat_template_tokens")
    return int(prompt + output + (template if isinstance(template, int) else 0))


def _longest(lengths: Any) -> int | None:
    known = [lengths[name] for name in _LENGTHS if lengths.get(name) is not None] if isinstance(lengths, dict) else []
    return max(known, default=None)


def _p95(lengths: Any) -> int | None:
    if not isinstance(lengths, dict):
        return None
    return lengths.get("p95") if lengths.get("p95") is not None else lengths.get("max")
