"""How far a start has come, from its log: a small state machine that a progress bar reads.

Phases follow vLLM's order (v1/engine/core.py `_initialize_kv_caches`, v1/worker/gpu_worker.py): arguments and config,
download, weights, compile, profile, KV pool, graph capture, server. The first model runner may compile or capture a few
graphs while it profiles, so a phase may come back; what is shown is the latest line's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum

import msgspec

from launch.log_lines import LogLine


class Phase(IntEnum):
    """Where a start is; the numbers only order them."""

    BEGINNING = 0
    CONFIGURING = 1
    DOWNLOADING = 2
    LOADING = 3
    COMPILING = 4
    PROFILING = 5
    KV_POOL = 6
    GRAPHS = 7
    STARTING_SERVER = 8
    READY = 9


TEXT = {
    Phase.BEGINNING: "waiting for the engine's first line",
    Phase.CONFIGURING: "reading the model's config",
    Phase.DOWNLOADING: "downloading the model",
    Phase.LOADING: "loading weights",
    Phase.COMPILING: "compiling",
    Phase.PROFILING: "profiling memory",
    Phase.KV_POOL: "setting up the KV cache",
    Phase.GRAPHS: "capturing CUDA graphs",
    Phase.STARTING_SERVER: "starting the server",
    Phase.READY: "ready",
}


class Progress(msgspec.Struct, frozen=True):
    """The phase, how much of it is done where the log counts (`done` of `total`, None where it does not), and how many
    lines showed an advance: a start that stands still keeps this number."""

    phase: Phase = Phase.BEGINNING
    done: int | None = None
    total: int | None = None
    advances: int = 0

    @property
    def text(self) -> str:
        """The phase in words, with its count."""
        words = TEXT[self.phase]
        return f"{words} {self.done}/{self.total}" if self.total else words

    @property
    def fraction(self) -> float | None:
        """Share of the phase that is done; None where nothing counts it."""
        if self.done is None or not self.total:
            return None
        return min(1.0, self.done / self.total)


_COUNT = re.compile(r"(?<![\d.])(\d{1,9})/(\d{1,9})(?![\d.]*[KMGT]?i?B)\b")
_PERCENT = re.compile(r"(?<![\d.])(\d{1,3})%")

# (what the line holds, the phase it is in, whether it counts)
_SIGNS: tuple[tuple[re.Pattern[str], Phase, bool], ...] = tuple(
    (re.compile(pattern), phase, counts)
    for pattern, phase, counts in (
        (r"Application startup complete", Phase.READY, False),
        (
            r"Starting vLLM (?:API )?server on|Started server process|Uvicorn running on|Available routes are",
            Phase.STARTING_SERVER,
            False,
        ),
        (r"init engine \(profile, create kv cache, warmup model\) took", Phase.STARTING_SERVER, False),
        (r"Capturing (?:[\w-]+ ){0,3}CUDA graph", Phase.GRAPHS, True),
        (r"Graph capturing finished", Phase.GRAPHS, False),
        (r"Warming up (?:model for the compilation|FlashInfer|.*kernels)|warming up sampler", Phase.GRAPHS, False),
        (r"KV cache size: [\d,]+ tokens|# \w+ blocks: \d+, # CPU blocks", Phase.KV_POOL, False),
        (r"KV cache on node \d|GiB memory for KV Cache as specified", Phase.KV_POOL, False),
        (r"Available KV cache memory:|KV Cache is [\d.]+ ?GiB", Phase.KV_POOL, False),
        (
            r"Profiling CUDA graph memory|Encoder cache will be initialized|Memory profiling takes",
            Phase.PROFILING,
            False,
        ),
        (
            r"Dynamo bytecode transform time|Compiling a graph for|torch\.compile (?:took|takes)"
            r"|Starting torch\.compile|Using cache directory: .* for vLLM's torch|Directly load the compiled graph",
            Phase.COMPILING,
            False,
        ),
        (r"[Mm]odel loading took|Loading weights took", Phase.PROFILING, False),
        (
            r"Loading (?:safetensors|pt|np_cache|\w+) (?:checkpoint )?shards|Multi-thread loading shards"
            r"|Loading safetensors using",
            Phase.LOADING,
            True,
        ),
        (r"Starting to load model|Loading model from scratch|Checkpoint size: ", Phase.LOADING, False),
        (
            r"\.(?:safetensors|bin|gguf|pt): +\d{1,3}%|Fetching \d+ files|Downloading .*%|downloading weights",
            Phase.DOWNLOADING,
            True,
        ),
        (
            r"non-default args|server version|Resolved architecture|Initializing an? V[01] LLM engine",
            Phase.CONFIGURING,
            False,
        ),
    )
)


def progress(lines: Iterable[LogLine]) -> Progress:
    """The progress after all these lines."""
    state = Progress()
    for line in lines:
        state = advance(state, line)
    return state


def advance(state: Progress, line: LogLine) -> Progress:
    """The progress after one more line; the same object where the line tells nothing."""
    if state.phase is Phase.READY:
        return state
    for pattern, phase, counts in _SIGNS:
        if pattern.search(line.text) is None:
            continue
        if phase < state.phase and not _may_return(state.phase, phase):
            return state
        done, total = _counted(line.text) if counts else (None, None)
        if (phase, done, total) == (state.phase, state.done, state.total):
            return state
        return Progress(phase, done, total, state.advances + 1)
    return state


def _may_return(now: Phase, to: Phase) -> bool:
    """A draft model is loaded after the first; graphs are profiled before the pool is known; ranks differ in pace."""
    return (Phase.LOADING <= to < Phase.STARTING_SERVER and now < Phase.STARTING_SERVER and now - to <= 2) or (
        now is Phase.GRAPHS and to is Phase.KV_POOL
    )


def _counted(text: str) -> tuple[int | None, int | None]:
    """`i/n` of a progress bar, or its percentage of 100."""
    count = _COUNT.search(text)
    if count is not None and int(count[2]) > 0 and int(count[1]) <= int(count[2]):
        return int(count[1]), int(count[2])
    percent = _PERCENT.search(text)
    return (int(percent[1]), 100) if percent is not None and int(percent[1]) <= 100 else (None, None)
