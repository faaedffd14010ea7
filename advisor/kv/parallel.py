"""How layers and heads are shared out over tensor- and pipeline-parallel ranks.

Source: vLLM 0.32 distributed/utils.py (get_pp_indices), config/model.py (get_num_kv_heads), the models' attention
classes (total_num_kv_heads against tp_size).
"""

from __future__ import annotations

from advisor.errors import EngineRefuses


def pipeline_slices(num_layers: int, pp: int) -> tuple[tuple[int, int], ...]:
    """(first, end) layer of each stage; the remainder goes to the stages before the last, from the back."""
    if pp > num_layers:
        raise EngineRefuses(
            "pp-layers",
            f"pipeline_parallel_size {pp} exceeds the model's {num_layers} layers",
            hint=f"at most {num_layers} stages",
            source="vLLM distributed/utils.py: get_pp_indices",
        )
    sizes = [num_layers // pp] * pp
    for i in range(2, num_layers % pp + 2):
        sizes[-i] += 1
    slices, start = [], 0
    for size in sizes:
        slices.append((start, start + size))
        start += size
    return tuple(slices)


def heads_per_rank(num_heads: int, num_kv_heads: int, tp: int) -> int:
    """KV heads of one rank: divided where TP divides them, one (a copy) where TP exceeds them."""
    if num_heads % tp:
        raise EngineRefuses(
            "tp-heads",
            f"{num_heads} attention heads do not divide over tensor_parallel_size {tp}",
            hint="choose a tensor_parallel_size that divides the attention heads, or use pipeline parallelism",
            source="vLLM config/model.py: verify_with_parallel_config",
        )
    if num_kv_heads >= tp:
        if num_kv_heads % tp:
            raise EngineRefuses(
                "tp-kv-heads",
                f"{num_kv_heads} key/value heads do not divide over tensor_parallel_size {tp}",
                hint="choose a tensor_parallel_size that divides the key/value heads or is a multiple of them",
                source="vLLM model_executor/models: total_num_kv_heads % tp_size",
            )
        return num_kv_heads // tp
    if tp % num_kv_heads:
        raise EngineRefuses(
            "tp-kv-heads",
            f"tensor_parallel_size {tp} is not a multiple of the {num_kv_heads} key/value heads",
            hint="choose a tensor_parallel_size that divides the key/value heads or is a multiple of them",
            source="vLLM model_executor/models: tp_size % total_num_kv_heads",
        )
    return 1
