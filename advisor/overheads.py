"""What a start costs besides weights and KV cache: activations, memory outside torch, CUDA graphs.

Arithmetic where vLLM's source gives it (advisor/activation.py), constants per version range where only public start-up
logs tell (profiles/vllm/overheads.yaml). How far it is off: docs/accuracy.md.
"""

from __future__ import annotations

import msgspec

from advisor.activation import activation, sampler
from advisor.cuda_graphs import capture_sizes, graph_count
from advisor.estimate import Estimate, exact
from advisor.gpu import Gpu
from advisor.overhead_constants import OverheadConstants
from advisor.overhead_inputs import OverheadInputs
from advisor.spread import total_of

_DATA_CENTRE = frozenset({(8, 0), (9, 0), (10, 0), (10, 3)})
_NVLS = frozenset({(9, 0), (10, 0), (10, 3)})  # NVLink SHARP multicast: NCCL keeps large buffers for it
_ESTIMATED_SINCE = {"amd": (0, 29), "intel": (0, 32)}
_GDN_WITHOUT_TRITON = frozenset({(9, 0)})  # FlashInfer's gated delta net kernels; nothing to warm up


class Overheads(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's costs in bytes. `parts` are the terms of `activation_bytes`.

    `communicator_bytes` is taken before vLLM's baseline: it lowers the free memory that the start check sees, not the
    KV pool. `run_time_bytes` is needed after the pool is allocated and lies in no budget: backends' workspaces, and
    sampling beyond what the profile run covered.
    """

    activation_bytes: Estimate
    non_torch_bytes: Estimate
    cuda_graph_bytes: Estimate
    cuda_graphs_in_budget: bool
    communicator_bytes: Estimate
    run_time_bytes: Estimate
    parts: dict[str, Estimate] = {}
    capture_sizes: tuple[int, ...] = ()


def overheads(facts: OverheadInputs, constants: OverheadConstants) -> Overheads:
    """The overheads of one rank, from shapes and the constants of its vLLM version."""
    if facts.gpu.is_cpu:
        return _cpu(constants)
    parts = activation(facts, constants)
    peak = total_of(parts.values())
    sizes = _sizes(facts)
    return Overheads(
        activation_bytes=peak,
        non_torch_bytes=_non_torch(facts, constants),
        cuda_graph_bytes=_graphs(facts, constants, sizes),
        cuda_graphs_in_budget=_in_budget(facts, constants),
        communicator_bytes=_communicators(facts, constants),
        run_time_bytes=_run_time(facts, constants, peak),
        parts=parts,
        capture_sizes=sizes,
    )


def _cpu(constants: OverheadConstants) -> Overheads:
    """The CPU backend: no graphs, no communicators; the pool is stated in bytes, so the rest is room beside it."""
    return Overheads(
        activation_bytes=constants.cpu_room.bytes,
        non_torch_bytes=constants.cpu_process.bytes,
        cuda_graph_bytes=exact(0),
        cuda_graphs_in_budget=False,
        communicator_bytes=exact(0),
        run_time_bytes=exact(0),
    )


def _non_torch(facts: OverheadInputs, constants: OverheadConstants) -> Estimate:
    """CUDA's own allocations, cuBLAS, NCCL: what the device lost that torch did not take."""
    parts = [_ranks(facts, constants)]
    if facts.gpu.unified_memory:
        parts.append(constants.non_torch_unified.bytes)
    if facts.uses_gdn and facts.gpu.compute_capability not in _GDN_WITHOUT_TRITON:
        parts.append(constants.gdn_warmup.bytes)
    return total_of(parts)


def _ranks(facts: OverheadInputs, constants: OverheadConstants) -> Estimate:
    if facts.tensor_parallel_size > 1:
        base = constants.non_torch_nvls if has_nvls(facts.gpu) else constants.non_torch_tensor
        return total_of([base.bytes, constants.non_torch_per_rank.of(facts.tensor_parallel_size - 2)])
    if facts.pipeline_parallel_size > 1:
        return constants.non_torch_stages.bytes
    return constants.non_torch_single.bytes


def has_nvls(gpu: Gpu) -> bool:
    """Whether NCCL may use NVLink SHARP: Hopper and data-centre Blackwell with NVLink (unknown counts as with)."""
    return gpu.compute_capability in _NVLS and gpu.nvlink_bytes_per_s != 0.0 and "pcie" not in gpu.name.lower()


def _communicators(facts: OverheadInputs, constants: OverheadConstants) -> Estimate:
    """NCCL's own memory before the baseline; from 0.11, before that it is part of what torch did not take."""
    if facts.world_size == 1:
        return exact(0)
    data_centre = facts.gpu.compute_capability in _DATA_CENTRE
    parts = [(constants.communicators if data_centre else constants.communicators_other).bytes]
    if facts.num_experts and data_centre:
        parts.append(constants.communicators_moe.bytes)
    return total_of(parts)


def _sizes(facts: OverheadInputs) -> tuple[int, ...]:
    if facts.enforce_eager:
        return ()
    if facts.capture_sizes is not None:
        return facts.capture_sizes
    return capture_sizes(
        facts.version,
        facts.gpu,
        architecture=facts.architecture,
        max_num_seqs=facts.max_num_seqs,
        max_num_batched_tokens=facts.max_num_batched_tokens,
        num_speculative_tokens=facts.num_speculative_tokens,
    )


def _graphs(facts: OverheadInputs, constants: OverheadConstants, sizes: tuple[int, ...]) -> Estimate:
    """Graph memory: a pool for the largest batch, and a little for every graph and layer. Where the pool pays for it
    that is vLLM's estimate, elsewhere what capturing takes."""
    if not sizes:
        return exact(0)
    graphs = graph_count(facts.version, sizes, facts.max_num_seqs, facts.num_speculative_tokens)
    middle = constants.graph_base.value + constants.graph_per_layer.value * facts.num_layers * graphs
    if not _in_budget(facts, constants):
        return (constants.graph_captured_moe if facts.num_experts else constants.graph_captured).of(middle)
    parts = [constants.graph_estimated.of(middle)]
    if facts.is_hybrid:
        parts.append(constants.graph_hybrid_trap.of(facts.max_num_batched_tokens * facts.hidden_size))
    return total_of(parts)


def _in_budget(facts: OverheadInputs, constants: OverheadConstants) -> bool:
    """Whether the pool pays for the graphs. The estimate is CUDA's; ROCm has it from 0.29, XPU from 0.32."""
    if facts.version < _ESTIMATED_SINCE.get(facts.gpu.vendor, (0, 0)):
        return False
    return constants.graphs_in_budget if facts.estimate_graphs is None else facts.estimate_graphs


def _run_time(facts: OverheadInputs, constants: OverheadConstants, peak: Estimate) -> Estimate:
    """What comes after the pool: backends' workspaces, and sampling with top-k and top-p where the profile run left it
    out (the room of the activation peak is free again by then)."""
    flashinfer = (facts.gpu.compute_capability or (0, 0))[0] == 10
    parts = [(constants.attention_workspace_flashinfer if flashinfer else constants.attention_workspace).bytes]
    if facts.second_runner and facts.is_last_stage:
        rows = min(facts.max_num_seqs, facts.max_num_batched_tokens)
        wanted = constants.sampler_at_run_time.of(4 * rows * facts.vocab_size)
        held = sampler(facts, constants)
        parts.append(
            Estimate(
                max(0, wanted.value + held.value - peak.value),
                max(0, wanted.low + held.low - peak.high),
                max(0, wanted.high + held.high - peak.low),
                "estimated",
            )
        )
    return total_of(parts)
