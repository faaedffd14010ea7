"""Out-of-memory messages of torch, and where they happened."""

from __future__ import annotations

import pytest

from launch.log_lines import read_lines
from launch.oom import OutOfMemory, frames_above, read_oom, stage_of
from launch.progress import Phase

MIB, GIB = 1024**2, 1024**3


def test_the_new_wording() -> None:
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 304.00 MiB. GPU 1 has a total capacity of "
        "23.52 GiB of which 212.69 MiB is free. Process 77 has 1.50 GiB memory in use. Including non-PyTorch memory, "
        "this process has 21.80 GiB memory in use. Of the allocated memory 21.30 GiB is allocated by PyTorch, with "
        "72.00 MiB allocated in private pools (e.g., CUDA Graphs), and 2.22 GiB is reserved by PyTorch but unallocated."
    )
    assert read_oom(text) == OutOfMemory(
        wanted_bytes=304 * MIB,
        device=1,
        total_bytes=round(23.52 * GIB),
        free_bytes=round(212.69 * MIB),
        allocated_bytes=round(21.30 * GIB),
        unallocated_bytes=round(2.22 * GIB),
        others=((77, round(1.5 * GIB)),),
    )


def test_the_old_wording() -> None:
    text = (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 16.00 GiB (GPU 0; 44.53 GiB total capacity;"
        " 43.67 GiB already allocated; 458.31 MiB free; 43.70 GiB reserved in total by PyTorch)"
    )
    says = read_oom(text)
    assert (says.wanted_bytes, says.total_bytes) == (16 * GIB, round(44.53 * GIB))
    assert (says.allocated_bytes, says.free_bytes) == (round(43.67 * GIB), round(458.31 * MIB))
    assert says.short_bytes == 16 * GIB - round(458.31 * MIB)


def test_the_cpu_s_wording() -> None:
    text = "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."
    assert read_oom(text).wanted_bytes == 4096


def test_another_text_says_nothing() -> None:
    assert read_oom("out of memory") == OutOfMemory()
    assert OutOfMemory(wanted_bytes=5).short_bytes is None
    assert OutOfMemory(wanted_bytes=5, free_bytes=9).short_bytes == 0


@pytest.mark.parametrize(
    ("frames", "phase", "stage"),
    [
        (["load_model", "load_weights"], Phase.KV_POOL, "loading"),
        (["determine_available_memory", "profile_run", "_dummy_run"], Phase.LOADING, "profiling"),
        (["determine_available_memory", "profile_run", "_dummy_sampler_run"], Phase.PROFILING, "sampler"),
        (["determine_available_memory", "profile_cudagraph_memory", "capture"], Phase.PROFILING, "profiling"),
        (["determine_available_memory", "profile_run", "embed_multimodal"], Phase.PROFILING, "encoder"),
        (["initialize_from_config", "initialize_kv_cache", "_allocate_kv_cache_tensors"], Phase.KV_POOL, "kv"),
        (["compile_or_warm_up_model", "capture_model"], Phase.KV_POOL, "graphs"),
        (["run_busy_loop", "execute_model"], Phase.READY, "running"),
        (["execute_model", "_get_prompt_logprobs_dict"], Phase.READY, "logprobs"),
        ([], Phase.LOADING, "loading"),
        ([], Phase.COMPILING, "profiling"),
        ([], Phase.KV_POOL, "kv"),
        ([], Phase.GRAPHS, "graphs"),
        ([], Phase.STARTING_SERVER, "warm-up"),
        ([], Phase.READY, "running"),
    ],
)
def test_the_traceback_tells_the_place_before_the_phase_does(frames: list[str], phase: Phase, stage: str) -> None:
    assert stage_of(frames, phase) == stage


def test_frames_are_those_of_the_same_process_and_traceback() -> None:
    lines = read_lines(
        [
            "(Worker_TP0 pid=1) ERROR 01-01 00:00:00 [a.py:1] Traceback (most recent call last):",
            '(Worker_TP0 pid=1) ERROR 01-01 00:00:00 [a.py:1]   File "/a.py", line 1, in load_model',
            "(Worker_TP0 pid=1) ERROR 01-01 00:00:00 [a.py:1] Traceback (most recent call last):",
            '(Worker_TP0 pid=1) ERROR 01-01 00:00:00 [a.py:1]   File "/a.py", line 1, in execute_model',
            '(Worker_TP1 pid=2) ERROR 01-01 00:00:00 [a.py:1]   File "/a.py", line 1, in capture_model',
            "(Worker_TP0 pid=1) ERROR 01-01 00:00:00 [a.py:1] torch.OutOfMemoryError: CUDA out of memory.",
        ]
    )
    assert frames_above(lines, 5) == ["execute_model"]
