"""Whether a vLLM release has an argument, and whether a pinned value can be one of its values.

Which release has which argument is argument_table.py, read from vLLM's source. Values are checked for the arguments
that decide memory, parallelism and scheduling; the others pass as they are.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from typing import Any

import msgspec

from advisor.argument_table import ARGUMENT_RELEASES
from advisor.kv.dtypes import ALL_DTYPES
from advisor.quantization_names import names_of
from advisor.versions import Version


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A pinned argument that vLLM refuses whatever the memory. `key` names it, `hint` says what would be right."""

    code: str
    message: str
    key: str = ""
    hint: str = ""
    source: str = ""


_REPLACED = {
    "swap_space": "the V1 engine preempts by recomputing and never swaps to the host; leave it out",
    "disable_log_requests": "requests are not logged unless enable_log_requests is set; leave it out",
    "use_v2_block_manager": "there is one block manager now; leave it out",
    "num_scheduler_steps": "async_scheduling replaced multi-step scheduling",
    "max_seq_len_to_capture": "use max_cudagraph_capture_size",
    "cuda_graph_sizes": "use cudagraph_capture_sizes",
    "max_num_partial_prefills": "long_prefill_token_threshold bounds a long prompt's share of a step",
    "max_long_partial_prefills": "long_prefill_token_threshold bounds a long prompt's share of a step",
    "calculate_kv_scales": "use a checkpoint that carries KV scales",
    "kv_cache_memory": "write kv_cache_memory_bytes",
    "guided_decoding_backend": "use structured_outputs_config",
    "device": "the platform is found by itself",
    "preemption_mode": "the V1 engine always recomputes",
    "rope_scaling": "use hf_overrides",
    "rope_theta": "use hf_overrides",
}
_COUNTS = frozenset(
    {
        "block_size", "max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size", "pipeline_parallel_size",
        "data_parallel_size", "decode_context_parallel_size", "num_gpu_blocks_override", "kv_cache_memory_bytes",
        "max_num_active_seqs", "max_model_len", "mamba_block_size", "max_loras", "max_lora_rank",
        "max_cudagraph_capture_size", "prefill_context_parallel_size", "nnodes",
    }
)  # fmt: skip
_HUMAN = frozenset({"max_model_len", "max_num_batched_tokens", "kv_cache_memory_bytes"})
_SWITCHES = frozenset(
    {
        "enforce_eager", "enable_prefix_caching", "enable_chunked_prefill", "enable_expert_parallel",
        "async_scheduling",
        "disable_hybrid_kv_cache_manager", "enable_lora", "trust_remote_code", "disable_sliding_window",
    }
)  # fmt: skip
_MAPPINGS = frozenset({"speculative_config", "hf_overrides", "kv_transfer_config"})
_WORDS = frozenset({"kv_cache_dtype", "dtype", "quantization", "load_format", "attention_backend", "mamba_cache_mode"})
_SCALES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_CACHE_DTYPE_SINCE: dict[str, tuple[int, ...]] = {
    "fp8_inc": (0, 10, 0), "bfloat16": (0, 11, 0), "fp8_ds_mla": (0, 12, 0), "float16": (0, 18, 0),
    "turboquant_k8v4": (0, 20, 0), "turboquant_4bit_nc": (0, 20, 0), "turboquant_k3v4_nc": (0, 20, 0),
    "turboquant_3bit_nc": (0, 20, 0), "int8_per_token_head": (0, 20, 0), "fp8_per_token_head": (0, 20, 0),
    "nvfp4": (0, 20, 0), "int4_per_token_head": (0, 25, 0), "nvfp4_4over6": (0, 28, 0), "nvfp4_ds_mla": (0, 30, 0),
}  # fmt: skip
_NOT_CACHE_DTYPES = frozenset({"float32", "half", "float"})
_MOST = 1 << 50


def normalise(pins: dict[str, Any]) -> dict[str, Any]:
    """Pins with sizes written for people ("32k", "8G") as numbers, as vLLM's own parser reads them."""
    return {name: _plain(name, value) for name, value in pins.items()}


def _plain(name: str, value: Any) -> Any:
    if name in _HUMAN:
        return human_integer(value)
    return _mapping(value) if name in _MAPPINGS else value


def _mapping(value: Any) -> Any:
    """JSON text as the mapping it is, as on the command line; anything else, and what is none, comes back as it is."""
    if not isinstance(value, str):
        return value
    try:
        read = json.loads(value)
    except ValueError:
        return value
    return read if isinstance(read, dict) else value


