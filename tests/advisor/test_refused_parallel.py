"""What vLLM refuses of parallel sizes whatever the memory, and what stands beside it.

Each case was asked of vLLM 0.32 itself (tests/engine/test_layout_live.py draws more of them each time) or read from
the source of the release it names.
"""

from __future__ import annotations

from typing import Any

import pytest

from advisor.model.interfaces import NO_LORA, NO_STAGES
from tests.advisor import plan_samples as s
from tests.advisor.refusal_samples import ask, decoder, hybrid, layout, said

# pipeline stages


@pytest.mark.parametrize(
    "architecture",
    [
        "AriaForConditionalGeneration",
        "Gemma3nForCausalLM",
        "Idefics3ForConditionalGeneration",
        "Mamba2ForCausalLM",
        "NemotronH_Nano_VL_V2",
        "PaddleOCRVLForConditionalGeneration",
        "Phi4MMForCausalLM",
        "SmolVLMForConditionalGeneration",
        "WhisperForConditionalGeneration",
        "Zamba2ForCausalLM",
    ],
)
def test_architectures_without_stages(architecture: str) -> None:
    assert NO_STAGES[architecture][-1][1] is None  # 0.32 has none for them either


@pytest.mark.parametrize("model", ["google/gemma-3n-E4B-it"])
def test_a_model_without_stages_is_refused(model: str) -> None:
    assert "no pipeline parallelism" in said(ask(model, pp=2))
    assert layout(ask(model, pp=1))
    made = s.plan(model, s.h100(2), engine={"pipeline_parallel_size": 2})
    assert (made.outcome, made.starts) == ("invalid", False)
    assert "pp-architecture" in s.codes(made)


@pytest.mark.parametrize(("version", "refused"), [("0.10.1", True), ("0.10.2", False), ("0.32.0", False)])
def test_stages_came_with_a_release(version: str, refused: bool) -> None:
    assert bool(ask("openai/gpt-oss-20b", version, pp=2).refused) is refused


def test_every_rule_is_told_beside_the_stages() -> None:
    made = s.plan("google/gemma-3n-E4B-it", s.h100(6), engine={"pipeline_parallel_size": 2, "tensor_parallel_size": 3})
    assert {"pp-architecture", "tp-heads"} <= set(s.codes(made))


def test_the_search_cuts_no_model_that_has_no_stages() -> None:
    made = s.plan("google/gemma-3n-E4B-it", s.gpu("RTX 3060", 11.6, cap=(8, 6), count=3), concurrency=500)
    assert made.flags["pipeline_parallel_size"] == 1


@pytest.mark.parametrize(("shared", "refused"), [(4, True), (0, False)])
def test_a_stage_holds_the_cache_its_layers_read(shared: int, refused: bool) -> None:
    config = decoder(
        "Gemma4ForCausalLM",
        "gemma4_text",
        num_kv_shared_layers=shared,
        global_head_dim=128,
        sliding_window=512,
        layer_types=[("sliding_attention", "full_attention")[i % 2] for i in range(12)],
        attention_k_eq_v=False,
    )
    got = ask(config, pp=3)
    assert ("which another pipeline stage holds" in said(got)) is refused
    assert layout(ask(config, pp=1))


@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [("FalconH1ForCausalLM", "falcon_h1"), ("Ernie4_5_MoeForCausalLM", "ernie4_5_moe")],
)
@pytest.mark.parametrize("tied", [True, False])
def test_a_head_tied_across_stages(architecture: str, model_type: str, tied: bool) -> None:
    states = {"mamba_d_ssm": 512, "mamba_n_heads": 8, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 64}
    experts = {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 512}
    config = decoder(architecture, model_type, tie_word_embeddings=tied, **states, **experts)
    assert ("ties its output head" in said(ask(config, pp=2))) is tied
    assert layout(ask(config, pp=1))


@pytest.mark.parametrize(
    ("config", "stages", "refused"),
    [
        (decoder("Glm4MoeForCausalLM", "glm4_moe", first_k_dense_replace=4, n_routed_experts=8), 3, True),
        (decoder("Glm4MoeForCausalLM", "glm4_moe", first_k_dense_replace=3, n_routed_experts=8), 3, False),
        (decoder("Qwen3MoeForCausalLM", "qwen3_moe", mlp_only_layers=[0, 1, 2, 3], num_experts=8), 3, True),
        (decoder("Qwen3MoeForCausalLM", "qwen3_moe", mlp_only_layers=[0, 1, 2, 3], num_experts=8), 2, False),
    ],
)
def test_every_stage_has_experts_where_the_class_looks_for_them(
    config: dict[str, Any], stages: int, refused: bool
) -> None:
    config = config | {"moe_intermediate_size": 512, "num_experts_per_tok": 2}
    assert ("has no layer with experts" in said(ask(config, pp=stages))) is refused


def test_a_stage_without_attention_does_not_align_its_states() -> None:
    linear, full = "linear_attention", "full_attention"
    apart = layout(ask(hybrid([linear] * 6 + [linear, full] * 3), pp=2))
    alike = layout(ask(hybrid([linear, full] * 6), pp=2))
    assert {group.block_size for group in apart.groups} == {16, alike.block_size}
    assert {group.block_size for group in alike.groups} == {alike.block_size}
    assert apart.block_size == 16
    before = layout(ask(hybrid([linear] * 6 + [linear, full] * 3), "0.19.1", pp=2))
    assert len({group.block_size for group in before.groups if group.kind == "MambaSpec"}) == 1


# tensor parallel


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({}, ""),
        ({"intermediate_size": 2048}, "tp-mlp"),
        ({"vocab_size": 32000}, "tp-vocab"),
    ],
)
def test_three_ranks_need_widths_that_divide(keys: dict[str, Any], code: str) -> None:
    config = decoder("LlamaForCausalLM", "llama", num_attention_heads=12, num_key_value_heads=3)
    config |= {"intermediate_size": 1536, "vocab_size": 30720} | keys
    assert said(ask(config, tp=3)).strip() == code


def test_experts_divide_too() -> None:
    keys = {"num_experts": 8, "num_experts_per_tok": 2, "num_attention_heads": 12, "num_key_value_heads": 3}
    config = decoder("Qwen3MoeForCausalLM", "qwen3_moe", intermediate_size=1536, vocab_size=30720, **keys)
    assert "tp-experts" in said(ask(config | {"moe_intermediate_size": 1024}, tp=3))
    assert layout(ask(config | {"moe_intermediate_size": 768}, tp=3))


def test_some_classes_want_as_many_experts_as_ranks() -> None:
    keys = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 1024, "num_key_value_heads": 8}
    assert "tp-experts" in said(ask(decoder("Qwen3MoeForCausalLM", "qwen3_moe", **keys), tp=8))
    assert layout(ask(decoder("Qwen3MoeForCausalLM", "qwen3_moe", **keys), tp=4))


@pytest.mark.parametrize(
    ("architecture", "refused"),
    [("LlamaForCausalLM", False), ("Param2MoEForCausalLM", True), ("GptOssForCausalLM", True)],
)
def test_fewer_heads_than_ranks_are_copied_where_the_class_does(architecture: str, refused: bool) -> None:
    assert ("tp-kv-heads" in said(ask(decoder(architecture, "llama"), tp=4))) is refused


def test_the_tables_know_who_has_lora() -> None:
    assert "LlamaForCausalLM" not in NO_LORA
    assert NO_LORA["KimiK25ForConditionalGeneration"][-1][1] is None
