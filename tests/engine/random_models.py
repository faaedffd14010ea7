"""Made-up models drawn from a seed: one family of layers each, every size random."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Config = dict[str, Any]
Draw = Callable[[Random], Config]


def _common(r: Random, architecture: str, model_type: str, **keys: Any) -> Config:
    """A decoder's usual keys: heads, KV heads that divide them, a head size, a length."""
    kv_heads = r.choice([1, 2, 3, 4, 6, 8])
    heads = kv_heads * r.choice([1, 2, 4, 8])
    head_dim = r.choice([64, 80, 96, 128, 256])
    config = {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": heads * head_dim,
        "intermediate_size": 1536,
        "num_hidden_layers": r.randint(1, 36),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": 30720,
        "max_position_embeddings": r.choice([2048, 4096, 8192, 32768, 131072, r.randint(1500, 60000)]),
        "torch_dtype": r.choice(["bfloat16", "bfloat16", "float16", "float32"]),
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "tie_word_embeddings": r.random() < 0.5,
    }
    return {**config, **keys}


def _experts(r: Random) -> Config:
    return {"num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 384}


def _kinds(r: Random, config: Config, names: tuple[str, str]) -> list[str]:
    """A layer list: mostly the first name with every so-many-th the second, sometimes any mix."""
    layers = config["num_hidden_layers"]
    if r.random() < 0.25:
        return [r.choice(names) for _ in range(layers)]
    period = r.randint(2, 8)
    return [names[1] if (i + 1) % period == 0 else names[0] for i in range(layers)]


def dense(r: Random) -> Config:
    """One kind of full attention, with and without experts."""
    architecture, model_type = r.choice(
        [
            ("LlamaForCausalLM", "llama"),
            ("Qwen3ForCausalLM", "qwen3"),
            ("GraniteForCausalLM", "granite"),
            ("Qwen3MoeForCausalLM", "qwen3_moe"),
            ("MixtralForCausalLM", "mixtral"),
            ("GraniteMoeForCausalLM", "granitemoe"),
            ("SeedOssForCausalLM", "seed_oss"),
            ("Glm4MoeForCausalLM", "glm4_moe"),
        ]
    )
    config = _common(r, architecture, model_type)
    if model_type in ("granite", "granitemoe", "mixtral"):
        config["hidden_size"], config["head_dim"] = config["num_attention_heads"] * 64, None
        del config["head_dim"]
    if model_type == "glm4_moe":
        config |= {"n_routed_experts": 8, "n_shared_experts": 1, "first_k_dense_replace": 0, "n_group": 1}
        config |= {"topk_group": 1, "routed_scaling_factor": 1.0, "norm_topk_prob": True}
    if "moe" in model_type or model_type == "mixtral":
        config |= _experts(r)
    return config


def windowed(r: Random) -> Config:
    """Sliding layers among full ones, or everywhere."""
    window = r.choice([64, 128, 512, 1024, 2047, 4096, r.randint(1, 5000)])
    architecture, model_type = r.choice(
        [
            ("Gemma2ForCausalLM", "gemma2"),
            ("Gemma3ForCausalLM", "gemma3_text"),
            ("Cohere2ForCausalLM", "cohere2"),
            ("Olmo3ForCausalLM", "olmo3"),
            ("Exaone4ForCausalLM", "exaone4"),
            ("MistralForCausalLM", "mistral"),
            ("Starcoder2ForCausalLM", "starcoder2"),
            ("GptOssForCausalLM", "gpt_oss"),
            ("LlamaForCausalLM", "llama"),
        ]
    )
    config = _common(r, architecture, model_type, sliding_window=window)
    if model_type in ("cohere2", "olmo3", "starcoder2"):
        config["hidden_size"] = config["num_attention_heads"] * 128
        del config["head_dim"]
    if model_type not in ("mistral", "starcoder2", "gpt_oss"):
        config["layer_types"] = _kinds(r, config, ("sliding_attention", "full_attention"))
    if model_type == "gpt_oss":
        config |= {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 64, "intermediate_size": 2880}
        config |= {"hidden_size": 2880}
    if model_type.startswith("gemma"):
        config |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256}
        del config["hidden_act"]
    if model_type == "cohere2":
        config |= {"layer_norm_eps": 1e-5, "logit_scale": 0.25}
    return config


