"""Which GPUs an engine gets: those with most free memory, of one kind, named so that CUDA counts as NVML does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from launch.gpu_state import GpuState


class GpuChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs chosen, in NVML's order, and the variables that make CUDA see just these."""

    gpus: tuple[GpuState, ...]
    env: dict[str, str] = {}

    @property
    def uuids(self) -> tuple[str, ...]:
        """Their UUIDs."""
        return tuple(gpu.uuid for gpu in self.gpus)


def choose_gpus(
    states: Sequence[GpuState], n_gpus: int, env: Mapping[str, str], *, avoid: Collection[str] = ()
) -> GpuChoice:
    """`n_gpus` of those that CUDA_VISIBLE_DEVICES leaves (all where there are too few): of one kind where possible,
    then by most free memory on the fullest of them; one on which another start loads (`avoid`) only if need be.
    """
    seen = visible(states, env.get("CUDA_VISIBLE_DEVICES"))
    by_kind: dict[tuple[str, int], list[GpuState]] = {}
    for gpu in seen:
        by_kind.setdefault((gpu.name, round(gpu.total_bytes / 2**30)), []).append(gpu)
    sets = [_best(kind, n_gpus, avoid) for kind in by_kind.values() if len(kind) >= n_gpus]
    sets = sets or [_best(seen, n_gpus, avoid)]
    best = max(sets, key=lambda chosen: _worth(chosen, avoid)) if sets[0] else []
    chosen = tuple(sorted(best, key=lambda gpu: (gpu.index, gpu.uuid)))
    return GpuChoice(gpus=chosen, env=_variables(chosen))


def visible(states: Sequence[GpuState], chosen: str | None) -> list[GpuState]:
    """CUDA_VISIBLE_DEVICES as CUDA reads it: indices or starts of UUIDs, up to the first that fits nothing."""
    if chosen is None:
        return list(states)
    found: list[GpuState] = []
    for word in (part.strip() for part in chosen.split(",")):
        if word.isdecimal():
            fitting = [gpu for gpu in states if gpu.index == int(word)]
        else:
            fitting = [gpu for gpu in states if word and gpu.uuid.startswith(word)][:1]
        if not fitting:
            break
        found += [gpu for gpu in fitting if gpu not in found]
    return found


def _best(gpus: Sequence[GpuState], n_gpus: int, avoid: Collection[str]) -> list[GpuState]:
    return sorted(gpus, key=lambda gpu: (gpu.uuid in avoid, -gpu.free_bytes, gpu.index))[:n_gpus]


def _worth(chosen: Sequence[GpuState], avoid: Collection[str]) -> tuple[int, int, int]:
    busy = sum(gpu.uuid in avoid for gpu in chosen)
    return -busy, min(gpu.free_bytes for gpu in chosen), -min(gpu.index for gpu in chosen)


def _variables(chosen: Sequence[GpuState]) -> dict[str, str]:
    """Indices in PCI order: some releases of vLLM read no UUID. A MIG slice has no index of its own (vllm#41848)."""
    if not chosen:
        return {}
    names = [gpu.uuid if gpu.is_slice else str(gpu.index) for gpu in chosen]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
