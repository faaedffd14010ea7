"""Defaults of transformers' and vLLM's config classes for keys that decide weights, beside those of the KV cache.

Read off the classes (transformers 5.19.0, vLLM 0.32.0 transformers_utils/configs); keyed by model_type. Defaults that a
class derives from other keys are left to the code that reads them.
"""

from __future__ import annotations

from typing import Any

# fmt: off
WEIGHT_DEFAULTS: dict[str, dict[str, Any]] = {
    "afmoe": {"moe_intermediate_size": 1408, "num_dense_layers": 1, "num_experts": 64, "num_shared_experts": 2},
    "aria": {"tie_word_embeddings": False},
    "aria_text": {"moe_num_experts": 8, "moe_num_shared_experts": 2},
    "audioflamingo3": {"projector_bias": True},
    "audioflamingo3_encoder": {
        "d_model": 1280, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "encoder_layers": 32,
        "hidden_size": 1280, "intermediate_size": 5120, "max_source_positions": 1500, "num_attention_heads": 20,
        "num_hidden_layers": 32, "num_mel_bins": 128,
    },
    "aya_vision": {"downsample_factor": 2, "tie_word_embeddings": True},
    "bamba": {
        "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 256, "mamba_expand": 2,
        "mamba_n_groups": 1, "mamba_n_heads": 128, "partial_rotary_factor": 0.5,
    },
    "bert": {
        "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 512,
        "num_attention_heads": 12, "num_hidden_layers": 12, "tie_word_embeddings": True, "type_vocab_size": 2,
    },
    "blip_2_vision_model": {
        "hidden_size": 1408, "image_size": 224, "intermediate_size": 6144, "num_attention_heads": 16,
        "num_hidden_layers": 39, "patch_size": 14, "qkv_bias": True,
    },
    "bloom": {"hidden_size": 64, "n_head": 8, "n_layer": 2, "tie_word_embeddings": True, "vocab_size": 250880},
    "chatglm": {
        "ffn_hidden_size": 13696, "hidden_size": 4096, "max_position_embeddings": 2048,
        "num_attention_heads": 32, "num_hidden_layers": 28,
    },
    "clip_vision_model": {
        "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096, "num_attention_heads": 16,
        "num_channels": 3, "num_hidden_layers": 24, "patch_size": 14,
    },
    "cohere2": {"head_dim": 128},
    "cohere2_moe": {"num_experts": 8, "num_shared_experts": 0},
    "cohere2_vision": {"downsample_factor": 2, "tie_word_embeddings": True},
    "dbrx": {"tie_word_embeddings": False},
    "deepseek_v2": {
        "first_k_dense_replace": 0, "kv_lora_rank": 512, "moe_intermediate_size": 1407, "n_routed_experts": 64,
        "n_shared_experts": 2, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    },
    "deepseek_v3": {
        "first_k_dense_replace": 3, "kv_lora_rank": 512, "moe_intermediate_size": 2048, "n_routed_experts": 256,
        "n_shared_experts": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    },
    "deepseek_v32": {
        "first_k_dense_replace": 3, "kv_lora_rank": 512, "max_position_embeddings": 4096,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "q_lora_rank": 1536,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    },
    "dots1": {"first_k_dense_replace": 0, "moe_intermediate_size": 1408},
    "ernie4_5_moe": {
        "moe_intermediate_size": 1536, "moe_layer_end_index": 27, "moe_layer_interval": 1,
        "moe_layer_start_index": 1, "moe_num_experts": 64, "moe_num_shared_experts": 2, "num_experts": 64,
    },
    "exaone4_5": {"tie_word_embeddings": False},
    "exaone4_5_vision": {
        "depth": 32, "hidden_size": 3584, "in_channels": 3, "intermediate_size": 3420,
        "num_attention_heads": 16, "num_heads": 16, "num_key_value_heads": 8, "out_hidden_size": 3584,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    },
    "exaone_moe": {
        "first_k_dense_replace": 1, "moe_intermediate_size": 1024, "num_experts": 64, "num_shared_experts": 1,
    },
    "falcon": {"multi_query": True, "parallel_attn": True},
    "falcon_h1": {
        "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 8, "mamba_d_ssm": 1024,
        "mamba_d_state": 256, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128,
    },
    "falcon_mamba": {
        "conv_kernel": 4, "expand": 2, "hidden_size": 768, "num_hidden_layers": 32, "state_size": 16,
        "tie_word_embeddings": True, "use_conv_bias": True,
    },
    "flex_olmo": {"num_experts": 7},
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
    "gemma4_unified": {"tie_word_embeddings": True},
    "gemma4_unified_text": {
        "num_kv_shared_layers": 0,
        "rope_parameters": {"sliding_attention": {},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25}},
    },
    "gemma4_unified_vision": {"mm_embed_dim": 3840, "mm_posemb_size": 1120, "model_patch_size": 48},
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
    "glm4v": {"tie_word_embeddings": False},
    "glm4v_moe": {"tie_word_embeddings": False},
    "glm4v_moe_text": {
        "attention_bias": True, "first_k_dense_replace": 1, "moe_intermediate_size": 1408,
        "n_routed_experts": 128, "n_shared_experts": 1, "partial_rotary_factor": 0.5,
        "rope_parameters": {"partial_rotary_factor": 0.5},
    },
    "glm4v_moe_vision": {
        "depth": 24, "hidden_size": 1536, "image_size": 336, "in_channels": 3, "intermediate_size": 13696,
        "num_attention_heads": 12, "num_heads": 12, "out_hidden_size": 4096, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2,
    },
    "glm_moe_dsa": {
        "first_k_dense_replace": 3, "index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048,
        "kv_lora_rank": 512, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
        "q_lora_rank": 2048, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
    },
    "gpt2": {"tie_word_embeddings": True},
    "gpt_bigcode": {"multi_query": True, "tie_word_embeddings": True},
    "gpt_neox": {
        "attention_bias": True, "rope_parameters": {"partial_rotary_factor": 0.25},
        "use_parallel_residual": True,
    },
    "gpt_oss": {"attention_bias": True, "num_experts": 128},
    "gptj": {
        "n_embd": 4096, "n_head": 16, "n_positions": 2048, "tie_word_embeddings": False, "vocab_size": 50400,
    },
    "granite_speech": {"tie_word_embeddings": True},
    "granitemoe": {"num_local_experts": 8},
    "granitemoehybrid": {
        "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 256, "mamba_expand": 2,
        "mamba_n_groups": 1, "mamba_n_heads": 128, "num_local_experts": 8, "shared_intermediate_size": 1024,
    },
    "granitemoeshared": {"num_local_experts": 8, "shared_intermediate_size": 0},
    "hrm_text": {"num_hidden_layers": 128},
    "hunyuan_v1_moe": {"num_experts": 1},
    "hy_v3": {"moe_intermediate_size": 1536, "num_experts": 192, "num_shared_experts": 1},
    "hyperclovax": {"use_post_norm": True},
    "idefics3": {"scale_factor": 2, "tie_word_embeddings": False},
    "idefics3_vision": {
        "hidden_size": 1152, "image_size": 224, "intermediate_size": 3072, "num_attention_heads": 16,
        "num_channels": 3, "num_hidden_layers": 12, "patch_size": 32,
    },
    "internvl": {"tie_word_embeddings": True},
    "internvl_vision": {
        "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_channels": 3,
        "num_hidden_layers": 24, "use_absolute_position_embeddings": True,
    },
    "jais2": {"attention_bias": True, "mlp_bias": True},
    "jamba": {
        "attn_layer_offset": 4, "attn_layer_period": 8, "expert_layer_offset": 1, "expert_layer_period": 2,
        "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_expand": 2, "num_experts": 16,
    },
    "kimi_k2": {
        "first_k_dense_replace": 3, "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
        "max_position_embeddings": 4096, "moe_intermediate_size": 2048, "n_routed_experts": 256,
        "n_shared_experts": 1, "num_attention_heads": 128, "num_hidden_layers": 61, "num_key_value_heads": 128,
        "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "tie_word_embeddings": False,
        "v_head_dim": 128, "vocab_size": 129280,
    },
    "kimi_k25": {"tie_word_embeddings": True},
    "kimi_linear": {
        "first_k_dense_replace": 0, "hidden_size": 4096, "intermediate_size": 11008,
        "max_position_embeddings": 4096, "moe_layer_freq": 1, "num_hidden_layers": 32, "num_shared_experts": 0,
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
    "llava_next": {"multimodal_projector_bias": True, "tie_word_embeddings": False, "vision_feature_layer": -2},
    "llava_next_video": {
        "multimodal_projector_bias": True, "tie_word_embeddings": False, "vision_feature_layer": -2,
    },
    "llava_onevision": {"multimodal_projector_bias": True, "tie_word_embeddings": False},
    "longcat_flash": {
        "expert_ffn_hidden_size": 2048, "ffn_hidden_size": 12288, "hidden_size": 6144,
        "intermediate_size": 12288, "kv_lora_rank": 512, "max_position_embeddings": 131072,
        "moe_intermediate_size": 2048, "n_routed_experts": 512, "num_attention_heads": 64,
        "num_hidden_layers": 56, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "tie_word_embeddings": False, "v_head_dim": 128, "vocab_size": 131072, "zero_expert_num": 256,
    },
    "mamba": {
        "conv_kernel": 4, "expand": 2, "hidden_size": 768, "num_hidden_layers": 32, "state_size": 16,
        "tie_word_embeddings": True, "use_conv_bias": True,
    },
    "mamba2": {
        "conv_kernel": 4, "expand": 2, "head_dim": 64, "hidden_size": 4096, "n_groups": 8, "num_heads": 128,
        "num_hidden_layers": 64, "state_size": 128, "tie_word_embeddings": False, "time_step_rank": 256,
        "use_conv_bias": True, "vocab_size": 32768,
    },
    "mellum": {
        "moe_intermediate_size": 896, "num_experts": 64,
        "rope_parameters": {"full_attention": {}, "sliding_attention": {}},
    },
    "mimo_v2_flash": {
        "moe_intermediate_size": 2048, "n_routed_experts": 256,
        "rope_parameters": {"full_attention": {"partial_rotary_factor": 0.334},
            "sliding_attention": {"partial_rotary_factor": 0.334}},
        "v_head_dim": 128,
    },
    "minicpm3": {
        "kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
        "v_head_dim": 64,
    },
    "minimax_m2": {"num_experts": 256},
    "mistral3": {"spatial_merge_size": 2, "tie_word_embeddings": True},
    "mistral3_vision": {
        "head_dim": 64, "hidden_size": 1024, "image_size": 1540, "intermediate_size": 4096,
        "num_attention_heads": 16, "num_channels": 3, "num_hidden_layers": 24, "patch_size": 14,
    },
    "mixtral": {"num_experts": 8},
    "modernbert": {
        "hidden_size": 768, "intermediate_size": 1152, "max_position_embeddings": 8192,
        "num_attention_heads": 12, "num_hidden_layers": 22,
        "rope_parameters": {"sliding_attention": {}, "full_attention": {}}, "sliding_window": 64,
        "tie_word_embeddings": True, "vocab_size": 50368,
    },
    "mpt": {"tie_word_embeddings": True},
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
    "nomic_bert": {
        "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 2048,
        "num_attention_heads": 12, "num_hidden_layers": 12, "tie_word_embeddings": True, "type_vocab_size": 2,
        "vocab_size": 30528,
    },
    "olmo3": {"rope_parameters": {"sliding_attention": {}, "full_attention": {}}},
    "olmo_hybrid": {
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 96, "linear_num_key_heads": 30,
        "linear_num_value_heads": 30, "linear_value_head_dim": 192,
    },
    "olmoe": {"num_experts": 64},
    "opt": {"do_layer_norm_before": True, "enable_bias": True, "ffn_dim": 3072, "word_embed_proj_dim": 768},
    "paddleocr_vl": {"tie_word_embeddings": True},
    "paligemma": {"hidden_size": 2048, "projection_dim": 2048, "tie_word_embeddings": True, "vocab_size": 257152},
    "persimmon": {
        "partial_rotary_factor": 0.5, "qk_layernorm": True, "rope_parameters": {"partial_rotary_factor": 0.5},
    },
    "phi": {"partial_rotary_factor": 0.5},
    "phimoe": {"num_local_experts": 16},
    "pixtral": {"head_dim": 64, "image_size": 1024, "num_channels": 3, "patch_size": 16},
    "qwen2_5_omni_audio_encoder": {
        "d_model": 1280, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "encoder_layers": 32,
        "hidden_size": 1280, "intermediate_size": 5120, "max_source_positions": 1500, "num_attention_heads": 20,
        "num_hidden_layers": 32, "num_mel_bins": 128,
    },
    "qwen2_5_omni_thinker": {"tie_word_embeddings": False},
    "qwen2_5_omni_vision_encoder": {
        "depth": 32, "hidden_size": 3584, "in_channels": 3, "intermediate_size": 3420,
        "num_attention_heads": 16, "num_heads": 16, "out_hidden_size": 3584, "patch_size": 14,
        "spatial_merge_size": 2, "temporal_patch_size": 2,
    },
    "qwen2_5_vl": {"tie_word_embeddings": False},
    "qwen2_5_vl_vision": {
        "depth": 32, "hidden_size": 3584, "in_channels": 3, "intermediate_size": 3420, "num_heads": 16,
        "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    },
    "qwen2_audio_encoder": {
        "d_model": 1280, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "encoder_layers": 32,
        "hidden_size": 1280, "intermediate_size": 5120, "max_source_positions": 1500, "num_attention_heads": 20,
        "num_hidden_layers": 32, "num_mel_bins": 128,
    },
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
    "qwen3_vl_vision": {
        "depth": 27, "hidden_size": 1152, "in_channels": 3, "intermediate_size": 4304, "num_heads": 16,
        "num_position_embeddings": 2304, "out_hidden_size": 3584, "patch_size": 16, "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
    "roberta": {
        "hidden_size": 768, "intermediate_size": 3072, "max_position_embeddings": 512,
        "num_attention_heads": 12, "num_hidden_layers": 12, "tie_word_embeddings": True, "type_vocab_size": 2,
        "vocab_size": 50265,
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
    "smolvlm": {"scale_factor": 2, "tie_word_embeddings": False},
    "smolvlm_vision": {
        "hidden_size": 1152, "image_size": 224, "intermediate_size": 3072, "num_attention_heads": 16,
        "num_channels": 3, "num_hidden_layers": 12, "patch_size": 32,
    },
    "stablelm": {"partial_rotary_factor": 0.25},
    "starcoder2": {"use_bias": True},
    "step3_text": {
        "head_dim": 256, "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 5120,
        "moe_num_experts": 48, "num_attention_groups": 1, "num_attention_heads": 64, "num_hidden_layers": 61,
        "share_expert_dim": 5120, "share_q_dim": 2048, "vocab_size": 128815,
    },
    "step3_vl": {"hidden_size": 7168, "projector_bias": True},
    "step3p5": {
        "hidden_size": 5120, "intermediate_size": 13312, "moe_intermediate_size": 10240, "moe_num_experts": 16,
        "num_attention_groups": 8, "num_attention_heads": 40, "num_hidden_layers": 48,
        "share_expert_dim": 40960, "vocab_size": 65536,
    },
    "ultravox": {"hidden_size": 4096},
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
