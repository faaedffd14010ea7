"""Defaults of transformers' and vLLM's config classes for keys that decide weights, beside those of the KV cache.

Read off the classes (transformers 5.19.0, vLLM 0.32.0 transformers_utils/configs); keyed by model_type.
"""

from __future__ import annotations

from typing import Any

# fmt: off
WEIGHT_DEFAULTS: dict[str, dict[str, Any]] = {
    "bamba": {
        "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 256,
        "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128, "partial_rotary_factor": 0.5,
    },
    "bert": {
        "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 512,
        "num_attention_heads": 12, "num_hidden_layers": 12, "tie_word_embeddings": True, "type_vocab_size": 2,
    },
    "chatglm": {
        "ffn_hidden_size": 13696, "hidden_size": 4096, "max_position_embeddings": 2048,
        "num_attention_heads": 32, "num_hidden_layers": 28,
    },
    "cohere2": {"head_dim": 128},
    "deepseek_v2": {
        "first_k_dense_replace": 0, "kv_lora_rank": 512, "moe_intermediate_size": 1407,
        "n_routed_experts": 64, "n_shared_experts": 2, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128,
    },
    "deepseek_v3": {
        "first_k_dense_replace": 3, "kv_lora_rank": 512, "moe_intermediate_size": 2048,
        "n_routed_experts": 256, "n_shared_experts": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128,
    },
    "deepseek_v32": {
        "first_k_dense_replace": 3, "kv_lora_rank": 512, "max_position_embeddings": 4096,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "q_lora_rank": 1536,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    },
    "ernie4_5_moe": {
        "moe_intermediate_size": 1536, "moe_layer_end_index": 27, "moe_layer_interval": 1,
        "moe_layer_start_index": 1, "moe_num_experts": 64, "moe_num_shared_experts": 2, "num_experts": 64,
    },
    "falcon": {"ffn_hidden_size": 18176, "multi_query": True, "num_kv_heads": 71, "parallel_attn": True},
    "falcon_h1": {
        "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 8, "mamba_d_ssm": 1024,
        "mamba_d_state": 256, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128,
    },
    "falcon_mamba": {
        "conv_kernel": 4, "expand": 2, "hidden_size": 768, "intermediate_size": 1536, "num_hidden_layers": 32,
        "state_size": 16, "tie_word_embeddings": True, "time_step_rank": 48, "use_conv_bias": True,
    },
    "gemma3": {"mm_tokens_per_image": 256, "tie_word_embeddings": True},
    "gemma3_text": {"rope_parameters": {"sliding_attention": {}, "full_attention": {}}},
    "gemma3n": {"tie_word_embeddings": True},
    "gemma3n_text": {
        "altup_num_inputs": 4, "hidden_size_per_layer_input": 256, "laurel_rank": 64,
        "num_kv_shared_layers": 15, "rope_parameters": {"sliding_attention": {}, "full_attention": {}},
        "vocab_size_per_layer_input": 262144,
    },
    "gemma4": {"tie_word_embeddings": True},
    "gemma4_audio": {
        "hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 12, "use_clipped_linears": True,
    },
    "gemma4_text": {
        "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 0,
        "rope_parameters": {"sliding_attention": {},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25}},
        "vocab_size_per_layer_input": 262144,
    },
    "gemma4_unified_text": {
        "num_kv_shared_layers": 0,
        "rope_parameters": {"sliding_attention": {},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25}},
    },
    "gemma4_vision": {
        "head_dim": 64, "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 131072,
        "num_attention_heads": 12, "num_hidden_layers": 16, "patch_size": 16, "pooling_kernel_size": 3,
        "position_embedding_size": 10240,
    },
    "glm": {"attention_bias": True, "partial_rotary_factor": 0.5},
    "glm4": {"attention_bias": True, "partial_rotary_factor": 0.5},
    "glm4_moe": {
        "first_k_dense_replace": 1, "moe_intermediate_size": 1408, "n_routed_experts": 128,
        "n_shared_experts": 1, "partial_rotary_factor": 0.5,
    },
    "glm4_moe_lite": {
        "kv_lora_rank": 512, "moe_intermediate_size": 1536, "n_routed_experts": 64, "n_shared_experts": 1,
        "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
    },
    "glm_moe_dsa": {
        "first_k_dense_replace": 3, "index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048,
        "kv_lora_rank": 512, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
        "q_lora_rank": 2048, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
    },
    "gpt_neox": {
        "attention_bias": True, "rope_parameters": {"partial_rotary_factor": 0.25},
        "use_parallel_residual": True,
    },
    "gpt_oss": {"attention_bias": True, "num_experts": 128},
    "granitemoe": {"num_local_experts": 8},
    "granitemoehybrid": {
        "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 256,
        "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128, "num_local_experts": 8,
        "shared_intermediate_size": 1024,
    },
    "granitemoeshared": {"num_local_experts": 8, "shared_intermediate_size": 0},
    "jamba": {
        "attn_layer_offset": 4, "attn_layer_period": 8, "expert_layer_offset": 1, "expert_layer_period": 2,
        "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_dt_rank": 256,
        "mamba_expand": 2, "num_experts": 16,
    },
    "kimi_k25": {"tie_word_embeddings": True},
    "kimi_linear": {
        "first_k_dense_replace": 0, "hidden_size": 4096, "intermediate_size": 11008,
        "max_position_embeddings": 4096, "moe_layer_freq": 1, "num_hidden_layers": 32,
        "num_shared_experts": 0,
    },
    "laguna": {
        "moe_intermediate_size": 512, "num_experts": 256,
        "rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5},
            "sliding_attention": {"partial_rotary_factor": 1.0}},
        "shared_expert_intermediate_size": 512,
    },
    "lfm2": {
        "block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
        "conv_L_cache": 3,
    },
    "lfm2_moe": {"conv_L_cache": 3, "moe_intermediate_size": 1792, "num_dense_layers": 2, "num_experts": 32},
    "lfm2_vl": {
        "downsample_factor": 2, "projector_bias": True, "projector_hidden_size": 2560,
        "projector_use_layernorm": True, "tie_word_embeddings": True,
    },
    "llama4": {"tie_word_embeddings": False},
    "llama4_text": {
        "interleave_moe_layer_step": 1, "intermediate_size_mlp": 16384, "num_local_experts": 16,
        "use_qk_norm": True,
    },
    "llama4_vision_model": {
        "hidden_size": 768, "image_size": 448, "intermediate_size": 5632, "num_attention_heads": 16,
        "num_channels": 3, "num_hidden_layers": 34, "patch_size": 14, "pixel_shuffle_ratio": 0.5,
        "projector_input_dim": 4096, "projector_output_dim": 4096, "vision_output_dim": 7680,
    },
    "llava": {"multimodal_projector_bias": True, "tie_word_embeddings": False},
    "mamba": {
        "conv_kernel": 4, "expand": 2, "hidden_size": 768, "intermediate_size": 1536, "num_hidden_layers": 32,
        "state_size": 16, "tie_word_embeddings": True, "time_step_rank": 48, "use_conv_bias": True,
    },
    "mamba2": {
        "conv_kernel": 4, "expand": 2, "head_dim": 64, "hidden_size": 4096, "n_groups": 8, "num_heads": 128,
        "num_hidden_layers": 64, "state_size": 128, "tie_word_embeddings": False, "time_step_rank": 256,
        "use_conv_bias": True,
    },
    "minimax_m2": {"num_experts": 256},
    "mistral3": {"spatial_merge_size": 2, "tie_word_embeddings": True},
    "clip_vision_model": {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "image_size": 336, "patch_size": 14, "num_channels": 3,
    },
    "mistral3_vision": {
        "head_dim": 64, "hidden_size": 1024, "image_size": 1540, "intermediate_size": 4096,
        "num_attention_heads": 16, "num_channels": 3, "num_hidden_layers": 24, "patch_size": 14,
    },
    "qwen2_5_vl_vision": {
        "depth": 32, "hidden_size": 3584, "in_channels": 3, "intermediate_size": 3420, "num_heads": 16,
        "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    },
    "qwen3_vl_vision": {
        "depth": 27, "hidden_size": 1152, "in_channels": 3, "intermediate_size": 4304, "num_heads": 16,
        "num_position_embeddings": 2304, "out_hidden_size": 3584, "patch_size": 16, "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
    "mixtral": {"num_experts": 8},
    "muse_glimmer_text": {"max_position_embeddings": 16384, "use_qk_norm": True},
    "muse_glimmer_vision": {
        "hidden_size": 1536, "intermediate_size": 8960, "max_position_embeddings": 1024,
        "num_attention_heads": 16, "num_hidden_layers": 50, "patch_size": 14,
    },
    "nemotron": {"partial_rotary_factor": 0.5},
    "nemotron_h": {
        "conv_kernel": 4, "expand": 2, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 21504,
        "mamba_head_dim": 64, "mamba_num_heads": 128, "max_position_embeddings": 4096,
        "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688, "n_groups": 8,
        "n_routed_experts": 8, "n_shared_experts": 1, "num_attention_heads": 32, "num_hidden_layers": 4,
        "ssm_state_size": 128, "tie_word_embeddings": False, "use_conv_bias": True,
    },
    "olmo3": {"rope_parameters": {"sliding_attention": {}, "full_attention": {}}},
    "olmoe": {"num_experts": 64},
    "opt": {"do_layer_norm_before": True, "enable_bias": True, "ffn_dim": 3072, "word_embed_proj_dim": 768},
    "phi": {"partial_rotary_factor": 0.5},
    "phimoe": {"num_local_experts": 16},
    "pixtral": {"head_dim": 64, "image_size": 1024, "num_channels": 3, "patch_size": 16},
    "qwen2_5_vl": {"tie_word_embeddings": False},
    "qwen2_moe": {
        "decoder_sparse_step": 1, "moe_intermediate_size": 1408, "num_experts": 60, "qkv_bias": True,
        "shared_expert_intermediate_size": 5632,
    },
    "qwen2_vl": {"tie_word_embeddings": False},
    "qwen3_5": {"tie_word_embeddings": False},
    "qwen3_5_moe": {"tie_word_embeddings": False},
    "qwen3_5_moe_text": {
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128, "moe_intermediate_size": 512,
        "num_experts": 256, "partial_rotary_factor": 0.25, "shared_expert_intermediate_size": 512,
    },
    "qwen3_5_moe_vision": {
        "depth": 27, "hidden_size": 1152, "in_channels": 3, "intermediate_size": 4304,
        "num_attention_heads": 16, "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 3584,
        "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
    },
    "qwen3_5_text": {
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128, "partial_rotary_factor": 0.25,
    },
    "qwen3_5_vision": {
        "depth": 27, "hidden_size": 1152, "in_channels": 3, "intermediate_size": 4304,
        "num_attention_heads": 16, "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 3584,
        "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
    },
    "qwen3_moe": {"decoder_sparse_step": 1, "moe_intermediate_size": 768, "num_experts": 128},
    "qwen3_next": {
        "decoder_sparse_step": 1, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
        "moe_intermediate_size": 512, "num_experts": 512, "partial_rotary_factor": 0.25,
        "shared_expert_intermediate_size": 512,
    },
    "qwen3_vl": {"tie_word_embeddings": False},
    "qwen3_vl_moe": {"tie_word_embeddings": False},
    "qwen3_vl_moe_text": {
        "decoder_sparse_step": 1, "head_dim": 128, "moe_intermediate_size": 1408, "num_experts": 60,
    },
    "seed_oss": {"attention_bias": True},
    "siglip2_vision_model": {
        "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_channels": 3,
        "num_hidden_layers": 12, "num_patches": 256, "patch_size": 16,
    },
    "siglip_vision_model": {
        "hidden_size": 768, "image_size": 224, "intermediate_size": 3072, "num_attention_heads": 12,
        "num_channels": 3, "num_hidden_layers": 12, "patch_size": 16,
    },
    "stablelm": {"partial_rotary_factor": 0.25},
    "starcoder2": {"use_bias": True},
    "whisper": {
        "d_model": 384, "decoder_attention_heads": 6, "decoder_ffn_dim": 1536, "decoder_layers": 4,
        "encoder_attention_heads": 6, "encoder_ffn_dim": 1536, "encoder_layers": 4, "hidden_size": 384,
        "max_source_positions": 1500, "max_target_positions": 448, "num_attention_heads": 6,
        "num_hidden_layers": 4, "num_mel_bins": 80, "tie_word_embeddings": True,
    },
    "xlm-roberta": {
        "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 512,
        "num_attention_heads": 12, "num_hidden_layers": 12, "tie_word_embeddings": True, "type_vocab_size": 2,
    },
    "zamba2": {
        "adapter_rank": 128, "head_dim": 160, "intermediate_size": 10240, "mamba_d_conv": 4,
        "mamba_d_state": 64, "mamba_expand": 2, "mamba_ngroups": 1, "n_mamba_heads": 8, "num_mem_blocks": 1,
        "use_conv_bias": True,
    },
}
# fmt: on
