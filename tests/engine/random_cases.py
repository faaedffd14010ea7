"""Made-up cases for the layout oracle: a random model, card, parallelism, memory and engine arguments.

Half of them are tame: nothing in them is known to be refused whatever the memory, so that most are laid out. The
other half are wild: any card, stages, ranks, KV dtype, block size and switch, so that refusals are compared too.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.engine.random_models import FAMILIES, Config

CARDS: list[Config] = [
    {"cap": "9.0"},
    {"cap": "9.0"},
    {"cap": "8.0", "gpu_name": "NVIDIA A100-SXM4-80GB", "gpu_gib": 79.2},
    {"cap": "8.6", "gpu_name": "NVIDIA RTX A6000", "gpu_gib": 47.4},
    {"cap": "8.9", "gpu_name": "NVIDIA L40S", "gpu_gib": 44.4},
]
OLD_CARD: Config = {"cap": "7.5", "gpu_name": "Tesla T4", "gpu_gib": 14.6}
CACHE_DTYPES = ["auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"]
NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}


def draw_case(r: Random, family: str, name: str) -> dict[str, Any]:
    """One line for the layout oracle: a config of the family, a card, parallelism, memory and engine arguments."""
    config = FAMILIES[family](r)
    return _draw_wild(r, config, name) if r.random() < 0.5 else _draw_tame(r, config, name)


def _draw_tame(r: Random, config: Config, name: str) -> dict[str, Any]:
    tp, pp, dcp = _parallel(r, config)
    if pp > 1:
        config["tie_word_embeddings"] = False
    case = {"id": name, "kv_gib": round(2 ** r.uniform(-4, 5.5), 3), "tp": tp, "pp": pp, **r.choice(CARDS)}
    if dcp > 1:
        case["dcp"] = dcp
    args = _arguments(r, config)
    if r.random() < 0.3:
        args["kv_cache_dtype"] = r.choice(_cache_dtypes(config, case))
    if r.random() < 0.25:
        args["block_size"] = r.choice([64] if "kv_lora_rank" in config else [16, 32, 64, 128])
    if r.random() < 0.15 and "dcp" not in case:
        args["disable_hybrid_kv_cache_manager"] = True
    return {"config": config, "case": {**case, "args": args}}


def _draw_wild(r: Random, config: Config, name: str) -> dict[str, Any]:
    """Anything goes but what the oracle itself cannot play."""
    tame = _parallel(r, config)[0]
    tp = r.choice([tame, tame, 1, 2, 3, 4, 8])
    pp = r.choice([1, 1, 1, 2, 3])
    if "intermediate_size" in config and r.random() < 0.3:
        config["intermediate_size"] = r.choice([1024, 2048, 2560])
    if r.random() < 0.2:
        config["vocab_size"] = r.choice([32000, 50257])
    if r.random() < 0.2:
        config["tie_word_embeddings"] = True
    card = OLD_CARD if r.random() < 0.1 else r.choice(CARDS)
    case = {"id": name, "kv_gib": round(2 ** r.uniform(-1, 5.5), 3), "tp": tp, "pp": pp, **card}
    if r.random() < 0.25:
        case["dcp"] = 2
    return {"config": config, "case": {**case, "args": _wild_arguments(r, config)}}


def _arguments(r: Random, config: Config) -> Config:
    longest = config.get("max_position_embeddings", 2048)
    args: Config = {}
    if r.random() < 0.8:
        args["max_model_len"] = r.choice([longest, r.randint(1, longest), min(longest, 4096)])
    if r.random() < 0.6:
        args["max_num_seqs"] = r.choice([1, 16, 100, 256])
        args["max_num_batched_tokens"] = r.choice([256, 1000, 2048, 8192, 16384])
    if r.random() < 0.25:
        args["enable_prefix_caching"] = r.random() < 0.3
    if r.random() < 0.1:
        args["num_gpu_blocks_override"] = r.choice([64, 1000, 20000])
    if r.random() < 0.15:
        args["async_scheduling"] = False
    return args


def _wild_arguments(r: Random, config: Config) -> Config:
    args = _arguments(r, config)
    if r.random() < 0.4:
        args["kv_cache_dtype"] = r.choice(CACHE_DTYPES)
    if r.random() < 0.3:
        args["block_size"] = r.choice([16, 32, 48, 64, 128])
    if r.random() < 0.2:
        args["disable_hybrid_kv_cache_manager"] = True
    if r.random() < 0.2:
        args["speculative_config"] = NGRAM
        args.pop("async_scheduling", None)
        if r.random() < 0.3:
            args["async_scheduling"] = r.random() < 0.5
    if r.random() < 0.1:
        args["enable_chunked_prefill"] = False
    return args


def _cache_dtypes(config: Config, case: dict[str, Any]) -> list[str]:
    """KV dtypes; those that a card or kernel lacks are for tests of refusals, not of layouts."""
    if case["cap"] < "8.9" or "dcp" in case:
        return ["bfloat16", "auto"]
    if "index_topk" in config:
        return ["fp8", "auto"]
    return ["fp8", "fp8_e4m3", "auto"] if "kv_lora_rank" in config else ["fp8", "fp8_e4m3", "fp8_e5m2", "bfloat16"]


def _parallel(r: Random, config: Config) -> tuple[int, int, int]:
    """(tensor, pipeline, decode context) parallelism that the model allows."""
    heads = config.get("num_attention_heads") or config["num_heads"]
    kv_heads = config.get("num_key_value_heads", 1)
    tp = r.choice([1, 1, *(t for t in (2, 3, 4, 8) if heads % t == 0 and (kv_heads % t == 0 or t % kv_heads == 0))])
    pp = r.choice([1, 1, 1, *(p for p in (2, 3) if _stages_alike(config, p))])
    latent_heads = 1 if "kv_lora_rank" in config else kv_heads
    can_share = "num_key_value_heads" in config and "index_topk" not in config and tp % 2 == 0 and tp > latent_heads
    return tp, pp, 2 if can_share and r.random() < 0.5 else 1


def _stages_alike(config: Config, stages: int) -> bool:
    """Whether every pipeline stage would hold each kind of layer, and the model can be cut at all."""
    layers = config["num_hidden_layers"]
    if config["architectures"] == ["Mamba2ForCausalLM"] or config.get("num_kv_shared_layers"):
        return False
    kinds: list[Any] = list(config.get("hybrid_override_pattern", "")) or config.get("layer_types") or ["all"] * layers
    if "attn_layer_period" in config:
        kinds = [i % config["attn_layer_period"] == config["attn_layer_offset"] for i in range(layers)]
    shortest = layers // stages
    windows = (kinds[i : i + shortest] for i in range(layers - shortest + 1))
    return shortest >= 1 and all(set(window) == set(kinds) for window in windows)
