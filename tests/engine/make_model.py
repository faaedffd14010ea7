# mypy: ignore-errors
"""Write tiny random-weight models and a tokenizer trained on the spot: ENGINE_PYTHON make_model.py DIRECTORY KIND...

Each KIND gets a directory of its name: `gqa` (Llama), `mha` (OPT), `mqa` (GPT BigCode), `windows` (Gemma 3: five
sliding layers to a full one), `mla` (DeepSeek V2), `linear` (Qwen3-Next: delta net beside attention), `mamba` (Falcon
H1: Mamba2 beside attention). The same seed gives the same weights; the tokenizer knows every byte, so any text can be
sent. Nothing is downloaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 1024
SPECIAL = ["<pad>", "<s>", "</s>"]
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
BASE = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = BASE | {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "max_position_embeddings": 4096,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 64}


def gqa():
    """Four query heads to two of keys and values."""
    return hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES, head_dim=64))


def mha():
    """A head of keys and values to each query head, learned positions."""
    sizes = {"hidden_size": 256, "word_embed_proj_dim": 256, "ffn_dim": 512, "num_hidden_layers": 4}
    return hf.OPTForCausalLM(hf.OPTConfig(**BASE, **sizes, num_attention_heads=4, max_position_embeddings=4096))


def mqa():
    """One head of keys and values to all query heads."""
    sizes = {"n_embd": 256, "n_inner": 512, "n_layer": 4, "n_head": 4, "n_positions": 4096}
    return hf.GPTBigCodeForCausalLM(hf.GPTBigCodeConfig(**BASE, **sizes, multi_query=True))


def windows():
    """Five layers that look back 256 tokens to one that looks back to the start."""
    config = hf.Gemma3TextConfig(**SIZES | {"num_hidden_layers": 6}, head_dim=64, sliding_window=256)
    return hf.Gemma3ForCausalLM(config)


def mla():
    """Keys and values as one latent vector; dense throughout."""
    heads = {"q_lora_rank": None, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 64}
    experts = {"first_k_dense_replace": 4, "n_routed_experts": 4, "n_shared_experts": 1, "topk_method": "greedy"}
    sizes = SIZES | {"num_key_value_heads": 4, "kv_lora_rank": 512, "n_group": 1, "topk_group": 1}
    return hf.DeepseekV2ForCausalLM(hf.DeepseekV2Config(**sizes, **heads, **experts, **EXPERTS))


def linear():
    """Three layers of gated delta net to one of attention, with experts."""
    heads = {"linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 64}
    state = {"linear_value_head_dim": 64, "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention"] * 3}
    state["layer_types"] = [*state["layer_types"], "full_attention"]
    experts = EXPERTS | {"num_experts": 4, "shared_expert_intermediate_size": 64}
    return hf.Qwen3NextForCausalLM(hf.Qwen3NextConfig(**SIZES, head_dim=64, **heads, **state, **experts))


def mamba():
    """Mamba2 and attention side by side in every layer."""
    state = {"mamba_d_ssm": 256, "mamba_n_heads": 8, "mamba_d_head": 32, "mamba_n_groups": 1, "mamba_d_state": 64}
    more = {"mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 64}
    return hf.FalconH1ForCausalLM(hf.FalconH1Config(**SIZES, head_dim=64, **state, **more))


KINDS = {make.__name__: make for make in (gqa, mha, mqa, windows, mla, linear, mamba)}


def tokenizer() -> hf.PreTrainedTokenizerFast:
    """A byte-level BPE over a page of numbers and words."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    text = [f"request {i} asks for {i * i} tokens and waits {i % 7} seconds for the answer" for i in range(2000)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    bpe.train_from_iterator(text, trainer)
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token="<pad>", bos_token="<s>", eos_token="</s>", chat_template=CHAT
    )


def main() -> None:
    """Write config, weights and tokenizer of each kind."""
    place, kinds = Path(sys.argv[1]), sys.argv[2:]
    words = tokenizer()
    for kind in kinds:
        torch.manual_seed(0)
        KINDS[kind]().to(torch.bfloat16).save_pretrained(place / kind)
        words.save_pretrained(place / kind)


if __name__ == "__main__":
    main()
