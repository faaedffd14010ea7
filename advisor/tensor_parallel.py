"""Which tensor-parallel sizes a model can be split into, and what each other size breaks, all of it at once.

Sources: vLLM 0.32 config/model.py (verify_with_parallel_config), distributed/utils.py (divide),
model_executor/layers/linear.py, vocab_parallel_embedding.py, fused_moe/config.py, quantization/auto_awq.py
and utils/{marlin_utils,fp8_utils}.py. Left out: widths that only one model's class knows.
"""

from __future__ import annotations

import msgspec

from advisor.errors import EngineRefuses
from advisor.kv.states import state_bytes
from advisor.model.spec import ModelSpec, StateCache

_VOCAB_PADDING = 64
_GROUPED = frozenset({"awq", "awq_marlin", "gptq", "gptq_marlin"})
_WORLD_LIMIT = 64
_COPIES_NO_HEADS = frozenset({"GptOssForCausalLM", "Param2MoEForCausalLM"})
# whose classes refuse more ranks than experts
_AS_MANY_EXPERTS = (
    *("Cohere2Moe", "Ernie4_5_Moe", "ExaoneMo", "HYV3", "Laguna", "Lfm2Moe", "MiMoV2", "MiniMaxM2"),
    *("Qwen2Moe", "Qwen3Moe", "Qwen3Next", "Step3"),
)


class TpProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a size is impossible."""

    code: str
    message: str
    source: str


def tp_problems(model: ModelSpec, tp: int, *, expert_parallel: bool = False) -> tuple[TpProblem, ...]:
    """Everything that stands in the way of splitting `model` over `tp` ranks; empty where nothing does."""
    if tp <= 1:
        return ()
    found = [*_heads(model, tp), *_widths(model, tp, expert_parallel), *_groups(model, tp), *_states(model, tp)]
    return tuple(TpProblem(code=code, message=message, source=source) for code, message, source in found)


def allowed_tp(model: ModelSpec, *, expert_parallel: bool = False, limit: int = _WORLD_LIMIT) -> tuple[int, ...]:
    """The sizes up to `limit` that nothing stands in the way of, ascending."""
    return tuple(tp for tp in range(1, limit + 1) if not tp_problems(model, tp, expert_parallel=expert_parallel))


Found = list[tuple[str, str, str]]


def _heads(model: ModelSpec, tp: int) -> Found:
    found: Found = []
    if model.num_heads and model.num_heads % tp:
        text = f"{model.num_heads} attention heads do not divide over tensor_parallel_size {tp}"
        found.append(("tp-heads", text, "vLLM config/model.py: verify_with_parallel_config"))
    heads = 0 if model.uses_mla else model.num_kv_heads
    if heads and heads % tp and model.architecture in _COPIES_NO_HEADS:
        text = f"{heads} key/value heads do not divide over tensor_parallel_size {tp}, and this model copies none"
        found.append(("tp-kv-heads", text, "vLLM model_executor/models/{gpt_oss,param2moe}.py"))
    elif heads and heads % tp and tp % heads:
        text = f"{heads} key/value heads neither divide over tensor_parallel_size {tp} nor into it"
        found.append(("tp-kv-heads", text, "vLLM model_executor/layers/linear.py: QKVParallelLinear"))
    return found


def _widths(model: ModelSpec, tp: int, expert_parallel: bool) -> Found:
    found: Found = []
    if model.intermediate_size and model.intermediate_size % tp and not _only_experts(model):
        text = f"the MLP width {model.intermediate_size} does not divide over tensor_parallel_size {tp}"
        found.append(("tp-mlp", text, "vLLM model_executor/layers/linear.py: divide"))
    if model.moe_intermediate_size and model.num_experts and not expert_parallel and model.moe_intermediate_size % tp:
        text = f"the experts' width {model.moe_intermediate_size} does not divide over tensor_parallel_size {tp}"
        found.append(("tp-experts", text, "vLLM model_executor/layers/fused_moe/config.py: FusedMoEConfig"))
    if model.num_experts and tp > model.num_experts and model.architecture.startswith(_AS_MANY_EXPERTS):
        text = f"tensor_parallel_size {tp} is more than the {model.num_experts} experts"
        found.append(("tp-experts", text, "vLLM model_executor/models/qwen3_moe.py"))
    padded = -(-model.vocab_size // _VOCAB_PADDING) * _VOCAB_PADDING
    if padded % tp:
        text = f"the vocabulary of {model.vocab_size} (padded to {padded}) does not divide over {tp} ranks"
        found.append(("tp-vocab", text, "vLLM model_executor/layers/vocab_parallel_embedding.py"))
    return found


def _only_experts(model: ModelSpec) -> bool:
    """Whether the config's width may be one that no layer uses: mixtures of experts often carry it along."""
    return model.num_experts > 0 and model.moe_intermediate_size is not None


def _groups(model: ModelSpec, tp: int) -> Found:
    """Quantisation groups along the MLP's inner width must stay whole on every rank."""
    quant = model.quantization
    size, width = quant.group_size, model.intermediate_size
    if quant.method not in _GROUPED or size is None or not width or width % tp or _only_experts(model):
        return []
    if (width // tp) % size == 0:
        return []
    text = f"the MLP width per rank, {width // tp}, is no multiple of the quantisation group of {size}"
    return [("tp-quant-group", text, "vLLM model_executor/layers/quantization/auto_awq.py, utils/marlin_utils.py")]


def _states(model: ModelSpec, tp: int) -> Found:
    for layer in model.layers:
        for cache in layer.caches:
            if isinstance(cache, StateCache):
                try:
                    state_bytes(cache, tp=tp, conv_dtype="bfloat16", ssm_dtype="bfloat16")
                except EngineRefuses as refusal:
                    return [(refusal.code, refusal.what, refusal.source)]
    return []
