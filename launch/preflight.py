"""Everything that can be known to be wrong before a weight is read, all of it at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from advisor.estimate import Estimate
from advisor.plan_types import Finding, Plan
from launch.check_cpu import check_cpu
from launch.check_gpu import check_gpus
from launch.check_host import check_disk, check_memory, check_shared_memory
from launch.check_model import check_model, to_download
from launch.check_ports import check_ports
from launch.engine_command import EngineCommand, environment_of, option_value
from launch.engine_flags import check_flags
from launch.gpu_choice import GpuChoice, choose_gpus, visible
from launch.gpu_state import GpuReader, read_gpus
from launch.host import Host, this_host
from launch.hub_cache import hub_cache
from launch.ports import PortState, ask_port

_ORDER = {"error": 0, "warning": 1, "note": 2}
_GIB = 2**30


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a start takes of this machine. Bytes are those of one rank; None where the plan does not know."""

    is_cpu: bool
    n_ranks: int = 1
    utilization: float | None = None
    total_bytes: Estimate | None = None
    weights_bytes: int | None = None
    kv_cache_bytes: int | None = None
    offload_bytes: int = 0


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """The findings, worst first, and the GPUs chosen, whose variables go into the engine's environment."""

    findings: tuple[Finding, ...]
    choice: GpuChoice

    @property
    def is_clear(self) -> bool:
        """Whether nothing stands against the start."""
        return all(finding.severity != "error" for finding in self.findings)


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks look at. A test hands in its own."""

    host: Host
    read_gpus: GpuReader
    ask_port: Callable[[str, int], PortState]
    check_flags: Callable[..., tuple[Finding, ...]] = check_flags


def real_surroundings(env: Mapping[str, str]) -> Surroundings:
    """This machine, with this environment."""
    return Surroundings(host=this_host(env), read_gpus=read_gpus, ask_port=ask_port)


def needs_of(command: EngineCommand, plan: Plan | None = None) -> Needs:
    """What a command takes: its arguments say the ranks and the share, the plan how large things are."""
    words = command.argv
    memory = plan.memory if plan is not None else None
    kv_bytes = option_value(words, "--kv-cache-memory-bytes")
    ranks = 1
    for name in ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"):
        stated = option_value(words, name) or "1"
        ranks *= int(stated) if stated.isdecimal() else 1
    n_nodes = option_value(words, "--nnodes") or "1"
    offload = _number(option_value(words, "--cpu-offload-gb"))
    is_cpu = "cpu" in command.entry.package if plan is None or plan.subject is None else plan.subject.gpu == "CPU"
    return Needs(
        is_cpu=is_cpu,
        n_ranks=max(1, ranks // int(n_nodes) if n_nodes.isdecimal() and n_nodes != "0" else ranks),
        utilization=_number(option_value(words, "--gpu-memory-utilization")),
        total_bytes=memory.total_bytes if memory is not None else None,
        weights_bytes=memory.weights_bytes.value if memory is not None else None,
        kv_cache_bytes=int(kv_bytes) if kv_bytes is not None and kv_bytes.isdecimal() else None,
        offload_bytes=round((offload or 0.0) * _GIB) * ranks,
    )


def choose(needs: Needs, around: Surroundings, command: EngineCommand, *, avoid: Collection[str] = ()) -> GpuChoice:
    """The GPUs a start gets, none for the CPU or where they cannot be seen; `avoid` those where another start loads."""
    if needs.is_cpu:
        return GpuChoice(gpus=())
    env = environment_of(command, around.host.env)
    return choose_gpus(around.read_gpus(), needs.n_ranks, env, avoid=avoid)


def preflight(
    command: EngineCommand, needs: Needs, around: Surroundings, choice: GpuChoice, *, log_path: Path | None = None
) -> Preflight:
    """Ask everything; no check hides another. The memory of the GPUs chosen is read anew."""
    env = environment_of(command, around.host.env)
    host = msgspec.structs.replace(around.host, env=env)
    downloads = to_download(command.model, command.argv, host)
    weights = needs.weights_bytes * needs.n_ranks if needs.weights_bytes is not None else None
    found = [
        *around.check_flags(command.entry, _flags(command), env),
        *check_ports(command, env, around.ask_port),
        *check_model(command.model, command.argv, host),
        *_gpus(needs, around, env, choice),
        *(check_cpu(host, kv_cache_bytes=needs.kv_cache_bytes, n_ranks=needs.n_ranks) if needs.is_cpu else ()),
        *check_shared_memory(host, n_ranks=needs.n_ranks),
        *check_memory(
            host,
            is_cpu=needs.is_cpu,
            weights_bytes=weights,
            kv_cache_bytes=needs.kv_cache_bytes,
            offload_bytes=needs.offload_bytes,
        ),
        *check_disk(host, log_path=log_path, download_to=hub_cache(env) if downloads else None, download_bytes=weights),
    ]
    return Preflight(findings=tuple(sorted(found, key=lambda finding: _ORDER[finding.severity])), choice=choice)


def _gpus(needs: Needs, around: Surroundings, env: Mapping[str, str], choice: GpuChoice) -> list[Finding]:
    if needs.is_cpu:
        return []
    states = around.read_gpus()
    if not states:
        return [
            Finding(
                code="gpu-unread",
                severity="note",
                message="NVML shows no GPU here: free memory and other processes on it were not looked at",
                remedy="install nvidia-ml-py where this is an NVIDIA GPU; for others none is needed",
                source="NVML",
            )
        ]
    now = msgspec.structs.replace(choice, gpus=tuple(gpu for gpu in states if gpu.uuid in choice.uuids))
    return check_gpus(
        now,
        n_gpus=needs.n_ranks,
        utilization=needs.utilization,
        total=needs.total_bytes,
        n_seen=len(visible(states, env.get("CUDA_VISIBLE_DEVICES"))),
    )


def _flags(command: EngineCommand) -> tuple[str, ...]:
    """The words behind the engine's own and the model."""
    skipped = len(command.entry.words) + (2 if command.entry.kind == "module" else 1)
    return command.argv[skipped:]


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
