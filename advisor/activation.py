"""The peak of vLLM's profile run, from shapes: what the largest batch needs above the weights.

Source: vLLM v1/worker/gpu_model_runner.py `profile_run`, `_dummy_sampler_run` (first model runner) and
v1/worker/gpu/model_runner.py (second). Three things happen one after the other, so the largest counts: the
multimodal tower on its largest items, the decoder on max_num_batched_tokens, the sampler on as many rows as
max_num_seqs. What stays allocated through all of them is added: buffers, the MoE workspaces, the tower's
outputs.

The sampler (v1/sample/sampler.py, ops/topk_topp_sampler.py) holds the logits in the model's dtype, their
float32 copy, the probabilities and the noise: dtype + 3 x 4 bytes per row and vocabulary entry. Up to 0.16 it
sorts first, which takes six copies more: sorted values, int64 indices twice, and CUB's second buffer of 12
bytes an entry, the single allocation that fails in vllm#29049 and vllm#15105. FlashInfer's sampler does not
sort. The second runner's warm-up only computes the logits.

Left out: draft models' own steps, prompt logprobs, logits processors, expert-parallel all-to-all buffers.
"""

from __future__ import annotations

from advisor.estimate import Estimate, exact
from advisor.overhead_constants import EncoderShape, Factor, OverheadConstants
from advisor.overhead_inputs import OverheadInputs
from advisor.spread import largest_of, scaled, total_of


def activation(facts: OverheadInputs, constants: OverheadConstants) -> dict[str, Estimate]:
    """The parts of the peak: those that stay, and `peak`, the largest of what comes one after the other."""
    parts = {"base": constants.base.bytes}
    moe = _moe_workspace(facts, constants)
    forward = _forward(facts, constants)
    if constants.moe_workspace_stays:
        parts["moe_workspace"] = moe
    else:
        forward = total_of([forward, moe])
    moments = [forward]
    if facts.is_multimodal and not facts.multimodal_off:
        parts["multimodal"] = constants.multimodal_base.bytes
        parts["encoder_cache"] = _encoder_cache(facts)
        moments.append(_encoder(facts, constants))
    if facts.is_last_stage:
        moments.append(sampler(facts, constants))
    parts["peak"] = largest_of(moments)
    return parts


def sampler(facts: OverheadInputs, constants: OverheadConstants) -> Estimate:
    """What the sampler's warm-up holds at once, hidden states of the batch included."""
    rows = facts.sampled_rows
    hidden = constants.hidden_copies.of(facts.hidden_bytes)
    logits = rows * facts.vocab_size * facts.dtype_bytes
    if facts.second_runner:
        ranks = facts.tensor_parallel_size
        return total_of([hidden, exact(logits + (logits // ranks if ranks > 1 else 0))])
    parts = [hidden, exact(logits), _float_copies(facts, constants, rows)]
    if facts.num_speculative_tokens:
        parts.append(constants.speculative_copies.of(4 * rows * facts.vocab_size))
    return total_of(parts)


def _float_copies(facts: OverheadInputs, constants: OverheadConstants, rows: int) -> Estimate:
    """The float32 copies. Few rows are sorted another way, which takes more for each; what the most of those
    need is kept for the next ones up, so that more rows never seem to need less."""
    copies = constants.sampler_copies_unified if facts.gpu.unified_memory else constants.sampler_copies
    small = constants.sampler_small_copies
    if facts.flashinfer_sampler:
        copies = small = Factor(copies.low, copies.low, copies.low)
    few = min(rows, round(constants.sampler_small_rows.value))
    entry = 4 * facts.vocab_size
    return largest_of([copies.of(rows * entry), small.of(few * entry)])


def _forward(facts: OverheadInputs, constants: OverheadConstants) -> Estimate:
    """One decoder layer at its widest: residual and hidden states, gate and up projection and their product,
    or what the mixer projects to. A stage that is not the last also holds what it hands on."""
    entry = facts.max_num_batched_tokens * facts.dtype_bytes
    width = max(facts.intermediate_size, facts.attention_width / 2) / facts.tensor_parallel_size
    parts = [
        constants.forward_residual_copies.of(entry * facts.hidden_size),
        constants.forward_width_copies.of(entry * width),
    ]
    if not facts.is_last_stage:
        parts.append(constants.forward_stage_copies.of(entry * facts.hidden_size))
    return total_of(parts)


def _moe_workspace(facts: OverheadInputs, constants: OverheadConstants) -> Estimate:
    """The two workspaces of a MoE kernel, one row per token and expert chosen: up to 0.16 buffers of the call
    (fused_moe.py), later the modular kernel's `workspace_shapes`. MXFP4 kernels for gpt-oss use none, other
    quantised ones less or as much."""
    if facts.num_experts == 0 or facts.moe_intermediate_size == 0:
        return exact(0)
    ranks = 1 if facts.expert_parallel else facts.tensor_parallel_size
    inner = facts.moe_intermediate_size / ranks
    first = max(inner, facts.hidden_size) if constants.moe_workspace_stays else inner
    rows = facts.max_num_batched_tokens * facts.experts_per_token
    quantity = rows * (first + max(2 * inner, facts.hidden_size)) * facts.dtype_bytes
    factor = constants.moe_workspace
    if facts.quantization == "mxfp4":
        return scaled(0.0, 0.0, factor.high, quantity)
    if facts.quantization is not None:
        return scaled(factor.value, 0.0, factor.high, quantity)
    return factor.of(quantity)


def _items(facts: OverheadInputs, shape: EncoderShape) -> int:
    """Items in the dummy batch (multimodal/encoder_budget.py `_get_max_items`, no limit on items per prompt)."""
    budget = max(facts.max_num_batched_tokens, shape.item_tokens)
    in_prompt = max(1, facts.max_model_len // shape.item_tokens)
    return max(1, min(budget // shape.item_tokens, facts.max_num_seqs * in_prompt))


def _encoder_cache(facts: OverheadInputs) -> Estimate:
    """The tower's outputs, kept while the decoder and the sampler run."""
    entry = facts.hidden_size * facts.dtype_bytes
    if facts.encoder is None:
        return scaled(1.0, 0.0, 2.0, facts.max_num_batched_tokens * entry)
    tokens = _items(facts, facts.encoder) * facts.encoder.item_tokens
    return scaled(1.0, 0.8, 1.5, tokens * entry * facts.encoder.levels)


def _encoder(facts: OverheadInputs, constants: OverheadConstants) -> Estimate:
    """The tower at its widest: MLP and projections, sharded by TP, and four copies of its hidden states, which
    are not."""
    shape = facts.encoder
    if shape is None:
        return constants.encoder_unknown.bytes
    ranks = facts.tensor_parallel_size
    width = (shape.intermediate_size + 3 * shape.hidden_size) / ranks + 4 * shape.hidden_size
    return constants.encoder.of(_items(facts, shape) * shape.item_patches * width * facts.dtype_bytes)
