"""What the overheads of one start follow from: shapes, batch sizes, ranks, the device. Values only."""

from __future__ import annotations

import msgspec

from advisor.gpu import Gpu
from advisor.model_runner import uses_v2_runner
from advisor.overhead_constants import EncoderShape
from advisor.versions import Version


class OverheadInputs(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of one start. Sizes are the whole model's (divided by tensor parallel here), layers the stage's.

    `vocab_size` is the padded vocabulary, `intermediate_size` the dense MLP's width (0 where every layer is a
    mixture of experts), `attention_width` what a layer's mixer projects to: (heads + 2 x KV heads) x head size,
    or a gated delta net's input projection. `None` leaves a choice to the version's default.
    """

    version: Version
    gpu: Gpu
    architecture: str
    hidden_size: int
    vocab_size: int
    num_layers: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    intermediate_size: int = 0
    attention_width: int = 0
    dtype_bytes: int = 2
    num_experts: int = 0
    experts_per_token: int = 0
    moe_intermediate_size: int = 0
    expert_parallel: bool = False
    quantization: str | None = None
    is_multimodal: bool = False
    multimodal_off: bool = False  # every modality limited to 0 items
    encoder: EncoderShape | None = None
    is_hybrid: bool = False
    uses_gdn: bool = False
    is_pooling: bool = False
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    is_last_stage: bool = True
    enforce_eager: bool = False
    num_speculative_tokens: int = 0
    capture_sizes: tuple[int, ...] | None = None
    estimate_graphs: bool | None = None  # VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS
    flashinfer_sampler: bool | None = None  # VLLM_USE_FLASHINFER_SAMPLER
    v2_runner: bool | None = None  # VLLM_USE_V2_MODEL_RUNNER

    @property
    def second_runner(self) -> bool:
        """Whether the second model runner serves this model."""
        if self.v2_runner is not None:
            return self.v2_runner
        return uses_v2_runner(
            self.version,
            self.architecture,
            is_moe=self.num_experts > 0,
            is_quantized=self.quantization is not None,
            is_hybrid=self.is_hybrid,
            is_pooling=self.is_pooling,
        )

    @property
    def sampled_rows(self) -> int:
        """Rows of the sampler's warm-up."""
        return min(self.max_num_seqs, self.max_num_batched_tokens)

    @property
    def hidden_bytes(self) -> int:
        """The hidden states of the largest batch."""
        return self.max_num_batched_tokens * self.hidden_size * self.dtype_bytes

    @property
    def world_size(self) -> int:
        """Ranks of one data-parallel engine."""
        return self.tensor_parallel_size * self.pipeline_parallel_size