def human_integer(value: Any) -> Any:
    """`32k` = 32,000 and `32K` = 32,768, as vLLM reads them; anything else comes back as it is."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", value.strip())
    if match is None:
        return int(value) if re.fullmatch(r"\d+", value.strip()) else value
    number = float(match[1]) * _SCALES[match[2]]
    return int(number) if number.is_integer() else value


def check_pins(pins: dict[str, Any], version: Version) -> tuple[Violation, ...]:
    """Every pin that this release does not have, or whose value it cannot take."""
    found = []
    for name, value in pins.items():
        if name == "vllm_version":
            continue
        problem = _existence(name, version) or _value(name, value, version)
        if problem is not None:
            found.append(problem)
    return tuple(found)


def _existence(name: str, version: Version) -> Violation | None:
    releases = ARGUMENT_RELEASES.get(name)
    positive = name.removeprefix("no_")
    if positive != name and positive in _SWITCHES:
        return _wrong(name, True, f"{positive}: false")
    if releases is None:
        close = difflib.get_close_matches(name, [*ARGUMENT_RELEASES, *_REPLACED], n=1, cutoff=0.7)
        hint = _REPLACED.get(name) or (f"did you mean {close[0]}?" if close else "see `vllm serve --help`")
        return Violation(
            code="unknown-argument",
            key=name,
            message=f"vLLM has no argument {name}",
            hint=hint,
            source="vLLM engine/arg_utils.py",
        )
    first, gone = releases
    if first is not None and version < first:
        return Violation(
            code="argument-too-new",
            key=name,
            message=f"vLLM {version} does not have {name} yet; it came with {_dotted(first)}",
            hint="leave it out, or use a newer vLLM",
            source="vLLM engine/arg_utils.py",
        )
    if gone is not None and version >= gone:
        return Violation(
            code="argument-removed",
            key=name,
            message=f"vLLM {version} no longer has {name}; it went by {_dotted(gone)}",
            hint=_REPLACED.get(name, "leave it out"),
            source="vLLM engine/arg_utils.py",
        )
    return None


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _value(name: str, value: Any, version: Version) -> Violation | None:
    if value is None:
        return None
    if name in _COUNTS:
        return _count(name, human_integer(value) if name in _HUMAN else value)
    if name in _SWITCHES and not isinstance(value, bool):
        return _wrong(name, value, "true or false")
    if name == "gpu_memory_utilization":
        return _utilization(value)
    if name in _MAPPINGS and not isinstance(_mapping(value), dict):
        return _wrong(name, value, "a mapping, or JSON text of one")
    if name == "cudagraph_capture_sizes":
        return _sizes(value)
    if name == "port" and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 16):
        return _wrong(name, value, "a port, from 1 to 65535")
    if name == "model":
        return _wrong(name, value, "the model under the workload file's own key `model`, and leave this one out")
    if name in _WORDS and not isinstance(value, str):
        return _wrong(name, value, "a word")
    if name == "kv_cache_dtype":
        return _cache_dtype(str(value), version)
    if name == "quantization":
        return _quantization(str(value), version)
    return None


def _sizes(value: Any) -> Violation | None:
    is_list = isinstance(value, list) and value
    if not is_list or not all(isinstance(n, int) and not isinstance(n, bool) and 0 < n <= _MOST for n in value):
        return _wrong("cudagraph_capture_sizes", value, "a list of batch sizes of 1 or more, such as [1, 2, 4, 8]")
    return None


def _quantization(value: str, version: Version) -> Violation | None:
    known = names_of(version)
    if value in known:
        return None
    close = difflib.get_close_matches(value, sorted(known), n=1)
    return Violation(
        code="quantization-unknown",
        key="quantization",
        message=f"{value!r} is not a quantisation of vLLM {version}",
        hint=f"did you mean {close[0]}?" if close else f"one of {', '.join(sorted(known))}",
        source="vLLM model_executor/layers/quantization/__init__.py: QuantizationMethods",
    )


def _count(name: str, value: Any) -> Violation | None:
    if name == "max_model_len" and (value == "auto" or (value == -1 and not isinstance(value, bool))):
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        return _wrong(name, value, "a whole number")
    if not 0 < value <= _MOST:
        return _wrong(name, value, "a number of 1 or more")
    return None


def _utilization(value: Any) -> Violation | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not 0 < value <= 1:
        return _wrong("gpu_memory_utilization", value, "a share of the GPU's memory above 0 and up to 1, such as 0.92")
    return None


def _cache_dtype(value: str, version: Version) -> Violation | None:
    known = sorted(ALL_DTYPES - _NOT_CACHE_DTYPES)
    if value not in known:
        close = difflib.get_close_matches(value, known, n=1)
        return Violation(
            code="kv-dtype-unknown",
            key="kv_cache_dtype",
            message=f"{value!r} is not a KV cache dtype of vLLM",
            hint=f"did you mean {close[0]}?" if close else "use auto or fp8",
            source="vLLM config/cache.py: CacheDType",
        )
    since = _CACHE_DTYPE_SINCE.get(value)
    if since is not None and version < since:
        return Violation(
            code="kv-dtype-too-new",
            key="kv_cache_dtype",
            message=f"vLLM {version} does not have the KV cache dtype {value} yet; it came with {_dotted(since)}",
            hint="use auto or fp8",
            source="vLLM config/cache.py: CacheDType",
        )
    return None


def _wrong(name: str, value: Any, expected: str) -> Violation:
    return Violation(
        code="argument-value",
        key=name,
        message=f"{name}: {value!r} is not possible",
        hint=f"write {expected}",
        source="vLLM engine/arg_utils.py",
    )
