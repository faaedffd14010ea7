"""What of a plan a verdict is held against."""

from __future__ import annotations

from advisor.plan_types import Plan
from verify.record.types import Planned


def planned_of(plan: Plan) -> Planned:
    """The figures a run is compared with; None where the plan gives none."""
    kv, held, memory, flags = plan.kv, plan.concurrency, plan.memory, plan.flags
    length, seqs, utilisation = (
        flags.get("max_model_len"), flags.get("max_num_seqs"), flags.get("gpu_memory_utilization"),
    )  # fmt: skip
    is_cpu = plan.subject is not None and plan.subject.gpu.lower().startswith("cpu")
    return Planned(
        inputs_sha256=plan.inputs_sha256,
        outcome=plan.outcome,
        num_blocks=kv.num_blocks if kv is not None else None,
        num_blocks_low=kv.num_blocks_low if kv is not None else None,
        num_blocks_high=kv.num_blocks_high if kv is not None else None,
        block_size=kv.block_size if kv is not None else None,
        capacity_tokens=kv.capacity_tokens if kv is not None else None,
        max_concurrency=kv.max_concurrency if kv is not None else None,
        max_model_len=length if isinstance(length, int) and length > 0 else None,
        max_num_seqs=seqs if isinstance(seqs, int) else None,
        kv_cache_bytes=memory.kv_cache_bytes.value if memory is not None else None,
        at_p95=held.at_p95 if held is not None else None,
        promised=held.promised if held is not None else None,
        blocks_per_request=held.blocks_per_request if held is not None else None,
        flags=dict(flags),
        vllm_version=plan.subject.vllm_version if plan.subject is not None else None,
        gpu_total_bytes=memory.total_bytes.value if memory is not None and not is_cpu else None,
        outside_budget_bytes=memory.outside_budget_bytes.value if memory is not None and not is_cpu else None,
        gpu_memory_utilization=float(utilisation) if isinstance(utilisation, (int, float)) and not is_cpu else None,
    )
