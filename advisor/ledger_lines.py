"""Holders of memory that are only there when asked for: LoRA slots, a draft model, MTP layers.

First forms, from shapes: enough to say whether they matter. vLLM allocates all of them while the model loads, so a
log's "model loading" figure already contains them; add a line only where the weights come from the checkpoint alone.
"""

from __future__ import annotations

from advisor.engine import Engine
from advisor.estimate import Estimate
from advisor.ledger import Line
from advisor.model.spec import ModelSpec
from advisor.spread import scaled


def lora_line(model: ModelSpec, engine: Engine, *, max_loras: int, max_lora_rank: int) -> Line:
    """Buffers for `max_loras` adapters of the largest rank in every projection of every layer (vLLM lora/layers: A
    is replicated over tensor parallel ranks, B is sharded for column-parallel layers).

    Left out: adapters on embeddings; experts count at the high end only, not every version and kernel has them.
    """
    tp = engine.tensor_parallel_size
    hidden, width = model.hidden_size, model.intermediate_size or 0
    query, pair = model.num_heads * model.head_size, 2 * model.num_kv_heads * model.head_size
    attention = 3 * hidden + (query + pair) / tp + query / tp + hidden
    mlp = (2 * hidden + 2 * width / tp + width / tp + hidden) if width else 0
    inner = (model.moe_intermediate_size or 0) / tp
    experts = model.num_experts * (3 * hidden + 3 * inner)
    slots = max_loras * max_lora_rank * (4 if engine.dtype == "float32" else 2)
    layers = model.num_layers / engine.pipeline_parallel_size
    known, more = layers * slots * (attention + mlp), layers * slots * experts
    value = scaled(1.0, 0.8, 1.2 + (more / known if known else 0), known)
    return Line("lora", value)


def draft_line(weights: Estimate) -> Line:
    """A draft model's weights on one rank. Its KV layers belong to the layout, its graphs are in the estimate from the
    versions that profile them."""
    return Line("draft_model", weights)


def mtp_line(model: ModelSpec, engine: Engine, *, weight_bytes: float = 2.0) -> Line:
    """Multi-token-prediction layers of the checkpoint, loaded only when speculating: a decoder layer each, and the
    projection of two hidden states to one. `weight_bytes` is the average for one parameter."""
    tp = engine.tensor_parallel_size
    hidden = model.hidden_size
    attention = hidden * model.head_size * 2 * (model.num_heads + model.num_kv_heads)
    dense = 3 * hidden * max(model.intermediate_size or 0, model.shared_expert_size)
    experts = 3 * hidden * (model.moe_intermediate_size or 0) * model.num_experts
    layer = (attention + (experts or dense)) / tp + 2 * hidden * hidden
    return Line("mtp", scaled(1.0, 0.7, 1.5, model.num_nextn_layers * layer * weight_bytes))
