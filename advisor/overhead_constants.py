"""The measured part of the memory model, for one vLLM version: values only, read from profiles/vllm elsewhere."""

from __future__ import annotations

from typing import Any

import msgspec

from advisor.estimate import Estimate
from advisor.spread import scaled
from advisor.versions import Version

FLAGS = frozenset({"graphs_in_budget", "moe_workspace_stays"})  # constants that are yes or no


class Factor(msgspec.Struct, frozen=True):
    """A constant with the ends seen in public logs; `unit` is bytes, or copies of the tensor the name speaks of."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"a constant's band must hold its value: {self.low} <= {self.value} <= {self.high}")

    def of(self, quantity: float) -> Estimate:
        """The constant times a quantity known exactly, in bytes."""
        return scaled(self.value, self.low, self.high, quantity)

    @property
    def bytes(self) -> Estimate:
        """The constant itself, where its unit is bytes."""
        return self.of(1)


class EncoderShape(msgspec.Struct, frozen=True, kw_only=True):
    """The vision tower as the profile run uses it: its largest item, and the widths that item is pushed through.

    `item_tokens` are language-model tokens of one item, `item_patches` what the tower sees of it; `levels` is 1 plus
    the extra levels of features kept with each token (deepstack).
    """

    item_tokens: int
    item_patches: int
    hidden_size: int
    intermediate_size: int
    levels: int = 1


class OverheadConstants(msgspec.Struct, frozen=True, kw_only=True):
    """What a start costs besides weights and KV cache, as far as only measuring tells. `version` is what was asked."""

    version: Version
    # the peak of the profile run
    base: Factor  # bytes: input buffers, rope caches, cuBLAS's own workspace
    hidden_copies: Factor  # copies of the batch's hidden states alive while the sampler is warmed up
    sampler_copies: Factor  # fp32 copies of rows x vocabulary, beside the logits themselves
    sampler_copies_unified: Factor  # the same where the host's memory is the device's
    sampler_small_copies: Factor  # the same where few rows are sorted another way
    sampler_small_rows: Factor  # the most rows that are
    speculative_copies: Factor  # fp32 copies more that the rejection sampler's warm-up holds
    forward_residual_copies: Factor  # hidden states alive at the widest point of a layer
    forward_width_copies: Factor  # copies of the layer's inner width there
    forward_stage_copies: Factor  # hidden states more on a stage that hands them on
    moe_workspace: Factor  # of the two workspaces of vLLM's modular MoE kernel
    moe_workspace_stays: bool  # kept after the layer (workspace manager), so it adds to the sampler's peak
    multimodal_base: Factor  # bytes
    encoder: Factor  # of the tower's widest point for the items profiled
    encoder_unknown: Factor  # bytes, where the tower's shape is not known
    # outside torch
    non_torch_single: Factor  # bytes, one rank
    non_torch_stages: Factor  # bytes, pipeline parallel only
    non_torch_nvls: Factor  # bytes, tensor parallel over NVLink SHARP (Hopper and data-centre Blackwell)
    non_torch_tensor: Factor  # bytes, tensor parallel otherwise
    non_torch_per_rank: Factor  # bytes for each rank beyond two
    non_torch_unified: Factor  # bytes more where the host's memory is the device's
    gdn_warmup: Factor  # bytes that the warm-up of gated delta net kernels leaves behind
    communicators: Factor  # bytes taken before the baseline on a data-centre GPU, tensor or pipeline parallel
    communicators_other: Factor  # the same elsewhere
    communicators_moe: Factor  # bytes more for a mixture of experts
    # CUDA graphs
    graph_base: Factor  # bytes
    graph_per_layer: Factor  # bytes for each graph and layer
    graph_estimated: Factor  # vLLM's estimate over the two together
    graph_captured: Factor  # what capturing takes over the two together, dense models
    graph_captured_moe: Factor  # the same for a mixture of experts
    graph_hybrid_trap: Factor  # bytes per token of max_num_batched_tokens and unit of hidden size (vllm#50780)
    graphs_in_budget: bool
    # outside the budget
    attention_workspace: Factor  # bytes that backends take when the cache exists
    attention_workspace_flashinfer: Factor  # the same where FlashInfer is the default
    sampler_at_run_time: Factor  # fp32 copies of rows x vocabulary that real sampling may need
    # the CPU backend
    cpu_process: Factor  # bytes of the processes themselves
    cpu_room: Factor  # bytes for one step's tensors and the allocator
    encoders: dict[str, EncoderShape] = {}  # by model_type


class Since(msgspec.Struct, frozen=True):
    """A constant from one version on. `source` says where it was seen."""

    version: Version
    factor: Factor
    source: str


class OverheadTable(msgspec.Struct, frozen=True, kw_only=True):
    """Every constant over all versions, as the profiles carry it: by name, oldest entry first."""

    entries: dict[str, tuple[Since, ...]]
    encoders: dict[str, EncoderShape]

    def at(self, version: Version) -> OverheadConstants:
        """The constants that hold for `version`: of each, the last entry that does not begin after it.

        Raises ValueError where a constant has none; the table is part of the package, so that is a bug.
        """
        chosen: dict[str, Any] = {}
        for name, entries in self.entries.items():
            holding = [entry.factor for entry in entries if entry.version <= version]
            if not holding:
                raise ValueError(f"no entry of {name} holds for vLLM {version}")
            chosen[name] = bool(holding[-1].value) if name in FLAGS else holding[-1]
        return OverheadConstants(version=version, encoders=self.encoders, **chosen)
