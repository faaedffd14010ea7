"""Configs and cases of the tests of what vLLM refuses."""

from __future__ import annotations

from typing import Any

from advisor.facts import ModelFacts
from advisor.kv.layout import KvLayout
from tests.advisor import plan_samples as s
from tests.layouts import Prediction, predict, row_version


def ask(model: str | dict[str, Any], version: str = "0.32.0", **case: Any) -> Prediction:
    """What becomes of a case; `model` is a name of the catalogue or a config."""
    facts = s.facts_of(model) if isinstance(model, str) else ModelFacts(id="made up", config=model)
    return predict(facts, {"kv_gib": 20, "args": {}, **case}, row_version({"version": version}))


def layout(prediction: Prediction) -> KvLayout:
    assert not prediction.violations
    return s.known(prediction.layout)


def said(prediction: Prediction) -> str:
    return " ".join((prediction.refused, *prediction.violations))


def decoder(architecture: str, model_type: str, **keys: Any) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
    } | keys


def hybrid(kinds: list[str]) -> dict[str, Any]:
    return decoder(
        "Qwen3NextForCausalLM",
        "qwen3_next",
        num_hidden_layers=len(kinds),
        layer_types=kinds,
        linear_num_key_heads=4,
        linear_num_value_heads=8,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_conv_kernel_dim=4,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=512,
        shared_expert_intermediate_size=512,
    )


def mamba2() -> dict[str, Any]:
    return {
        "architectures": ["Mamba2ForCausalLM"],
        "model_type": "mamba2",
        "hidden_size": 512,
        "state_size": 64,
        "num_hidden_layers": 8,
        "conv_kernel": 4,
        "expand": 2,
        "n_groups": 1,
        "num_heads": 16,
        "head_dim": 64,
        "vocab_size": 32000,
        "torch_dtype": "bfloat16",
    }
