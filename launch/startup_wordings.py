"""Every wording of a start-up figure from vLLM 0.8 to 0.33, as data: a pattern and what its groups are.

A pattern's named groups are fields of StartupFacts; a suffix tells how the text becomes a value (`__t` a count with
thousands commas, `__s` text). Sources, all in vLLM: v1/worker/gpu_worker.py, v1/worker/gpu_model_runner.py,
v1/worker/gpu/model_runner.py, v1/worker/cpu_worker.py, v1/worker/utils.py, v1/core/kv_cache_utils.py,
v1/engine/core.py, v1/metrics/loggers.py, config/model.py, config/scheduler.py, platforms/interface.py,
entrypoints/serve/utils/api_utils.py; the V0 wordings worker/worker.py and executor/executor_base.py (to 0.10).
"""

from __future__ import annotations

import re

import msgspec

_N = r"-?\d+(?:\.\d+)?"


class Wording(msgspec.Struct, frozen=True):
    """One line's shape. `hint` is text every such line holds, so that most patterns are never tried."""

    hint: str
    pattern: re.Pattern[str]
    versions: str


def _wording(hint: str, pattern: str, versions: str) -> Wording:
    return Wording(hint, re.compile(pattern.replace("#", _N)), versions)


WORDINGS: tuple[Wording, ...] = (
    _wording("version", r"vLLM (?:API )?server version (?P<version__s>v?\d[\w.+-]*)", "0.8 to 0.2x"),
    _wording("version", r"^[^\w]*\bversion (?P<version__s>\d+\.[\w.+-]+)$", "banner, 0.16 and later"),
    _wording(
        "Initializing a V",
        r"Initializing an? (?P<engine__s>V[01]) LLM engine \(v(?P<version__s>\d[\w.+-]*)\) with config:",
        "0.8 and later",
    ),
    _wording("Resolved architecture", r"Resolved architecture: (?P<architecture__s>\w+)", "0.10.1 and later"),
    _wording("max model len", r"Using max model len (?P<max_model_len>\d+)", "0.9 and later"),
    _wording("max_model_len to", r"Updated max_model_len to (?P<max_model_len>\d+)", "0.14 and later, DEBUG"),
    _wording(
        "Auto-fit",
        r"Auto-fit max_model_len: reduced from (?P<auto_fit_from>\d+) to (?P<auto_fit_to>\d+) to fit in",
        "0.14 and later",
    ),
    _wording(
        "Auto-fit",
        r"Auto-fit max_model_len: full model context length (?P<auto_fit_to>\d+) fits",
        "0.14 and later",
    ),
    _wording(
        "hunked prefill is enabled",
        r"[Cc]hunked prefill is enabled with max_num_batched_tokens=(?P<max_num_batched_tokens>\d+)",
        "0.8 and later",
    ),
    _wording(
        "max_num_",
        r"(?:Defaulting|Setting) max_num_batched_tokens to (?P<max_num_batched_tokens>\d+) for",
        "0.8 and later, DEBUG",
    ),
    _wording(
        "max_num_",
        r"(?:Defaulting|Setting) max_num_seqs to (?P<max_num_seqs>\d+) for",
        "0.8 and later, DEBUG",
    ),
    _wording("V2 Model Runner", r"Using V(?P<runner>2) Model Runner", "0.16 and later"),
    _wording(
        "backend",
        r"^Using (?:the )?(?P<attention_backend__s>(?:FLASH|Flash|FLASHINFER|TRITON|Triton|FLEX|Flex|CUTLASS|TORCH|"
        r"ROCM|AITER|XFORMERS|XFormers|TURBOQUANT|CPU|TOKENSPEED|B12X|HPC)\w*(?: ?Attention)?(?: MLA)?(?:_\w+)*)"
        r"(?: attention)? backend",
        "0.8 and later",
    ),
    _wording("KV cache layout", r"Using (?P<kv_cache_layout__s>[A-Z]{3,6}) KV cache layout", "0.29 and later"),
    # weights
    _wording(
        "oading took",
        r"[Mm]odel loading took (?P<weights_gib>#) (?:GiB|GB)(?: memory)?(?: and (?P<load_s>#) seconds)?",
        "0.8 and later, not on the CPU",
    ),
    _wording("odel weights took", r"[Ll]oading model weights took (?P<weights_gib>#) ?(?:GiB|GB)", "before 0.8"),
    # V0's profile, INFO: one line, or three
    _wording(
        "total_gpu_memory",
        r"can use total_gpu_memory \((?P<total_gib>#) ?GiB\) x gpu_memory_utilization "
        r"\((?P<gpu_memory_utilization>#)\) = (?P<requested_gib>#) ?GiB",
        "V0",
    ),
    _wording(
        "emory profiling results",
        r"total_gpu_memory=(?P<total_gib>#)GiB .*?non_torch_memory=(?P<non_torch_gib>#)GiB "
        r"kv_cache_size=(?P<available_kv_gib>#)GiB gpu_memory_utilization=(?P<gpu_memory_utilization>#)",
        "V0, 0.6",
    ),
    _wording("model weights take", r"model weights take (?P<weights_gib>#) ?GiB", "V0"),
    _wording("non_torch_memory takes", r"non_torch_memory takes (?P<non_torch_gib>#) ?GiB", "V0"),
    _wording("activation peak", r"PyTorch activation peak memory takes (?P<activation_gib>#) ?GiB", "V0"),
    _wording("reserved for KV", r"memory reserved for KV Cache is (?P<available_kv_gib>#) ?GiB", "V0"),
    _wording(
        " blocks: ",
        r"(?:GPU|gpu|cuda|CUDA|cpu|rocm|hip) blocks: (?P<num_blocks>\d+), \x23 CPU blocks: (?P<num_cpu_blocks>\d+)",
        "V0",
    ),
    # V1's profile, DEBUG
    _wording(
        "emory profiling takes",
        r"Memory profiling takes (?P<profile_s>#) seconds(?:\. Total non KV cache memory: (?P<non_kv_gib>#) ?GiB; "
        r"torch peak memory increase: (?P<torch_peak_gib>#) ?GiB; (?:non-torch forward increase memory: "
        r"(?P<non_torch_gib>#)|total consumed \(from mem_get_info\): (?P<consumed_gib>#)) ?GiB; "
        r"weights memory: (?P<weights_gib>#) ?GiB)?",
        "0.9 and later",
    ),
    _wording(
        "Initial free memory:",
        r"Initial free memory: (?P<free_at_start_gib>#) GiB[;,] (?:free memory: # GiB, requested GPU memory: "
        r"|Requested memory: (?P<gpu_memory_utilization>#) \(util\), )(?P<requested_gib>#) GiB",
        "0.9 and later, DEBUG",
    ),
    _wording("worker requested memory", r"worker requested memory: (?P<requested_gib>#) ?GiB", "0.14 and later, DEBUG"),
    _wording(
        "on startup is less than",
        r"Free memory on device (?:\S+ )?\((?P<free_at_start_gib>#)/(?P<total_gib>#) GiB\) on startup is less than "
        r"desired GPU memory utilization \((?P<gpu_memory_utilization>#), (?P<requested_gib>#) GiB\)",
        "0.9 and later",
    ),
    _wording(
        "Actual usage is",
        r"Free memory on device (?:\S+ )?\((?P<free_at_start_gib>#)/(?P<total_gib>#) GiB\) on startup\. Desired GPU "
        r"memory utilization is \((?P<gpu_memory_utilization>#), (?P<requested_gib>#) GiB\)\. Actual usage is "
        r"(?:(?P<weights_gib>#) GiB for weight|(?P<consumed_gib>#) GiB for consumed memory \(weights \+ non-torch\)), "
        r"(?P<activation_gib>#) GiB for peak activation, (?:(?P<non_torch_gib>#) GiB for non-torch memory, )?"
        r"and (?P<graphs_gib>#) GiB for CUDAGraph memory",
        "0.10.2 and later",
    ),
    _wording("--kv-cache-memory=", r"--kv-cache-memory=(?P<suggested_kv_bytes>\d+)", "0.10.2 and later"),
    _wording(
        "kv cache memory in use",
        r"Current kv cache memory in use is (?:(?P<kv_in_use_gib>#) GiB|\d+ bytes)",
        "0.10.2 and later",
    ),
    # CUDA graphs
    _wording(
        "Graph capturing finished",
        r"Graph capturing finished in (?P<graphs_s>#) secs?, took (?P<graphs_gib>#) (?:GiB|GB)",
        "0.8 and later",
    ),
    _wording(
        "Estimated CUDA graph",
        r"Estimated CUDA graph memory: (?P<graphs_estimated_gib>#) GiB total",
        "0.18 and later, first model runner",
    ),
    _wording(
        "CUDA graph pool memory",
        r"CUDA graph pool memory: (?P<graph_pool_gib>#) GiB \(actual\), (?P<graphs_estimated_gib>#) GiB \(estimated\)",
        "0.18 and later",
    ),
    _wording(
        "CUDA graph memory profiling is",
        r"CUDA graph memory profiling is (?P<graphs_applied__s>enabled|disabled)(?:.*?The current "
        r"--gpu-memory-utilization=(?P<gpu_memory_utilization>#) is equivalent to --gpu-memory-utilization="
        r"(?P<utilization_without_graphs>#))?",
        "0.18 and later",
    ),
    _wording(
        "CUDA graph memory profiling",
        r"CUDA graph memory profiling (?P<graphs_applied__s>will be enabled) by default",
        "0.18 and 0.19",
    ),
    # the pool
    _wording("KV cache memory", r"Available KV cache memory: (?P<available_kv_gib>#) GiB", "0.9 and later"),
    _wording(
        "KV cache size",
        r"(?P<device__s>GPU|CPU|XPU|TPU|HPU)(?: \+ host)? KV cache size: (?P<kv_tokens__t>[\d,]+) tokens",
        "0.8 and later",
    ),
    _wording(
        "aximum concurrency for",
        r"[Mm]aximum concurrency for (?P<concurrency_at_tokens__t>[\d,]+) tokens per request: (?P<concurrency>#)x",
        "0.8 and later",
    ),
    _wording("num_gpu_blocks is", r"after num_gpu_blocks is: (?P<num_blocks>\d+)", "0.9 and later"),
    _wording(
        "Overriding num_gpu_blocks",
        r"Overriding num_gpu_blocks=(?P<num_blocks_profiled>\d+) with num_gpu_blocks_override=(?P<num_blocks>\d+)",
        "0.8 and later",
    ),
    _wording(
        "reserved",
        r"Initial free memory (?P<free_at_start_gib>#) GiB, reserved (?P<explicit_kv_gib>#) ?GiB memory for KV Cache",
        "0.10.2 and later",
    ),
    _wording("cache block size", r"Setting kv cache block size to (?P<block_size>\d+) for", "0.18 and later"),
    _wording(
        "attention block size",
        r"Setting attention block size to (?P<attention_block_size>\d+) tokens",
        "0.10 and later",
    ),
    _wording("Padding mamba", r"Padding mamba page size by (?P<mamba_padding_percent>#)%", "0.10 and later"),
    _wording("padding layers", r"Add (?P<padding_layers>\d+) padding layers", "0.9 and later"),
    _wording(
        "Hybrid KV cache manager",
        r"(?P<hybrid_manager_off__s>Hybrid KV cache manager is disabled) for this hybrid model",
        "0.9 and later",
    ),
    # the CPU backend
    _wording(
        "KV cache on node",
        r"(?:Explicitly|Auto) set \((?P<cpu_kv_gib>#)/(?P<cpu_node_gib>#)\) GiB for KV cache on node \d+"
        r"(?:.*?(?P<cpu_consumed_gib>#) GiB memory was consumed)?",
        "0.20 and later",
    ),
    # the end
    _wording(
        "init engine",
        r"init engine \(profile, create kv cache, warmup model\) took (?P<init_engine_s>#) s(?:econds)?"
        r"(?: \(compilation: (?P<compile_s>#) s)?",
        "0.8 and later",
    ),
    _wording("torch.compile", r"torch\.compile (?:took|takes) (?P<compile_s>#) s(?:econds)? in total", "0.8 and later"),
    _wording("startup complete", r"(?P<ready__s>Application startup complete)", "every release"),
)

CONFIG = {  # "Initializing a V1 LLM engine (v...) with config: name=value, ..."
    "model": r"\bmodel='([^']{1,400})'",
    "dtype": r"\bdtype=(?:torch\.)?(\w+)",
    "quantization": r"\bquantization=(?!None\b)'?([\w-]+)",
    "kv_cache_dtype": r"\bkv_cache_dtype='?(\w+)",
    "enforce_eager": r"\benforce_eager=(True|False)",
    "max_model_len": r"\bmax_seq_len=(\d+)",
    "tensor_parallel_size": r"\btensor_parallel_size=(\d+)",
    "pipeline_parallel_size": r"\bpipeline_parallel_size=(\d+)",
    "data_parallel_size": r"\bdata_parallel_size=(\d+)",
}
