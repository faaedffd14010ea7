"""Which architecture is which family, and what its modules are called in a checkpoint."""

from __future__ import annotations

from advisor.weights.family import Family
from advisor.weights.quant_names import COMMON_FUSED, Fused, Renames

QKV_ONLY: Fused = {"qkv_proj": COMMON_FUSED["qkv_proj"]}

LATENT: Fused = {**COMMON_FUSED, "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa")}
DELTA: Fused = {
    **COMMON_FUSED,
    "in_proj_qkvz": ("in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_b", "in_proj_a"),
}
LFM: Fused = {"qkv_proj": COMMON_FUSED["qkv_proj"], "w13": ("w1", "w3")}
LFM_NAMES = Renames(substrings=((".conv.", ".short_conv."),))

NESTED = Renames(
    (
        ("model.visual.", "visual."),
        ("model.vision_tower.", "vision_tower."),
        ("model.multi_modal_projector.", "multi_modal_projector."),
        ("lm_head.", "language_model.lm_head."),
        ("model.language_model.", "language_model.model."),
    )
)
QWEN_VL = Renames((*NESTED.prefixes[:3], NESTED.prefixes[4], NESTED.prefixes[3], ("model.", "language_model.model.")))
GEMMA4 = Renames(
    (
        ("model.vision_tower", "vision_tower"),
        ("model.embed_vision", "embed_vision"),
        ("model.audio_tower.", "audio_tower."),
        ("model.embed_audio.", "embed_audio."),
        ("model.language_model.", "language_model.model."),
        ("lm_head.", "language_model.lm_head."),
        ("model", "language_model.model"),
    )
)
MUSE = Renames(
    (("model.language_model.", "model."), ("language_model.", "model."), ("model.vision_tower.", "vision_encoder."))
)
IDEFICS = Renames((("model.text_model.", "language_model.model."), ("lm_head.", "language_model.lm_head.")))
DOTS = Renames((("model.", "language_model.model."), ("lm_head.", "language_model.lm_head.")))
OMNI = Renames(
    (
        ("thinker.lm_head.", "language_model.lm_head."),
        ("thinker.model.", "language_model.model."),
        ("thinker.", ""),
    )
)
QWEN3_VL: Fused = {**COMMON_FUSED, "qkv": ("qkv",)}


def _named(names: str, family: Family) -> dict[str, Family]:
    return dict.fromkeys(names.split(), family)


