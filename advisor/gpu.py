"""What one GPU is, as far as memory and vLLM's defaults are concerned."""

from __future__ import annotations

from typing import Literal

import msgspec

from advisor.estimate import Estimate

CPU_INSTRUCTIONS = frozenset({"avx512_bf16", "amx_tile"})  # as /proc/cpuinfo names them


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One device and how many of it there are.

    `total_bytes` is what CUDA reports (cudaMemGetInfo), which is less than the marketing figure and than nvidia-smi's;
    vLLM multiplies gpu_memory_utilization by it. `free_bytes` is what is free at start on an idle card, CUDA context
    of the process included. Both carry the band seen between drivers.
    """

    name: str  # catalogue name, as printed
    device_name: str  # what the driver reports; vLLM reads "a100" in it
    vendor: Literal["nvidia", "amd", "intel", "cpu"]
    compute_capability: tuple[int, int] | None  # NVIDIA's; None for other vendors
    count: int = 1
    total_bytes: Estimate
    free_bytes: Estimate
    bandwidth_bytes_per_s: float | None = None
    flops: dict[str, float] = {}  # dense, per dtype ("fp16", "bf16", "fp8", "int8", "fp4"); absent = unknown
    unified_memory: bool = False  # shares the host's memory (GB10, Jetson, CPU)
    nvlink_bytes_per_s: float | None = None
    arch: str = ""
    instructions: frozenset[str] | None = None  # a CPU's, of those vLLM asks for (CPU_INSTRUCTIONS); None: not known
    source: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_cpu(self) -> bool:
        """Whether the device is the CPU backend's."""
        return self.vendor == "cpu"
