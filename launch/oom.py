"""What an out-of-memory message says: sizes wanted, free, held, and by whom.

Wordings of torch (c10/cuda/CUDACachingAllocator.cpp and the CPU allocator), 1.13 to 2.11, CUDA and HIP.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from advisor.units import GIB, KIB, MIB
from launch.log_lines import LogLine
from launch.progress import Phase

_UNITS = {"bytes": 1, "B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB}
_SIZE = r"(\d+(?:\.\d+)?) (bytes|B|KiB|MiB|GiB|TiB)"


class OutOfMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes, as rounded in the message; None where it does not say. `others` are (pid, bytes)."""

    wanted_bytes: int | None = None
    device: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    allocated_bytes: int | None = None
    unallocated_bytes: int | None = None  # reserved by torch but not in use: fragmentation
    others: tuple[tuple[int, int], ...] = ()

    @property
    def short_bytes(self) -> int | None:
        """How much was missing; None where the message does not say, 0 where a free piece was only too small."""
        if self.wanted_bytes is None or self.free_bytes is None:
            return None
        return max(0, self.wanted_bytes - self.free_bytes)


_PATTERNS = {
    "wanted_bytes": (rf"[Tt]ried to allocate {_SIZE}", r"you tried to allocate (\d+) (bytes)"),
    "total_bytes": (rf"total capacity of {_SIZE}", rf"{_SIZE} total capacity"),
    "free_bytes": (rf"of which {_SIZE} is free", rf"; {_SIZE} free"),
    "allocated_bytes": (rf"{_SIZE} is allocated by PyTorch", rf"{_SIZE} already allocated"),
    "unallocated_bytes": (rf"{_SIZE} is reserved by PyTorch but unallocated",),
}
_COMPILED = {name: tuple(re.compile(p) for p in patterns) for name, patterns in _PATTERNS.items()}
_DEVICE = re.compile(r"\bGPU (\d{1,3})\b")
_OTHER = re.compile(rf"\bProcess (\d{{1,10}}) has {_SIZE} memory in use")


def read_oom(text: str) -> OutOfMemory:
    """The sizes of one message; everything None where the text is no such message."""
    sizes = {name: _first(patterns, text) for name, patterns in _COMPILED.items()}
    device = _DEVICE.search(text)
    return OutOfMemory(
        **sizes,
        device=int(device[1]) if device else None,
        others=tuple((int(m[1]), _bytes(m[2], m[3])) for m in _OTHER.finditer(text)),
    )


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    for pattern in patterns:
        match = pattern.search(text)
        if match is not None:
            return _bytes(match[1], match[2])
    return None


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS[unit])


# Where it happened, by the innermost telling function of the traceback above the message (any release).
_FRAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("sampler", ("_dummy_sampler_run", "_dummy_pooler_run")),
    ("encoder", ("get_multimodal_embeddings", "embed_multimodal", "profile_encoder", "_execute_mm_encoder")),
    ("graphs", ("capture_model", "_capture_cudagraphs", "capture_graph", "_capture", "capture")),
    ("kv", ("_allocate_kv_cache_tensors", "initialize_kv_cache", "allocate_kv_cache", "_allocate_kv_cache")),
    ("profiling", ("profile_run", "determine_available_memory", "profile_cudagraph_memory", "_dummy_run")),
    ("loading", ("load_model", "load_weights", "process_weights_after_loading", "initialize_model", "create_weights")),
    ("logprobs", ("_get_prompt_logprobs_dict", "compute_prompt_logprobs", "compute_logprobs", "gather_logprobs")),
    ("running", ("execute_model", "sample_tokens", "step", "step_with_batch_queue", "run_busy_loop")),
)
_STAGE_OF = {name: stage for stage, names in _FRAMES for name in names}
_FRAME = re.compile(r"File \"[^\"]*\", line \d+, in (\w+)")
_LOOK_BACK = 400


def frames_above(lines: Sequence[LogLine], index: int) -> list[str]:
    """The functions of the traceback that ends at a line, outermost first; of the same process where lines say it."""
    here, found = lines[index], list[str]()
    for line in reversed(lines[max(0, index - _LOOK_BACK) : index]):
        if line.speaker != here.speaker:
            continue
        if "Traceback (most recent call last)" in line.text:
            break
        match = _FRAME.search(line.text)
        if match is not None:
            found.append(match[1])
    return found[::-1]


def stage_of(frames: Sequence[str], phase: Phase) -> str:
    """Where memory ran out: by the traceback where it tells, else by how far the start had come."""
    told = [_STAGE_OF[name] for name in frames if name in _STAGE_OF]
    for stage in ("sampler", "encoder", "graphs", "logprobs"):
        if stage in told and not (stage == "graphs" and "profiling" in told):
            return stage
    if "kv" in told and "profiling" not in told:
        return "kv"
    for stage in ("profiling", "loading", "running"):
        if stage in told:
            return stage
    return _by_phase(phase)


def _by_phase(phase: Phase) -> str:
    if phase <= Phase.LOADING:
        return "loading"
    if phase <= Phase.PROFILING:
        return "profiling"
    if phase is Phase.KV_POOL:
        return "kv"
    if phase is Phase.GRAPHS:
        return "graphs"
    return "running" if phase is Phase.READY else "warm-up"
