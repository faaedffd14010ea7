"""Model facts to ModelSpec."""

from __future__ import annotations

from advisor.errors import NoKvCache, NotUnderstood
from advisor.facts import ModelFacts
from advisor.model import architectures as known
from advisor.model.attention import hidden_size, num_heads
from advisor.model.config_view import ConfigView
from advisor.model.dtypes import NO_FLOAT16, auto_dtype, config_dtype
from advisor.model.experts import expert_layers
from advisor.model.lengths import default_max_model_len, read_max_length
from advisor.model.quantization import read_quantization
from advisor.model.since import ARCHITECTURE_RELEASES
from advisor.model.spec import AttentionCache, FixedPageCache, IndexerCache, LayerCache, MlaCache, ModelSpec, StateCache
from advisor.versions import Version

_POOLING_SUFFIXES = (
    "ForSequenceClassification",
    "ForRewardModel",
    "ForTokenClassification",
    "EmbeddingModel",
)
# left vLLM's registry, but load through its Transformers backend (asked of 0.32)
_STILL_RUNS = frozenset({"PersimmonForCausalLM", "Dots1ForCausalLM"})
_DIVIDED_TOWERS = (
    *("Llava", "Mistral3For", "Pixtral", "Qwen2VL", "Qwen2_5_VL", "Qwen2_5Omni", "Qwen3VL", "Qwen3_5"),
    *("Gemma3For", "PaliGemma", "KimiVL", "DotsOCR", "PaddleOCRVL"),
)
_MM_PREFIX_TYPES = frozenset({"bagel", "gemma3", "molmo2", "moondream3", "paligemma"})


def find_architecture(cfg: ConfigView) -> tuple[str, known.Architecture, bool]:
    """(name as the config gives it, how its text part is read, whether it is multimodal); refuses unknown names."""
    name = cfg.architecture()
    if name in known.NESTED:
        inner = known.TEXT_ARCHITECTURE.get(cfg.text_model_type)
        if inner is None and isinstance(cfg.text.get("architectures"), list) and cfg.text["architectures"]:
            inner = str(cfg.text["architectures"][0])
        if inner is None or inner not in known.ARCHITECTURES:
            raise NotUnderstood(
                f"the text model {cfg.text_model_type!r} inside {name} is not known",
                where="text_config.model_type",
                hint="kvadvise makes no number for an architecture it does not understand",
            )
        return name, known.ARCHITECTURES[inner], True
    entry = known.ARCHITECTURES.get(name)
    if entry is None:
        raise NotUnderstood(
            f"the architecture {name} is not known",
            where="architectures",
            hint="no number is made for an architecture that is not understood; `kvadvise models` lists known ones",
        )
    return name, entry, entry.multimodal


