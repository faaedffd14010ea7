"""Before a start on the CPU: what its environment would make of the plan, and a memory node for each rank."""

from __future__ import annotations

import re

from advisor.plan_types import Finding
from advisor.units import GIB, gib
from launch.host import Host

_SPACE = "VLLM_CPU_KVCACHE_SPACE"
_BIND = "VLLM_CPU_OMP_THREADS_BIND"
_SIMULATE = "VLLM_CPU_SIM_MULTI_NUMA"


def check_cpu(host: Host, *, kv_cache_bytes: int | None, n_ranks: int) -> list[Finding]:
    """`host.env` is the engine's; `kv_cache_bytes` is the pool that its command states."""
    return [*_pool(host, kv_cache_bytes), *_nodes(host, n_ranks)]


def _pool(host: Host, kv_cache_bytes: int | None) -> list[Finding]:
    """The variable takes the place of --kv-cache-memory-bytes (vLLM 0.32 platforms/cpu.py, check_and_update_config)."""
    stated = host.env.get(_SPACE, "")
    if not stated or kv_cache_bytes is None:
        return []
    if stated.isdecimal() and int(stated) * GIB == kv_cache_bytes:
        return []
    takes = f"{stated} GiB" if stated.isdecimal() else f"{stated!r}, which is no whole number of GiB"
    return [
        _finding(
            "pool-overridden",
            f"{_SPACE} sets the KV cache to {takes}, whatever the command says, and the plan has {gib(kv_cache_bytes)}",
            f"unset {_SPACE}",
            "vLLM platforms/cpu.py",
        )
    ]


def _nodes(host: Host, n_ranks: int) -> list[Finding]:
    """Each rank is bound to a memory node of its own (utils/ompmultiprocessing.py, _get_autobind_cpu_ids)."""
    n_nodes = _count(re.search(r"^Mems_allowed_list:\s*(\S+)", host.text("/proc/self/status") or "", re.MULTILINE))
    is_by_hand = host.env.get(_BIND, "auto") != "auto" or host.env.get(_SIMULATE, "0") != "0"
    if n_ranks < 2 or n_nodes is None or n_nodes >= n_ranks or is_by_hand:
        return []
    return [
        _finding(
            "cpu-numa-nodes",
            f"{n_ranks} ranks on the CPU need a memory node each, and this process may use {n_nodes}",
            f"plan for {n_nodes} rank{'s' if n_nodes > 1 else ''}, or bind threads by hand ({_BIND})",
            "vLLM utils/ompmultiprocessing.py",
        )
    ]


def _count(found: re.Match[str] | None) -> int | None:
    """How many numbers a list such as `0-1,4` has; None where there is none."""
    if found is None:
        return None
    ends = [part.split("-") for part in found[1].split(",")]
    if not all(end.isdecimal() for part in ends for end in part):
        return None
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ends)


def _finding(code: str, message: str, remedy: str, source: str) -> Finding:
    return Finding(code=code, severity="error", message=message, remedy=remedy, source=source)
