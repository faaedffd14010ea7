"""How far a start has come, line by line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch.log_lines import read_line, read_lines
from launch.progress import TEXT, Phase, Progress, advance, progress

A_GPU_START = [
    ("INFO 10-02 08:00:00 [api_server.py:1] vLLM API server version 0.11.0", Phase.CONFIGURING, None),
    ("INFO 10-02 08:00:05 [model.py:1] Resolved architecture: LlamaForCausalLM", Phase.CONFIGURING, None),
    ("model-00001-of-00004.safetensors:  42%|####  | 2.1G/4.98G [00:21<00:29]", Phase.DOWNLOADING, (42, 100)),
    ("INFO 10-02 08:02:00 [gpu_model_runner.py:1] Starting to load model meta/llama...", Phase.LOADING, None),
    ("Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:02<00:02, 1.0it/s]", Phase.LOADING, (2, 4)),
    ("Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:04<00:00, 1.0it/s]", Phase.LOADING, (4, 4)),
    ("INFO [gpu_model_runner.py:1] Model loading took 14.9889 GiB and 4.5 seconds", Phase.PROFILING, None),
    ("INFO 10-02 08:02:10 [backends.py:1] Dynamo bytecode transform time: 5.1 s", Phase.COMPILING, None),
    ("INFO 10-02 08:02:40 [monitor.py:34] torch.compile takes 25.2 s in total", Phase.COMPILING, None),
    ("INFO 10-02 08:02:45 [gpu_worker.py:1] Available KV cache memory: 54.01 GiB", Phase.KV_POOL, None),
    ("INFO 10-02 08:02:46 [kv_cache_utils.py:1] GPU KV cache size: 442,464 tokens", Phase.KV_POOL, None),
    ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  52%|#####  | 35/67 [00:02]", Phase.GRAPHS, (35, 67)),
    ("INFO [gpu_model_runner.py:1] Graph capturing finished in 5 secs, took 0.60 GiB", Phase.GRAPHS, None),
    (
        "INFO [core.py:218] init engine (profile, create kv cache, warmup model) took 61.20 seconds",
        Phase.STARTING_SERVER,
        None,
    ),
    ("INFO:     Application startup complete.", Phase.READY, None),
]


def test_a_start_goes_through_its_phases() -> None:
    state, advances = Progress(), []
    for number, (text, phase, counted) in enumerate(A_GPU_START, 1):
        state = advance(state, read_line(number, text))
        assert state.phase is phase, text
        assert (state.done, state.total) == (counted or (None, None)), text
        advances.append(state.advances)
    assert advances == sorted(advances)
    assert advances[-1] >= len(set(Phase)) - 1


def test_a_bar_has_a_fraction_and_words() -> None:
    state = progress(read_lines([A_GPU_START[4][0]]))
    assert state.fraction == 0.5
    assert state.text == "loading weights 2/4"
    assert Progress().fraction is None
    assert Progress().text == TEXT[Phase.BEGINNING]


def test_a_line_that_tells_nothing_is_no_advance() -> None:
    state = progress(read_lines([A_GPU_START[4][0]]))
    assert advance(state, read_line(9, "some other line")) is state
    assert advance(state, read_line(9, A_GPU_START[4][0])) is state


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("Capturing CUDA graph shapes: 100%|##########| 67/67 [00:20<00:00]", Phase.GRAPHS),
        ("Capturing CUDA graph shapes:  25%|##  | 9/35 [00:05<00:15]", Phase.GRAPHS),
        ("Capturing eagle CUDA graphs (FULL):  25%|##  | 9/35 [00:05<00:15]", Phase.GRAPHS),
        ("Capturing multi-module MTP CUDA graphs (FULL):  25%|##  | 9/35", Phase.GRAPHS),
        ("Loading pt checkpoint shards:  50% Completed | 1/2 [00:02<00:02]", Phase.LOADING),
        ("Loading safetensors using Runai Model Streamer:   3% Completed | 9/291", Phase.LOADING),
        (
            "INFO 12-01 00:55:41 [cpu_worker.py:260] Explicitly set (0.06/11.09) GiB for KV cache on node 0.",
            Phase.KV_POOL,
        ),
        ("INFO 01-02 03:04:05 [worker.py:2] # cuda blocks: 1952, # CPU blocks: 2048", Phase.KV_POOL),
        ("INFO 01-02 [backends.py:430] Compiling a graph for dynamic shape takes 21.1 s", Phase.COMPILING),
    ],
)
def test_wordings_of_other_releases(text: str, phase: Phase) -> None:
    assert progress(read_lines([text])).phase is phase


def test_what_the_server_says_once_it_is_ready_changes_nothing() -> None:
    state = progress(read_lines([text for text, _, _ in A_GPU_START]))
    assert advance(state, read_line(99, A_GPU_START[3][0])).phase is Phase.READY


def test_a_draft_model_is_loaded_after_the_first() -> None:
    lines = [A_GPU_START[i][0] for i in (3, 6, 3)]
    assert progress(read_lines(lines)).phase is Phase.LOADING


@given(st.lists(st.text(max_size=120), max_size=20))
def test_any_text_is_a_state(lines: list[str]) -> None:
    state = progress(read_lines(lines))
    assert 0 <= state.advances <= len(lines)
    assert state.total is None or state.done is not None
