"""The recommended arguments and the command line that carries them.

The eight that decide memory and parallelism are always written out, so that the plan does not change when a default
does; every pin follows as it was given.
"""

from __future__ import annotations

import json
from typing import Any

from advisor.errors import EngineRefuses
from advisor.sizing import Problem, Sized, size

ALWAYS = (
    "max_model_len",
    "gpu_memory_utilization",
    "max_num_seqs",
    "max_num_batched_tokens",
    "kv_cache_dtype",
    "block_size",
    "tensor_parallel_size",
    "pipeline_parallel_size",
)
_NOT_ARGUMENTS = ("vllm_version", "model")
_STORE_TRUE_ONLY = (0, 9)  # before it, many switches had no --no- form


def flags_of(problem: Problem, sized: Sized) -> dict[str, Any]:
    """Engine arguments by vLLM's own names: the eight, a stated pool, then the pins as given."""
    engine = sized.engine
    flags = {name: getattr(engine, name) for name in ALWAYS}
    flags["block_size"] = engine.block_size or sized.layout.block_size
    if engine.kv_cache_memory_bytes is not None:
        flags["kv_cache_memory_bytes"] = engine.kv_cache_memory_bytes
    pins = {name: value for name, value in problem.pins.items() if name not in _NOT_ARGUMENTS and value is not None}
    return flags | pins


def argv_of(problem: Problem, sized: Sized) -> tuple[str, ...]:
    """`vllm serve MODEL --flag value ...`; a block size that would itself change the layout is left to vLLM."""
    flags = flags_of(problem, sized)
    if "block_size" not in problem.pins and not block_size_is_neutral(problem, sized):
        del flags["block_size"]
    words = ["vllm", "serve", model_argument(problem)]
    revision = problem.workload.model.revision or problem.facts.revision
    if problem.workload.model.revision is not None and revision and "revision" not in flags:
        words += ["--revision", revision]
    for name, value in flags.items():
        words += _words(problem, name, value)
    return tuple(words)


def model_argument(problem: Problem) -> str:
    """What vLLM is given as the model: the directory where one was named, else the hub id."""
    return problem.workload.model.path or problem.workload.model.id


def block_size_is_neutral(problem: Problem, sized: Sized) -> bool:
    """Whether saying the block size aloud gives the same layout as leaving it to vLLM (hybrids may align it anew)."""
    pins = {name: getattr(sized.engine, name) for name in ALWAYS if name != "block_size"}
    stated = {"block_size": sized.layout.block_size}
    try:
        again = size(problem, pins | stated)
    except EngineRefuses:
        return False
    mine, theirs = sized.layout, again.layout
    same_pages = mine.groups == theirs.groups and mine.bytes_per_block == theirs.bytes_per_block
    return same_pages and mine.block_size == theirs.block_size


def _words(problem: Problem, name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is True:
        return [flag]
    if value is False:
        return [] if problem.version < _STORE_TRUE_ONLY else ["--no-" + name.replace("_", "-")]
    if isinstance(value, dict):
        return [flag, json.dumps(value, separators=(",", ":"), sort_keys=True)]
    if isinstance(value, list | tuple):
        return [flag, *(_text(item) for item in value)]
    return [flag, _text(value)]


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"), sort_keys=True)
    return f"{value:g}" if isinstance(value, float) else str(value)
