"""Which parallel sizes vLLM refuses before it builds a model, for one model and release.

Source: vLLM 0.32 config/model.py (verify_with_parallel_config), config/parallel.py; model_executor/models (who
supports pipeline stages), by release in advisor/model/interfaces.py.
"""

from __future__ import annotations

from typing import Any

from advisor.errors import EngineRefuses
from advisor.model.interfaces import NO_STAGES
from advisor.model.spec import ModelSpec
from advisor.towers import tower_refused
from advisor.versions import Version

# their last stage ties its output head to an embedding that only the first stage has
_TIES_ACROSS = frozenset({"FalconH1ForCausalLM", "Ernie4_5_MoeForCausalLM"})
TOWER_HINT = "set mm_encoder_tp_mode: data, which copies the tower, or a tensor_parallel_size that divides its heads"
_DCP_SOURCE = "vLLM config/parallel.py and config/model.py: decode_context_parallel_size"


def parallel_sizes(model: ModelSpec, version: Version, pins: dict[str, Any]) -> tuple[int, int, int]:
    """(tensor, pipeline, decode context) parallel sizes; refuses those that cannot be for this model."""
    tp, pp = int(pins.get("tensor_parallel_size") or 1), int(pins.get("pipeline_parallel_size") or 1)
    dcp = int(pins.get("decode_context_parallel_size") or 1)
    if model.num_heads and model.num_heads % tp:
        raise EngineRefuses(
            "tp-heads",
            f"{model.num_heads} attention heads do not divide over tensor_parallel_size {tp}",
            hint="choose a tensor_parallel_size that divides the attention heads, or use pipeline parallelism",
            source="vLLM config/model.py: verify_with_parallel_config",
        )
    if why := tower_refused(model, tp, pins):
        raise EngineRefuses(
            "tp-tower",
            why,
            hint=TOWER_HINT,
            source="vLLM distributed/utils.py: divide",
        )
    if pp > 1 and (why := stages_refused(model, version)):
        raise EngineRefuses(
            "pp-architecture",
            why,
            hint="set pipeline_parallel_size: 1; tensor_parallel_size splits this model",
            source="vLLM config/model.py: verify_with_parallel_config; model_executor/models: SupportsPP",
        )
    if dcp > 1:
        _check_dcp(model, tp, dcp)
    return tp, pp, dcp


def stages_refused(model: ModelSpec, version: Version) -> str:
    """Why vLLM refuses to cut this architecture into pipeline stages; empty where it does not."""
    spans = NO_STAGES.get(model.architecture, ())
    if any(first <= version and (end is None or version < end) for first, end in spans):
        return f"{model.architecture} has no pipeline parallelism in vLLM {version}"
    if model.ties_embeddings and model.architecture in _TIES_ACROSS:
        return (
            f"{model.architecture} ties its output head to the embedding, which its last pipeline stage does not have"
        )
    return ""


def _check_dcp(model: ModelSpec, tp: int, dcp: int) -> None:
    if tp % dcp:
        raise EngineRefuses(
            "dcp-tp",
            f"tensor_parallel_size {tp} is not a multiple of decode_context_parallel_size {dcp}",
            source=_DCP_SOURCE,
        )
    if model.is_attention_free:
        raise EngineRefuses(
            "dcp-no-attention",
            "decode context parallel divides keys and values, and this model keeps none",
            hint="set decode_context_parallel_size: 1",
            source=_DCP_SOURCE,
        )
    if model.uses_mla or not model.num_kv_heads:
        return
    if tp <= model.num_kv_heads or dcp > tp // model.num_kv_heads:
        raise EngineRefuses(
            "dcp-kv-heads",
            f"decode_context_parallel_size {dcp} needs tensor_parallel_size of at least "
            f"{dcp} x {model.num_kv_heads} key/value heads",
            source=_DCP_SOURCE,
        )
    if (model.num_heads // model.num_kv_heads) % dcp:
        raise EngineRefuses(
            "dcp-query-heads",
            f"{model.num_heads // model.num_kv_heads} query heads per key/value head do not divide by {dcp}",
            source=_DCP_SOURCE,
        )
