"""Before a start: shared memory for several ranks, RAM for what is loaded, room on the disks that are written."""

from __future__ import annotations

from pathlib import Path

from advisor.plan_types import Finding, Severity
from advisor.units import GIB, MIB, gib
from launch.host import Host

_SHM = "/dev/shm"  # noqa: S108  the kernel's shared memory
_CONTAINER_DEFAULT_BYTES = 64 * MIB
_COMFORTABLE_SHM_BYTES = GIB
_PROCESSES_BYTES = 2 * GIB  # the server, the engine and a worker, without weights and cache: 1.9 GiB of vLLM 0.32
_LOG_BYTES = 64 * MIB


def check_shared_memory(host: Host, *, n_ranks: int) -> list[Finding]:
    """Ranks on one machine exchange data through /dev/shm, which a container limits to 64 MiB by default."""
    if n_ranks < 2:
        return []
    space = host.space(Path(_SHM))
    if space is None or space.total_bytes >= _COMFORTABLE_SHM_BYTES:
        return []
    in_container = host.is_container
    return [
        _finding(
            "container-shm",
            "error" if space.total_bytes <= _CONTAINER_DEFAULT_BYTES else "warning",
            f"{_SHM} has {space.total_bytes / MIB:.0f} MiB for {n_ranks} ranks; they want 1 GiB or more",
            "run the container with --ipc=host or --shm-size=16g (Kubernetes: an emptyDir with medium Memory)"
            if in_container
            else f"mount -o remount,size=16g {_SHM}",
            "NCCL; production-stack#276, vllm#1710",
        )
    ]


def check_memory(
    host: Host, *, is_cpu: bool, weights_bytes: int | None, kv_cache_bytes: int | None, offload_bytes: int = 0
) -> list[Finding]:
    """RAM and the cgroup's limit against what the engine will hold there; where it is too little, the kernel kills it.

    On a GPU the weights only pass through the file cache, so they count as far as they stay (cpu_offload_gb).
    """
    available = host.available_bytes
    if available is None:
        return []
    held = (weights_bytes or 0) + (kv_cache_bytes or 0) if is_cpu else offload_bytes
    if held + _PROCESSES_BYTES <= available:
        return []
    parts = (
        f"weights {gib(weights_bytes or 0)} and KV cache {gib(kv_cache_bytes or 0)}" if is_cpu else "offloaded weights"
    )
    return [
        _finding(
            "oom-host",
            "error" if held > available else "warning",
            f"{gib(available)} of memory are available here, and the engine holds {gib(held)} ({parts}) besides "
            f"some {gib(_PROCESSES_BYTES)} of its own",
            "free memory, raise the container's limit, or plan for less"
            if host.is_container
            else "free memory, or plan for less",
            "/proc/meminfo and cgroup limits",
        )
    ]


def check_disk(
    host: Host, *, log_path: Path | None, download_to: Path | None, download_bytes: int | None
) -> list[Finding]:
    """Room for the log, and for a model that is not here yet."""
    found = []
    log = host.space(log_path.parent) if log_path is not None else None
    if log is not None and log.free_bytes < _LOG_BYTES:
        found.append(
            _finding(
                "disk-full",
                "warning",
                f"{gib(log.free_bytes)} are free where the log goes, {log_path}",
                "free some, or name another place with --log",
                "statvfs",
            )
        )
    there = host.space(download_to) if download_to is not None else None
    if there is not None and download_bytes and there.free_bytes < download_bytes:
        found.append(
            _finding(
                "disk-full",
                "error",
                f"the model's {gib(download_bytes)} are still to be downloaded, and {gib(there.free_bytes)} are free "
                f"in {download_to}",
                "free some, or point HF_HOME at a larger disk",
                "statvfs",
            )
        )
    return found


def _finding(code: str, severity: Severity, message: str, remedy: str, source: str) -> Finding:
    return Finding(code=code, severity=severity, message=message, remedy=remedy, source=source)
