# mypy: ignore-errors
"""Write a tiny random-weight model and a tokenizer trained on the spot: ENGINE_PYTHON make_model.py DIRECTORY [KIND].

KIND is `llama` (4 layers of full attention, the default) or `gemma3` (5 sliding layers to 1 full one). The same seed
gives the same weights; the tokenizer knows every byte, so any text can be sent. Nothing is downloaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 1024
SPECIAL = ["<pad>", "<s>", "</s>"]
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE over a page of numbers and words."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    text = [f"request {i} asks for {i * i} tokens and waits {i % 7} seconds for the answer" for i in range(2000)]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    bpe.train_from_iterator(text, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token="<pad>", bos_token="<s>", eos_token="</s>", chat_template=CHAT
    )


def model(kind: str):
    """Random weights, the same each time."""
    torch.manual_seed(0)
    if kind == "gemma3":
        return Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, num_hidden_layers=6, sliding_window=256))
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_hidden_layers=4))


def main() -> None:
    """Write config, weights and tokenizer into the directory."""
    directory, kind = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "llama"
    model(kind).to(torch.bfloat16).save_pretrained(directory)
    tokenizer().save_pretrained(directory)


if __name__ == "__main__":
    main()
