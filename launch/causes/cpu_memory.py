"""The CPU backend's memory: a share of one node's, unless the pool is stated in bytes."""

from __future__ import annotations

import re

from launch.diagnosis_types import Advice, Rule, Seen
from launch.levers import free_share, from_gib


def _cpu_share(seen: Seen) -> Advice:
    """The CPU backend takes a share of the node's memory unless the pool is stated in bytes."""
    available, total, share = (float(seen.match[name]) for name in ("available", "total", "share"))
    planned = seen.case.context.planned_kv_bytes
    message = (
        f"{available:.2f} of {total:.2f} GiB are available on the node, and gpu_memory_utilization {share} asks for "
        "more (on the CPU it is a share of the memory)"
    )
    if planned is not None:
        return Advice(
            message=message,
            remedy=f"state the pool: kv_cache_memory_bytes {planned}; the share is then not looked at",
            change={"kv_cache_memory_bytes": planned},
            signals=("both sizes of the error", "the plan's pool"),
        )
    lower = free_share(from_gib(total), int(from_gib(available) * 0.9)) if total > 0 else None
    return Advice(
        message=message,
        remedy=f"set gpu_memory_utilization to {lower}, or state the pool with kv_cache_memory_bytes"
        if lower
        else "free memory on the node, or state the pool with kv_cache_memory_bytes",
        change={"gpu_memory_utilization": lower} if lower else None,
        signals=("both sizes of the error",),
    )


def _cpu_pool(seen: Seen) -> Advice:
    available, wanted = float(seen.match["available"]), float(seen.match["wanted"])
    fits = int(from_gib(available) * 0.9) // 2**20 * 2**20
    return Advice(
        message=f"the KV cache wants {wanted:.2f} GiB and the node has {available:.2f} GiB left",
        remedy=f"set kv_cache_memory_bytes to {fits}" if fits else "free memory on the node",
        change={"kv_cache_memory_bytes": fits} if fits else None,
        signals=("both sizes of the error",),
    )


def _numa_nodes(seen: Seen) -> Advice:
    """Ranks are bound to a memory node each, unless threads are bound by hand."""
    ranks, nodes = int(seen.match[1]), len(re.findall(r"\d+", seen.match[2]))
    fits = nodes if seen.case.flag("tensor_parallel_size") == ranks and nodes else None
    return Advice(
        message=f"{ranks} ranks on the CPU need a memory node each, and this process may use {nodes}",
        remedy=(f"set tensor_parallel_size to {fits}" if fits else "use fewer ranks")
        + ", or bind threads by hand (VLLM_CPU_OMP_THREADS_BIND)",
        change={"tensor_parallel_size": fits} if fits else None,
        signals=("both counts of the error",),
    )


RULES: tuple[Rule, ...] = (
    Rule(
        codes=("cpu-memory-utilization",),
        hint="cpu memory utilization",
        pattern=re.compile(
            r"Available memory on node \d+ \((?P<available>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less than "
            r"desired CPU memory utilization \((?P<share>[\d.]+), [\d.]+ GiB\)"
        ),
        explain=_cpu_share,
        source="vLLM v1/worker/cpu_worker.py",
        rank=20,
    ),
    Rule(
        codes=("cpu-kv-memory",),
        hint="on kv cache allocation",
        pattern=re.compile(
            r"Available memory on node \d+ \((?P<available>[\d.]+)/[\d.]+ GiB\) on kv cache allocation is less than "
            r"requested memory for kv \((?P<wanted>[\d.]+)"
        ),
        explain=_cpu_pool,
        source="vLLM v1/worker/cpu_worker.py",
        rank=20,
    ),
    Rule(
        codes=("cpu-numa-nodes",),
        hint="numa nodes to bind threads",
        pattern=re.compile(
            r"Not enough allowed NUMA nodes to bind threads of (\d+) local CPUWorkers\. Allowed NUMA nodes are "
            r"\[([\d, ]*)\]"
        ),
        explain=_numa_nodes,
        source="vLLM utils/ompmultiprocessing.py: _get_autobind_cpu_ids",
        rank=8,
    ),
)