def read_model(facts: ModelFacts, version: Version) -> ModelSpec:
    """The ModelSpec of a config, as vLLM `version` would build the model.

    Raises NotUnderstood (with the architecture, key or layer) for what kvadvise does not know, NoKvCache for models
    without a decoder cache.
    """
    cfg = ConfigView(facts.config)
    name, entry, multimodal = find_architecture(cfg)
    layers = entry.read(cfg)
    if not any(layer.caches for layer in layers):
        raise NoKvCache("no layer of this model keeps a cache", where="config.json")
    caches = [cache for layer in layers for cache in layer.caches]
    states = any(isinstance(cache, StateCache) for cache in caches)
    attends = any(not isinstance(cache, StateCache) for cache in caches)
    heads, kv_heads, head_size = _heads(cfg, caches)
    since, until = _releases(name, cfg)
    stated = config_dtype(cfg)
    longest = read_max_length(cfg, version, facts.model_max_length)
    pooling = entry.pooling or name.endswith(_POOLING_SUFFIXES)
    return ModelSpec(
        id=facts.id,
        architecture=name,
        model_type=cfg.model_type,
        layers=layers,
        hidden_size=hidden_size(cfg),
        intermediate_size=_width(cfg, "intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"),
        vocab_size=cfg.size("vocab_size", "padded_vocab_size"),
        dtype=auto_dtype(stated, has_bf16=True, has_fp16=cfg.model_type not in NO_FLOAT16, prefers_fp16=pooling),
        config_dtype=stated,
        max_length=longest,
        default_max_model_len=default_max_model_len(cfg, longest),
        quantization=read_quantization(cfg.root, cfg.text, facts.quant_config),
        num_experts=cfg.count("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts"),
        experts_per_token=cfg.count(
            "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "moe_k"
        ),
        moe_intermediate_size=_width(cfg, "moe_intermediate_size", "expert_intermediate_size"),
        is_multimodal=multimodal,
        tower_heads=_tower_heads(name, cfg) if multimodal else None,
        is_encoder_decoder=entry.encoder_decoder,
        is_pooling=pooling,
        has_sinks=entry.sinks,
        qk_norm=entry.qk_norm,
        uses_alibi=entry.alibi,
        is_mm_prefix=_is_mm_prefix(cfg) and multimodal,
        num_nextn_layers=cfg.count("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"),
        ties_embeddings=cfg.flag("tie_word_embeddings"),
        expert_layers=expert_layers(name, cfg, 1 + max(layer.index for layer in layers), version),
        state_dtype=_state_dtype(cfg),
        state_chunk_tokens=cfg.optional_size("mamba_chunk_size", "chunk_size"),
        since=since,
        until=until,
        notes=facts.notes,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_size=head_size,
        uses_mla=any(isinstance(c, MlaCache) for c in caches),
        packs_pages=any(isinstance(c, FixedPageCache) for c in caches),
        is_sparse_mla=any(isinstance(c, IndexerCache) for c in caches),
        is_hybrid=states and attends,
        is_attention_free=states and not attends,
        sliding_window=next(
            (c.span_tokens for c in caches if isinstance(c, AttentionCache) and c.kind == "sliding"), None
        ),
    )


def _heads(cfg: ConfigView, caches: list[LayerCache]) -> tuple[int, int, int]:
    """(query heads, KV heads, head size) as vLLM's ModelConfig sees the model: by its first attention layer."""
    for cache in caches:
        if isinstance(cache, AttentionCache):
            return cache.num_heads, cache.num_kv_heads, cache.head_size
    for cache in caches:
        if isinstance(cache, MlaCache):
            return cache.num_heads, 1, cache.head_size
    if any(isinstance(cache, FixedPageCache) for cache in caches):
        return num_heads(cfg), 1, cfg.size("head_dim")
    return 0, 0, 0


def _releases(name: str, cfg: ConfigView) -> tuple[tuple[int, int, int] | None, tuple[int, int, int] | None]:
    """First release with the architecture and first without it; Nemotron-H with experts came after Nemotron-H."""
    first, gone = ARCHITECTURE_RELEASES.get(name, (None, None))
    if name in _STILL_RUNS:
        gone = None
    if name == "NemotronHForCausalLM" and cfg.count("n_routed_experts", "num_experts"):
        first = (0, 11, 0)
    return first, gone


def _tower_heads(name: str, cfg: ConfigView) -> int | None:
    """Heads of the vision tower, for the families whose tower is divided over tensor-parallel ranks."""
    if not name.startswith(_DIVIDED_TOWERS):
        return None
    nested = cfg.root.get("thinker_config")
    tower = (nested if isinstance(nested, dict) else cfg.root).get("vision_config")
    stated = (tower.get("num_heads") or tower.get("num_attention_heads")) if isinstance(tower, dict) else None
    return stated if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0 else None


def _width(cfg: ConfigView, *keys: str) -> int | None:
    for key in keys:
        value = cfg.raw(key)
        if isinstance(value, list) and value:
            value = max(v for v in value if isinstance(v, int))
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _is_mm_prefix(cfg: ConfigView) -> bool:
    if cfg.model_type.startswith("gemma4"):
        return bool(cfg.raw("use_bidirectional_attention") == "vision")
    stated = cfg.root.get("is_mm_prefix_lm")
    return bool(stated) if stated is not None else cfg.model_type in _MM_PREFIX_TYPES


def _state_dtype(cfg: ConfigView) -> str | None:
    stated = cfg.raw("mamba_ssm_dtype") or cfg.raw("mamba_ssm_cache_dtype")
    return str(stated) if isinstance(stated, str) else None
