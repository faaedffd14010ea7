"""What a model caches, layer by layer, before any engine setting: no dtype, block size or rank in it."""

from __future__ import annotations

from typing import Literal

import msgspec

AttentionKind = Literal["full", "sliding", "chunked", "cross", "encoder_only"]
StateKind = Literal["mamba1", "mamba2", "gdn", "kda", "linear", "short_conv"]


class AttentionCache(msgspec.Struct, frozen=True, kw_only=True):
    """Keys and values of one attention layer.

    `span_tokens` is the window (sliding) or the chunk (chunked); None for the other kinds. `num_heads` counts the
    query heads and decides which tensor-parallel sizes are possible; `num_kv_heads` is the whole model's.
    """

    kind: AttentionKind
    num_heads: int
    num_kv_heads: int
    head_size: int
    head_size_v: int
    span_tokens: int | None = None
    states_per_token: int = 1  # Whisper-like block pooling stores several states a token
    ignores_cache_dtype: bool = False  # the family's class never hears of kv_cache_dtype (Falcon)


class MlaCache(msgspec.Struct, frozen=True, kw_only=True):
    """The latent of one MLA layer (`head_size` = kv_lora_rank + qk_rope_head_dim), the same on every rank."""

    head_size: int
    num_heads: int


class IndexerCache(msgspec.Struct, frozen=True, kw_only=True):
    """The sparse indexer's cache beside an MLA layer (DeepSeek-V3.2, GLM-5): uint8, not divided by TP."""

    bytes_per_token: int


class StateCache(msgspec.Struct, frozen=True, kw_only=True):
    """A recurrent state of one layer: its size does not grow with the length of the request.

    `sizes` are the numbers its shapes are made of, named as in vLLM's mamba_utils (see advisor/kv/states.py).
    """

    kind: StateKind
    sizes: dict[str, int]


class FixedPageCache(msgspec.Struct, frozen=True, kw_only=True):
    """A cache whose block and page the model's own code fixes, the same on every rank (DeepSeek-V4).

    `span_tokens` is the window of a windowed one, None for one that grows with the request.
    """

    block_size: int
    page_bytes: int
    span_tokens: int | None = None


LayerCache = AttentionCache | MlaCache | IndexerCache | StateCache | FixedPageCache


class Layer(msgspec.Struct, frozen=True):
    """One decoder layer; `caches` is empty where it reads the cache of the layer `shares_with`, or has none."""

    index: int
    caches: tuple[LayerCache, ...]
    shares_with: int | None = None


class KvScheme(msgspec.Struct, frozen=True, kw_only=True):
    """What the checkpoint says about its KV cache: the dtype `auto` becomes, and whether scales come with it."""

    dtype: str | None = None  # "fp8", "fp8_e4m3", "nvfp4"
    calibrated: bool = False


class Quantization(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint's own weight quantisation, as vLLM names the method; None for none."""

    method: str | None = None
    weight_bits: int | None = None
    group_size: int | None = None
    kv: KvScheme = KvScheme()


class MaxLength(msgspec.Struct, frozen=True, kw_only=True):
    """The longest sequence the model was made for, and the config key that says so."""

    tokens: int
    key: str


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a model that decides its KV cache and which engine settings it allows."""

    id: str
    architecture: str
    model_type: str
    layers: tuple[Layer, ...]
    hidden_size: int
    intermediate_size: int | None  # dense MLP width; None where every layer is MoE or has none
    vocab_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    dtype: str  # "bfloat16", "float16", "float32": what vLLM's dtype=auto becomes on a GPU that has bf16
    config_dtype: str | None  # what the config states, None where absent
    max_length: MaxLength
    default_max_model_len: int  # what vLLM takes when nothing is set
    quantization: Quantization = Quantization()
    num_experts: int = 0
    experts_per_token: int = 0
    moe_intermediate_size: int | None = None
    shared_expert_size: int = 0
    sliding_window: int | None = None  # whole-model window, or the window of its sliding layers
    uses_mla: bool = False
    is_sparse_mla: bool = False
    packs_pages: bool = False  # pages of several sizes side by side in one block (DeepSeek-V4)
    is_multimodal: bool = False
    tower_heads: int | None = None  # heads of a vision tower that tensor parallel divides
    is_hybrid: bool = False  # has state layers beside attention
    is_attention_free: bool = False
    is_encoder_decoder: bool = False
    is_pooling: bool = False
    has_sinks: bool = False  # attention sinks (gpt-oss)
    qk_norm: bool = False
    uses_alibi: bool = False
    is_mm_prefix: bool = False  # image spans attend both ways (Gemma 3, PaliGemma)
    num_nextn_layers: int = 0  # MTP layers in the checkpoint, loaded only when speculating
    state_dtype: str | None = None  # the config's own dtype for recurrent states
    ties_embeddings: bool = False  # the output head is the embedding
    expert_layers: tuple[int, ...] | None = None  # layers with experts, where every pipeline stage must hold one
    state_chunk_tokens: int | None = None  # Mamba-2's chunk, which cache mode "all" aligns to
    since: tuple[int, int, int] | None = None  # first vLLM release with this architecture, where it matters
    until: tuple[int, int, int] | None = None  # first release without it
    notes: tuple[str, ...] = ()

    @property
    def heeds_kv_cache_dtype(self) -> bool:
        """Whether some layer keeps its cache in the dtype that kv_cache_dtype asks for."""
        caches = (cache for layer in self.layers for cache in layer.caches if not isinstance(cache, StateCache))
        return any(not (isinstance(c, AttentionCache) and c.ignores_cache_dtype) for c in caches)

    @property
    def num_layers(self) -> int:
        """Decoder layers, caching or not: what pipeline parallel splits."""
        return 1 + max(layer.index for layer in self.layers)
