"""Which batch sizes vLLM captures as CUDA graphs, and how many graphs that makes.

Source: vLLM config/vllm.py `_set_cudagraph_sizes` (0.32; older forms in config/__init__.py and config.py), GPT-OSS's
own ceiling in model_executor/models/config.py. Left out: sequence parallelism's filter, dynamic speculation's extra
tiers, `--performance-mode interactivity`, sizes set through compilation_config (give them as `capture_sizes`).
"""

from __future__ import annotations

from advisor.gpu import Gpu
from advisor.versions import Version

_GPT_OSS = "GptOssForCausalLM"


def capture_sizes(
    version: Version,
    gpu: Gpu,
    *,
    architecture: str,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    num_speculative_tokens: int = 0,
    max_capture_size: int | None = None,
) -> tuple[int, ...]:
    """The token counts captured by default, ascending; () where `max_capture_size` is 0."""
    query = 1 + num_speculative_tokens if version >= (0, 13) else 1
    top = (
        max_capture_size if max_capture_size is not None else _ceiling(version, gpu, architecture, max_num_seqs * query)
    )
    top = min(top, max_num_batched_tokens)
    step = 16 if version >= (0, 11) else 8
    sizes = {n for n in (1, 2, 4) if n <= top}
    sizes.update(range(8, min(top + 1, 256), 8), range(256, top + 1, step))
    if version >= (0, 22) and max_num_batched_tokens <= top:
        sizes.add(max_num_batched_tokens)
    if version >= (0, 26) and max_num_seqs * query <= top:
        sizes.add(max_num_seqs * query)
    if version >= (0, 29) and query > 1 and max_capture_size is None:
        sizes.update(_uniform_decode(max_num_seqs, query, max_num_batched_tokens))
    return tuple(sorted(sizes))


def graph_count(version: Version, sizes: tuple[int, ...], max_num_seqs: int, num_speculative_tokens: int = 0) -> int:
    """Graphs captured: one piecewise per size, and from 0.11 one full decode graph per size a decode batch can have."""
    if version < (0, 11):
        return len(sizes)
    widest = max_num_seqs * (1 + num_speculative_tokens)
    return len(sizes) + sum(size <= widest for size in sizes)


def _ceiling(version: Version, gpu: Gpu, architecture: str, decode_tokens: int) -> int:
    if architecture == _GPT_OSS and version >= (0, 10, 2):
        return 1024
    if version < (0, 10):
        return 512
    blackwell = gpu.compute_capability is not None and gpu.compute_capability[0] == 10
    return min(2 * decode_tokens, 1024 if blackwell and version >= (0, 28) else 512)


def _uniform_decode(max_num_seqs: int, query: int, max_num_batched_tokens: int) -> set[int]:
    """From 0.29 a speculating engine adds the exact multiples its decode batches have."""
    most = min(max_num_seqs, 512)
    counts = {n for n in (1, 2, 4) if n <= most} | set(range(8, min(most + 1, 256), 8)) | set(range(256, most + 1, 16))
    return {n * query for n in counts | {most} if n * query <= max_num_batched_tokens}