FAMILIES: dict[str, Family] = {
    **_named(
        "LlamaForCausalLM LLaMAForCausalLM MistralForCausalLM Ministral3ForCausalLM InternLM3ForCausalLM "
        "TeleChat3ForCausalLM IQuestCoderForCausalLM AquilaForCausalLM AquilaModel InternLMForCausalLM "
        "XverseForCausalLM SolarForCausalLM TeleFLMForCausalLM",
        Family("dense.llama"),
    ),
    **_named("LlamaModel MistralModel GritLM", Family("dense.llama")),
    **_named("Qwen2Model", Family("dense.qwen2")),
    **_named("Qwen3Model", Family("dense.qwen3")),
    **_named("Gemma2Model", Family("gemma.gemma2")),
    **_named("Qwen2ForCausalLM MiMoForCausalLM", Family("dense.qwen2")),
    **_named("Qwen3ForCausalLM", Family("dense.qwen3")),
    **_named("Phi3ForCausalLM", Family("dense.phi3", fused={})),
    **_named("GraniteForCausalLM GraniteSWAForCausalLM", Family("dense.granite")),
    **_named("CohereForCausalLM Cohere2ForCausalLM", Family("dense.cohere")),
    **_named("Exaone4ForCausalLM", Family("dense.exaone4")),
    **_named("ExaoneForCausalLM", Family("dense.exaone")),
    **_named("Glm4ForCausalLM", Family("dense.glm4")),
    **_named("Ernie4_5ForCausalLM", Family("dense.ernie45")),
    **_named("HunYuanDenseV1ForCausalLM", Family("transformers.hunyuan")),
    **_named("StableLmForCausalLM StableLMEpochForCausalLM", Family("dense.stablelm")),
    **_named("InternLM2ForCausalLM", Family("dense.internlm2")),
    **_named("MiniCPMForCausalLM", Family("dense.minicpm")),
    **_named("NemotronForCausalLM", Family("dense.nemotron")),
    **_named("Olmo2ForCausalLM", Family("transformers.olmo2")),
    **_named("Olmo3ForCausalLM", Family("transformers.olmo3")),
    **_named("SmolLM3ForCausalLM", Family("transformers.smollm3")),
    **_named("Starcoder2ForCausalLM", Family("transformers.starcoder2")),
    **_named("SeedOssForCausalLM", Family("transformers.seed_oss")),
    **_named("GlmForCausalLM", Family("transformers.glm")),
    **_named("CwmForCausalLM MinistralForCausalLM HeliumForCausalLM", Family("transformers.llama_like")),
    **_named("ArceeForCausalLM", Family("transformers.arcee")),
    **_named("Jais2ForCausalLM", Family("transformers.jais2")),
    **_named("OlmoForCausalLM", Family("transformers.olmo")),
    **_named("VaultGemmaForCausalLM", Family("transformers.vaultgemma")),
    **_named("BitNetForCausalLM", Family("transformers.bitnet")),
    **_named("PersimmonForCausalLM", Family("older.persimmon")),
    **_named("PanguEmbeddedForCausalLM", Family("dense.llama")),
    **_named("ApertusForCausalLM", Family("dense_others.apertus", fused=QKV_ONLY)),
    **_named("HyperCLOVAXForCausalLM", Family("dense_others.hyperclova_x")),
    **_named("OrionForCausalLM", Family("dense_others.orion")),
    **_named("Plamo3ForCausalLM", Family("dense_others.plamo3")),
    **_named("TeleChat2ForCausalLM", Family("dense_others.telechat2")),
    **_named("IQuestLoopCoderForCausalLM", Family("dense_others.iquest_loop")),
    **_named("HrmTextForCausalLM", Family("dense_others.hrm_text")),
    **_named("DeciLMForCausalLM", Family("dense_others.nemotron_nas")),
    # routed experts
    **_named("Cohere2MoeForCausalLM", Family("moe_others.cohere2_moe")),
    **_named("ExaoneMoeForCausalLM ExaoneMoEForCausalLM", Family("moe_others.exaone_moe")),
    **_named("AfmoeForCausalLM", Family("moe_others.afmoe")),
    **_named("HYV3ForCausalLM", Family("moe_others.hy_v3")),
    **_named("MiMoV2FlashForCausalLM MiMoV2ForCausalLM", Family("moe_others.mimo_v2")),
    **_named("Step3p5ForCausalLM", Family("step.step3p5")),
    **_named("Step3TextForCausalLM", Family("step.step3_text")),
    **_named("BailingMoeForCausalLM BailingMoeV2ForCausalLM SarvamMoEForCausalLM", Family("moe_others.bailing")),
    **_named("Param2MoEForCausalLM", Family("moe_others.param2_moe")),
    **_named("Dots1ForCausalLM", Family("transformers.dots1")),
    **_named("MellumForCausalLM", Family("transformers.mellum")),
    **_named("FlexOlmoForCausalLM", Family("transformers.flex_olmo")),
    **_named("HunYuanMoEV1ForCausalLM", Family("transformers.hunyuan_moe")),
    **_named("DbrxForCausalLM", Family("legacy.dbrx", fused={})),
    **_named("Qwen2MoeForCausalLM", Family("moe.qwen2_moe")),
    **_named("Qwen3MoeForCausalLM", Family("moe.qwen3_moe")),
    **_named("MixtralForCausalLM", Family("moe.mixtral")),
    **_named("Glm4MoeForCausalLM", Family("moe.glm4_moe")),
    **_named("MiniMaxM2ForCausalLM", Family("moe.minimax_m2", fused=QKV_ONLY)),
    **_named("GraniteMoeForCausalLM GraniteMoeSharedForCausalLM GraniteMoeSWAForCausalLM", Family("moe.granite_moe")),
    **_named("PhiMoEForCausalLM", Family("moe.phi_moe")),
    **_named("Ernie4_5_MoeForCausalLM", Family("moe.ernie45_moe")),
    **_named("OlmoeForCausalLM", Family("moe.olmoe")),
    **_named("GptOssForCausalLM", Family("moe.gpt_oss", Renames(substrings=((".self_attn.", ".attn."),)), QKV_ONLY)),
    **_named("LagunaForCausalLM", Family("moe.laguna", fused=QKV_ONLY)),
    # latent attention
    **_named(
        "DeepseekForCausalLM DeepseekV2ForCausalLM DeepseekV3ForCausalLM MistralLarge3ForCausalLM",
        Family("latent.deepseek", fused=LATENT),
    ),
    **_named("AXK1ForCausalLM", Family("latent.ax_k1")),
    **_named("SarvamMLAForCausalLM", Family("latent.sarvam_mla")),
    **_named("MiniCPM3ForCausalLM", Family("latent.minicpm3")),
    **_named("LongcatFlashForCausalLM", Family("latent.longcat_flash", fused=LATENT)),
    **_named("PanguUltraMoEForCausalLM", Family("latent.pangu", fused=LATENT)),
    **_named("DeepseekV32ForCausalLM GlmMoeDsaForCausalLM", Family("latent.deepseek_sparse", fused=LATENT)),
    **_named("Glm4MoeLiteForCausalLM", Family("latent.glm4_moe_lite", fused=LATENT)),
    **_named("DeepseekV4ForCausalLM", Family("compressed.deepseek_v4")),
    # recurrent layers beside attention
    **_named("Qwen3NextForCausalLM", Family("hybrid.qwen3_next", fused=COMMON_FUSED)),
    **_named(
        "Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM",
        Family("hybrid.qwen3_5", Renames((("model.language_model.", "model."),)), DELTA),
    ),
    **_named(
        "NemotronHForCausalLM NemotronHPuzzleForCausalLM",
        Family("hybrid.nemotron_h", Renames((("backbone", "model"),), (("embeddings", "embed_tokens"),)), QKV_ONLY),
    ),
    **_named(
        "Lfm2ForCausalLM Lfm2MoeForCausalLM",
        Family("hybrid.lfm2", Renames(substrings=((".conv.", ".short_conv."),)), LFM),
    ),
    **_named("MambaForCausalLM FalconMambaForCausalLM", Family("recurrent.mamba")),
    **_named("Mamba2ForCausalLM", Family("recurrent.mamba_2")),
    **_named("Zamba2ForCausalLM", Family("recurrent.zamba2")),
    **_named("OlmoHybridForCausalLM", Family("recurrent.olmo_hybrid")),
    **_named("KimiLinearForCausalLM", Family("recurrent.kimi_linear")),
    **_named("JambaForCausalLM", Family("hybrid.jamba")),
    **_named("GraniteMoeHybridForCausalLM", Family("hybrid.granite_hybrid")),
    **_named("BambaForCausalLM", Family("hybrid.bamba", is_checked=False)),
    **_named("FalconH1ForCausalLM", Family("hybrid.falcon_h1")),
    # Gemma
    **_named("GemmaForCausalLM", Family("gemma.gemma")),
    **_named("Gemma2ForCausalLM", Family("gemma.gemma2")),
    **_named("Gemma3ForCausalLM", Family("gemma.gemma3")),
    **_named("Gemma3TextModel", Family("gemma.gemma3_encoder")),
    **_named("Gemma3nForCausalLM", Family("gemma.gemma3n")),
    **_named("Gemma4ForCausalLM", Family("gemma.gemma4", Renames((("model.language_model.", "model."),)))),
    # shapes of their own
    **_named("GPT2LMHeadModel", Family("legacy.gpt2", fused={})),
    **_named("GPTJForCausalLM", Family("legacy.gpt_j", fused=QKV_ONLY)),
    **_named("GPTBigCodeForCausalLM", Family("older.gpt_bigcode", fused={})),
    **_named("OPTForCausalLM", Family("legacy.opt", fused=QKV_ONLY)),
    **_named("BloomForCausalLM", Family("legacy.bloom", fused={})),
    **_named("ChatGLMModel ChatGLMForConditionalGeneration", Family("legacy.chatglm", fused={})),
    **_named("FalconForCausalLM RWForCausalLM", Family("legacy.falcon", fused={})),
    **_named("PhiForCausalLM", Family("older.phi", fused=QKV_ONLY)),
    **_named("GPTNeoXForCausalLM", Family("older.gpt_neox", fused={})),
    **_named("QWenLMHeadModel", Family("legacy.qwen1", fused={"gate_up_proj": ("w2", "w1")}, is_checked=False)),
    **_named("BaichuanForCausalLM BaiChuanForCausalLM", Family("legacy.baichuan", is_checked=False)),
    **_named("MPTForCausalLM MptForCausalLM", Family("legacy.mpt", fused={}, is_checked=False)),
    # multimodal
    **_named("Qwen2VLForConditionalGeneration", Family("multimodal.qwen2_vl", QWEN_VL)),
    **_named("Qwen2_5_VLForConditionalGeneration", Family("multimodal.qwen25_vl", QWEN_VL)),
    **_named("Qwen3VLForConditionalGeneration", Family("multimodal.qwen3_vl", NESTED, QWEN3_VL)),
    **_named("Qwen3VLMoeForConditionalGeneration", Family("multimodal.qwen3_vl_moe", NESTED, QWEN3_VL)),
    **_named(
        "Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration",
        Family("multimodal.qwen35_vl", NESTED, DELTA),
    ),
    **_named("Gemma3ForConditionalGeneration", Family("multimodal.gemma3", NESTED)),
    **_named("Gemma4ForConditionalGeneration", Family("multimodal.gemma4", GEMMA4)),
    **_named("Llama4ForConditionalGeneration", Family("multimodal.llama4")),
    **_named("Llama4ForCausalLM", Family("multimodal.llama4_text")),
    **_named("Mistral3ForConditionalGeneration", Family("multimodal.mistral3", QWEN_VL)),
    **_named("LlavaForConditionalGeneration", Family("multimodal.llava", QWEN_VL)),
    **_named(
        "Lfm2VlForConditionalGeneration",
        Family("multimodal.lfm2_vl", Renames(NESTED.prefixes, ((".conv.", ".short_conv."),)), LFM),
    ),
    **_named(
        "KimiK25ForConditionalGeneration",
        Family("multimodal.kimi_k25", Renames((("language_model.layers.", "language_model.model.layers."),)), LATENT),
    ),
    **_named("MuseGlimmerForConditionalGeneration", Family("multimodal.muse_glimmer", MUSE)),
    **_named("MuseGlimmerForCausalLM", Family("multimodal.muse_glimmer_text", MUSE)),
    **_named("LlavaNextForConditionalGeneration", Family("multimodal_others.llava_next", QWEN_VL)),
    **_named("LlavaNextVideoForConditionalGeneration", Family("multimodal_others.llava_next_video", QWEN_VL)),
    **_named("LlavaOnevisionForConditionalGeneration", Family("multimodal_others.llava_onevision", QWEN_VL)),
    **_named("PaliGemmaForConditionalGeneration", Family("multimodal_others.paligemma", NESTED)),
    **_named("InternVLChatModel", Family("multimodal_others.internvl_chat")),
    **_named("SkyworkR1VChatModel", Family("multimodal_others.internvl_chat", is_checked=False)),
    **_named("InternVLForConditionalGeneration", Family("multimodal_others.internvl", NESTED)),
    **_named("KimiVLForConditionalGeneration", Family("multimodal_others.kimi_vl", fused=LATENT)),
    **_named(
        "Idefics3ForConditionalGeneration SmolVLMForConditionalGeneration",
        Family("multimodal_others.idefics3", IDEFICS),
    ),
    **_named(
        "Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration", Family("multimodal_others.glm4v", QWEN_VL)
    ),
    **_named("Cohere2VisionForConditionalGeneration", Family("multimodal_others.cohere2_vision", NESTED)),
    **_named("Exaone4_5_ForConditionalGeneration", Family("multimodal_others.exaone4_5", NESTED)),
    **_named("DotsOCRForCausalLM", Family("multimodal_others.dots_ocr", DOTS)),
    **_named("PaddleOCRVLForConditionalGeneration", Family("multimodal_others.paddle_ocr", DOTS)),
    **_named("MiniCPMV", Family("multimodal_others.minicpm_v")),
    **_named("Phi3VForCausalLM", Family("multimodal_others.phi3_v", fused={})),
    **_named("Qwen2AudioForConditionalGeneration", Family("multimodal_others.qwen2_audio")),
    **_named("Qwen2_5OmniModel Qwen2_5OmniForConditionalGeneration", Family("multimodal_others.qwen25_omni", OMNI)),
    **_named("Gemma3nForConditionalGeneration", Family("multimodal_others.gemma3n", GEMMA4)),
    **_named("Gemma4UnifiedForConditionalGeneration", Family("multimodal_others.gemma4_unified", GEMMA4)),
    # encoders
    **_named("WhisperForConditionalGeneration", Family("encoder.whisper")),
    **_named(
        "BertModel BertForMaskedLM BertForSequenceClassification RobertaModel RobertaForMaskedLM "
        "RobertaForSequenceClassification XLMRobertaModel XLMRobertaForSequenceClassification",
        Family("encoder.bert", pooling=True),
    ),
}