def latent(r: Random) -> Config:
    """Multi-head latent attention, some with the sparse indexer."""
    architecture, model_type = r.choice(
        [
            ("DeepseekV2ForCausalLM", "deepseek_v2"),
            ("DeepseekV3ForCausalLM", "deepseek_v3"),
            ("Glm4MoeLiteForCausalLM", "glm4_moe_lite"),
            ("DeepseekV32ForCausalLM", "deepseek_v32"),
        ]
    )
    heads = r.choice([8, 16, 32])
    config = _common(r, architecture, model_type, num_attention_heads=heads, num_key_value_heads=heads)
    del config["head_dim"]
    config |= {
        "hidden_size": 1024,
        "kv_lora_rank": 512,
        "q_lora_rank": r.choice([None, 768]) if model_type != "deepseek_v32" else 768,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 384,
        "first_k_dense_replace": 0,
        "n_group": 1,
        "topk_group": 1,
        "moe_layer_freq": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.8,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "torch_dtype": "bfloat16",
    }
    if model_type == "deepseek_v32":
        config |= {"index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048}
    return config


def delta_net(r: Random) -> Config:
    """Gated delta net layers among full attention."""
    architecture, model_type = r.choice(
        [("Qwen3NextForCausalLM", "qwen3_next"), ("Qwen3_5ForCausalLM", "qwen3_5_text")]
    )
    key_heads = r.choice([4, 8, 16])
    config = _common(
        r,
        architecture,
        model_type,
        linear_num_key_heads=key_heads,
        linear_num_value_heads=key_heads * r.choice([1, 2, 3]),
        linear_key_head_dim=r.choice([64, 128]),
        linear_value_head_dim=r.choice([64, 128]),
        linear_conv_kernel_dim=r.choice([2, 4]),
        num_hidden_layers=r.randint(2, 32),
        head_dim=r.choice([64, 128, 256]),
    )
    config["layer_types"] = _mixed(r, config, ("linear_attention", "full_attention"))
    if model_type == "qwen3_next":
        config |= {**_experts(r), "shared_expert_intermediate_size": 384, "decoder_sparse_step": 1}
    else:
        config["mamba_ssm_dtype"] = r.choice(["float32", "bfloat16"])
    return config


def _mixed(r: Random, config: Config, names: tuple[str, str]) -> list[str]:
    """As `_kinds`, with at least one layer of each."""
    kinds = _kinds(r, config, names)
    kinds[0], kinds[-1] = names
    return kinds


def selective_state(r: Random) -> Config:
    """Mamba layers, alone or among attention."""
    return r.choice([_falcon_h1, _granite_hybrid, _nemotron_h, _jamba, _mamba2])(r)


def _falcon_h1(r: Random) -> Config:
    heads, size = r.choice([8, 16, 24, 32]), r.choice([32, 64])
    return _common(
        r,
        "FalconH1ForCausalLM",
        "falcon_h1",
        mamba_d_ssm=heads * size,
        mamba_n_heads=heads,
        mamba_d_head=size,
        mamba_n_groups=1,
        mamba_d_state=r.choice([64, 128, 256]),
        mamba_d_conv=4,
        mamba_expand=2,
        mamba_chunk_size=128,
    )


def _granite_hybrid(r: Random) -> Config:
    heads = r.choice([4, 8, 12])
    config = _common(r, "GraniteMoeHybridForCausalLM", "granitemoehybrid", num_attention_heads=heads)
    del config["head_dim"]
    config |= {
        "hidden_size": heads * 128,
        "num_key_value_heads": r.choice([h for h in (1, 2, 4) if heads % h == 0]),
        "num_hidden_layers": r.randint(2, 30),
        "mamba_n_heads": heads * 4,
        "mamba_d_head": 64,
        "mamba_n_groups": 1,
        "mamba_d_state": r.choice([64, 128]),
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "shared_intermediate_size": 768,
        "num_local_experts": r.choice([0, 4]),
        "num_experts_per_tok": 2,
        "position_embedding_type": "nope",
    }
    return config | {"layer_types": _mixed(r, config, ("mamba", "attention"))}


def _nemotron_h(r: Random) -> Config:
    layers = r.randint(3, 40)
    pattern = "M*" + "".join(r.choice("MMM--*E") for _ in range(layers))
    config = _common(r, "NemotronHForCausalLM", "nemotron_h")
    return config | {
        "hybrid_override_pattern": pattern,
        "num_hidden_layers": len(pattern),
        "mamba_num_heads": r.choice([16, 32, 64]),
        "mamba_head_dim": 64,
        "ssm_state_size": r.choice([64, 128]),
        "n_groups": 8,
        "conv_kernel": 4,
        "chunk_size": 128,
        "mamba_ssm_cache_dtype": r.choice(["float32", "float32", "bfloat16"]),
        "mlp_hidden_act": "relu2",
        "moe_intermediate_size": 384,
        "moe_shared_expert_intermediate_size": 384,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "layer_norm_epsilon": 1e-5,
    }


def _jamba(r: Random) -> Config:
    period = r.randint(2, 8)
    config = _common(r, "JambaForCausalLM", "jamba", num_hidden_layers=period * r.randint(1, 4))
    del config["head_dim"]
    config["hidden_size"] = config["num_attention_heads"] * 64
    return config | {
        "attn_layer_period": period,
        "attn_layer_offset": r.randrange(period),
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "mamba_d_conv": 4,
        "mamba_d_state": r.choice([16, 32]),
        "mamba_dt_rank": 128,
        "mamba_expand": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
    }


def _mamba2(r: Random) -> Config:
    heads = r.choice([16, 32, 80])
    return {
        "architectures": ["Mamba2ForCausalLM"],
        "model_type": "mamba2",
        "hidden_size": heads * 32,
        "state_size": r.choice([64, 128]),
        "num_hidden_layers": r.randint(1, 24),
        "conv_kernel": 4,
        "expand": 2,
        "n_groups": r.choice([1, 8]),
        "num_heads": heads,
        "head_dim": 64,
        "vocab_size": 30720,
        "torch_dtype": r.choice(["bfloat16", "float16", "float32"]),
        "layer_norm_epsilon": 1e-5,
        "chunk_size": 256,
    }


def short_conv(r: Random) -> Config:
    """Short convolutions among full attention."""
    config = _common(r, "Lfm2MoeForCausalLM", "lfm2_moe", num_hidden_layers=r.randint(2, 24))
    del config["head_dim"]
    config["hidden_size"] = config["num_attention_heads"] * 64
    config |= {"conv_L_cache": r.choice([2, 3, 4]), "conv_bias": False, "norm_eps": 1e-5, "num_dense_layers": 0}
    config |= {**_experts(r), "norm_topk_prob": True, "use_expert_bias": True}
    return config | {"layer_types": _mixed(r, config, ("conv", "full_attention"))}


def chunked(r: Random) -> Config:
    """Llama 4: layers with rotary positions attend within a chunk, the others to everything."""
    config = _common(r, "Llama4ForCausalLM", "llama4_text")
    every = r.randint(2, 6)
    return config | {
        "attention_chunk_size": r.choice([256, 1024, 8192]),
        "no_rope_layers": [int((i + 1) % every != 0) for i in range(config["num_hidden_layers"])],
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1,
        "intermediate_size_mlp": 1536,
        "use_qk_norm": True,
    }


def shared_cache(r: Random) -> Config:
    """Gemma 4: the last layers read the cache of earlier ones; full layers have heads of another size."""
    layers = r.randint(6, 30)
    config = _common(r, "Gemma4ForCausalLM", "gemma4_text", num_hidden_layers=layers)
    config |= {
        "head_dim": r.choice([128, 256]),
        "global_head_dim": r.choice([256, 512]),
        "sliding_window": r.choice([512, 1024]),
        "layer_types": [("sliding_attention", "full_attention")[(i + 1) % 5 == 0] for i in range(layers - 1)]
        + ["full_attention"],
        "attention_k_eq_v": r.random() < 0.5,
        "hidden_size_per_layer_input": 0,
        "hidden_activation": "gelu_pytorch_tanh",
    }
    config["num_kv_shared_layers"] = r.choice([0, 0, r.randint(1, max(1, layers - 6))])
    if config["attention_k_eq_v"]:
        config["num_global_key_value_heads"] = r.choice([1, config["num_key_value_heads"]])
    return config


FAMILIES: dict[str, Draw] = {
    "dense": dense,
    "windowed": windowed,
    "latent": latent,
    "delta_net": delta_net,
    "selective_state": selective_state,
    "short_conv": short_conv,
    "chunked": chunked,
    "shared_cache": shared_cache,
}
