"""Which architectures kvadvise understands, how each is read, and from which vLLM on it exists.

A name that is not here is refused: no number is made from a guess. Families in NESTED take their layers from the text
model inside, read by its own model_type. Which release has which name is in since.py.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from advisor.model import attention as a
from advisor.model import compressed as c
from advisor.model import encdec as e
from advisor.model import latent as m
from advisor.model import recurrent as r
from advisor.model import shared as s
from advisor.model import uneven as u
from advisor.model.config_view import ConfigView
from advisor.model.spec import Layer

Reader = Callable[[ConfigView], tuple[Layer, ...]]


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """How one architecture is read, and what else its name says."""

    read: Reader
    multimodal: bool = False
    pooling: bool = False
    encoder_only: bool = False
    encoder_decoder: bool = False
    sinks: bool = False
    qk_norm: bool = False
    alibi: bool = False


def _family(read: Reader, names: str, **more: object) -> dict[str, Architecture]:
    made = msgspec.convert({"read": None, **more}, dict)
    made["read"] = read
    entry = Architecture(**made)
    return dict.fromkeys(names.split(), entry)


ARCHITECTURES: dict[str, Architecture] = {
    # one kind of attention in every layer, or layer_types
    **_family(
        a.read_llama_like,
        "LlamaForCausalLM LLaMAForCausalLM MistralForCausalLM MixtralForCausalLM Phi3ForCausalLM GraniteForCausalLM "
        "GraniteMoeForCausalLM GraniteMoeSharedForCausalLM Starcoder2ForCausalLM InternLM2ForCausalLM "
        "InternLM3ForCausalLM InternLMForCausalLM AquilaForCausalLM AquilaModel CwmForCausalLM SolarForCausalLM "
        "XverseForCausalLM StableLmForCausalLM StableLMEpochForCausalLM OlmoForCausalLM OrionForCausalLM "
        "PersimmonForCausalLM PhiForCausalLM PhiMoEForCausalLM TeleChat2ForCausalLM TeleFLMForCausalLM "
        "NemotronForCausalLM MiniCPMForCausalLM ExaoneForCausalLM DeepseekForCausalLM ArceeForCausalLM "
        "SmolLM3ForCausalLM HeliumForCausalLM JAISLMHeadModel ApertusForCausalLM CohereForCausalLM "
        "GraniteSWAForCausalLM GraniteMoeSWAForCausalLM IQuestCoderForCausalLM TeleChat3ForCausalLM "
        "MiniMaxM2ForCausalLM OlmoeForCausalLM FlexOlmoForCausalLM Dots1ForCausalLM ArcticForCausalLM "
        "GritLM QWenLMHeadModel Ministral3ForCausalLM Step1ForCausalLM Param2MoEForCausalLM "
        "HyperCLOVAXForCausalLM NanoChatForCausalLM VaultGemmaForCausalLM MinistralForCausalLM "
        "Jais2ForCausalLM BitNetForCausalLM SarvamMoEForCausalLM",
    ),
    **_family(a.read_llama_like, "Olmo2ForCausalLM", qk_norm=True),
    **_family(
        a.read_full,
        "GemmaForCausalLM GlmForCausalLM Glm4ForCausalLM Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM "
        "SeedOssForCausalLM Grok1ModelForCausalLM Grok1ForCausalLM BailingMoeForCausalLM BailingMoeV2ForCausalLM "
        "GPTNeoXForCausalLM PanguEmbeddedForCausalLM",
    ),
    **_family(
        a.read_full,
        "Glm4MoeForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM HYV3ForCausalLM",
        qk_norm=True,
    ),
    **_family(
        a.read_qwen2,
        "Qwen2ForCausalLM Qwen2MoeForCausalLM MiMoForCausalLM",
    ),
    **_family(a.read_qwen2, "Qwen3ForCausalLM Qwen3MoeForCausalLM", qk_norm=True),
    # windows by a rule of the family
    **_family(a.every_nth_full(2), "Gemma2ForCausalLM"),
    **_family(a.every_nth_full(6), "Gemma3ForCausalLM", qk_norm=True),
    **_family(
        a.every_nth_full(4),
        "Olmo3ForCausalLM AfmoeForCausalLM ExaoneMoeForCausalLM ExaoneMoEForCausalLM",
        qk_norm=True,
    ),
    **_family(a.read_cohere2, "Cohere2ForCausalLM Cohere2MoeForCausalLM"),
    **_family(a.read_exaone4, "Exaone4ForCausalLM", qk_norm=True),
    **_family(a.read_gpt_oss, "GptOssForCausalLM", sinks=True),
    **_family(a.read_llama4, "Llama4ForCausalLM"),
    **_family(a.read_laguna, "LagunaForCausalLM", qk_norm=True),
    **_family(a.read_muse_glimmer, "MuseGlimmerForCausalLM", qk_norm=True),
    **_family(s.read_gemma3n, "Gemma3nForCausalLM", qk_norm=True),
    **_family(s.read_gemma4, "Gemma4ForCausalLM", qk_norm=True),
    # heads counted in their own way
    **_family(
        a.read_mha,
        "GPT2LMHeadModel OPTForCausalLM GPTJForCausalLM BaichuanForCausalLM BaiChuanForCausalLM",
    ),
    **_family(a.read_mha, "BloomForCausalLM", alibi=True),
    **_family(a.read_falcon, "FalconForCausalLM RWForCausalLM"),
    **_family(a.read_multi_query, "GPTBigCodeForCausalLM"),
    **_family(a.read_chatglm, "ChatGLMModel ChatGLMForConditionalGeneration"),
    **_family(a.read_attn_config, "MPTForCausalLM MptForCausalLM", alibi=True),
    **_family(a.read_attn_config, "DbrxForCausalLM"),
    **_family(u.read_nemotron_nas, "DeciLMForCausalLM"),
    **_family(u.read_step3p5, "Step3p5ForCausalLM Step3p7FlashForCausalLM"),
    **_family(u.read_step3, "Step3TextForCausalLM"),
    **_family(u.read_mimo_v2, "MiMoV2FlashForCausalLM MiMoV2ForCausalLM"),
    # latent attention
    **_family(
        m.read_deepseek,
        "DeepseekV2ForCausalLM DeepseekV3ForCausalLM MistralLarge3ForCausalLM PanguUltraMoEForCausalLM "
        "Glm4MoeLiteForCausalLM",
    ),
    **_family(m.read_sparse_mla, "DeepseekV32ForCausalLM"),
    **_family(m.read_sparse_mla, "GlmMoeDsaForCausalLM"),
    **_family(m.read_minicpm3, "MiniCPM3ForCausalLM"),
    **_family(m.read_longcat, "LongcatFlashForCausalLM"),
    **_family(c.read_deepseek_v4, "DeepseekV4ForCausalLM"),
    # recurrent states beside attention
    **_family(r.read_qwen3_next, "Qwen3NextForCausalLM", qk_norm=True),
    **_family(r.read_qwen3_next, "OlmoHybridForCausalLM", qk_norm=True),
    **_family(
        r.read_qwen3_next,
        "Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM",
        qk_norm=True,
    ),
    **_family(r.read_nemotron_h, "NemotronHForCausalLM NemotronHPuzzleForCausalLM"),
    **_family(r.read_granite_hybrid, "GraniteMoeHybridForCausalLM"),
    **_family(r.read_bamba, "BambaForCausalLM"),
    **_family(r.read_falcon_h1, "FalconH1ForCausalLM"),
    **_family(r.read_jamba, "JambaForCausalLM"),
    **_family(r.read_lfm2, "Lfm2ForCausalLM Lfm2MoeForCausalLM"),
    **_family(r.read_zamba2, "Zamba2ForCausalLM"),
    **_family(r.read_kimi_linear, "KimiLinearForCausalLM"),
    **_family(
        r.read_minimax_01,
        "MiniMaxText01ForCausalLM MiniMaxM1ForCausalLM MiniMaxForCausalLM",
    ),
    **_family(r.read_mamba, "MambaForCausalLM FalconMambaForCausalLM"),
    **_family(r.read_mamba2, "Mamba2ForCausalLM"),
    # encoder and decoder
    **_family(e.read_whisper, "WhisperForConditionalGeneration", encoder_decoder=True, multimodal=True),
    # no decoder cache
    **_family(
        e.read_pooling,
        "MistralModel Qwen2Model Qwen3Model LlamaModel Gemma2Model Gemma3TextModel InternLM2ForRewardModel "
        "Qwen2ForRewardModel Qwen2ForProcessRewardModel Qwen3ForSequenceClassification LlamaBidirectionalModel "
        "JambaForSequenceClassification GPT2ForSequenceClassification LlamaForSequenceClassification "
        "Qwen2ForSequenceClassification MistralForSequenceClassification",
        pooling=True,
    ),
    **_family(
        e.read_encoder_only,
        "BertModel BertForMaskedLM BertForSequenceClassification BertSpladeSparseEmbeddingModel RobertaModel "
        "RobertaForMaskedLM RobertaForSequenceClassification XLMRobertaModel XLMRobertaForSequenceClassification "
        "ModernBertModel ModernBertForSequenceClassification NomicBertModel GteModel GteNewModel "
        "CLIPModel SiglipModel DistilBertModel MPNetModel ElectraModel DebertaV2Model",
        encoder_only=True,
        pooling=True,
    ),
}

NESTED: frozenset[str] = frozenset(
    {
        "Ovis",
        "MiniCPMV",
        "Qwen2_5OmniForConditionalGeneration",
        "Qwen2_5OmniModel",
        "Exaone4_5_ForConditionalGeneration",
        "AudioFlamingo3ForConditionalGeneration",
        "Blip2ForConditionalGeneration",
        "AriaForConditionalGeneration",
        "BeeForConditionalGeneration",
        "Cohere2VisionForConditionalGeneration",
        "DeepseekVLV2ForCausalLM",
        "DotsOCRForCausalLM",
        "Gemma3ForConditionalGeneration",
        "Gemma3nForConditionalGeneration",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "Glm4vForConditionalGeneration",
        "Glm4vMoeForConditionalGeneration",
        "GraniteSpeechForConditionalGeneration",
        "H2OVLChatModel",
        "Idefics3ForConditionalGeneration",
        "InternS1ForConditionalGeneration",
        "InternVLChatModel",
        "InternVLForConditionalGeneration",
        "KeyeForConditionalGeneration",
        "KimiK25ForConditionalGeneration",
        "KimiVLForConditionalGeneration",
        "Lfm2VlForConditionalGeneration",
        "LightOnOCRForConditionalGeneration",
        "Llama4ForConditionalGeneration",
        "LlavaForConditionalGeneration",
        "LlavaNextForConditionalGeneration",
        "LlavaNextVideoForConditionalGeneration",
        "LlavaOnevisionForConditionalGeneration",
        "Mistral3ForConditionalGeneration",
        "MuseGlimmerForConditionalGeneration",
        "NVLM_D",
        "NemotronH_Nano_VL_V2",
        "Ovis2_5",
        "PaddleOCRVLForConditionalGeneration",
        "PaliGemmaForConditionalGeneration",
        "Phi3VForCausalLM",
        "Phi4MMForCausalLM",
        "PixtralForConditionalGeneration",
        "Qwen2AudioForConditionalGeneration",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "SkyworkR1VChatModel",
        "SmolVLMForConditionalGeneration",
        "Step3VLForConditionalGeneration",
        "UltravoxModel",
        "VoxtralForConditionalGeneration",
    }
)

# the text model inside a multimodal one, by its model_type
TEXT_ARCHITECTURE: dict[str, str] = {
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "ministral3": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen2_vl": "Qwen2ForCausalLM",
    "qwen2_vl_text": "Qwen2ForCausalLM", "qwen2_5_vl": "Qwen2ForCausalLM", "qwen2_5_vl_text": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "qwen3_vl_text": "Qwen3ForCausalLM",
    "qwen3_vl_moe_text": "Qwen3MoeForCausalLM", "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM", "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM", "gemma3n_text": "Gemma3nForCausalLM", "gemma4_text": "Gemma4ForCausalLM",
    "gemma4_unified_text": "Gemma4ForCausalLM", "llama4_text": "Llama4ForCausalLM", "phi3": "Phi3ForCausalLM",
    "phi3_v": "Phi3ForCausalLM", "phi4mm": "Phi3ForCausalLM", "phi4_multimodal": "Phi3ForCausalLM",
    "internlm2": "InternLM2ForCausalLM", "internlm3": "InternLM3ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM", "lfm2": "Lfm2ForCausalLM", "lfm2_moe": "Lfm2MoeForCausalLM",
    "cohere2": "Cohere2ForCausalLM", "cohere": "CohereForCausalLM", "muse_glimmer_text": "MuseGlimmerForCausalLM",
    "granite": "GraniteForCausalLM", "glm4": "Glm4ForCausalLM", "glm4v_text": "Glm4ForCausalLM",
    "glm4v_moe_text": "Glm4MoeForCausalLM", "glm": "GlmForCausalLM", "step3_text": "Step3TextForCausalLM",
    "nemotron_h": "NemotronHForCausalLM", "gpt_oss": "GptOssForCausalLM", "ernie4_5": "Ernie4_5ForCausalLM",
    "paddleocr_vl_text": "Ernie4_5ForCausalLM", "smollm3": "SmolLM3ForCausalLM", "seed_oss": "SeedOssForCausalLM",
    "aria_text": "LlamaForCausalLM", "opt": "OPTForCausalLM", "exaone4": "Exaone4ForCausalLM",
    "qwen2_5_omni_text": "Qwen2ForCausalLM", "minicpmv": "Qwen2ForCausalLM", "dots_ocr": "Qwen2ForCausalLM",
    "paddleocr_vl": "Ernie4_5ForCausalLM",
}  # fmt: skip
