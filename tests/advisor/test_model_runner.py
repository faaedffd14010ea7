from __future__ import annotations

import pytest

from advisor.model_runner import uses_v2_runner
from advisor.versions import Version


@pytest.mark.parametrize(
    ("version", "architecture", "moe", "quantized", "hybrid", "second"),
    [
        ((0, 21, 0), "Qwen3ForCausalLM", False, False, False, False),
        ((0, 22, 1), "Qwen3ForCausalLM", False, False, False, True),
        ((0, 22, 1), "Qwen3ForCausalLM", False, True, False, False),
        ((0, 22, 1), "LlamaForCausalLM", False, False, False, False),
        ((0, 23, 0), "LlamaForCausalLM", False, False, False, True),
        ((0, 24, 0), "LlamaForCausalLM", False, True, False, True),
        ((0, 24, 0), "Qwen2MoeForCausalLM", True, False, False, True),
        ((0, 24, 0), "Gemma2ForCausalLM", False, False, False, False),
        ((0, 25, 1), "Gemma2ForCausalLM", False, False, False, True),
        ((0, 26, 0), "Qwen3MoeForCausalLM", True, False, False, False),
        ((0, 26, 0), "Qwen3NextForCausalLM", True, False, True, False),
        ((0, 28, 0), "DeepseekV4ForCausalLM", True, True, True, True),
        ((0, 29, 0), "Qwen3NextForCausalLM", True, True, True, True),
        ((0, 33, 0), "MixtralForCausalLM", True, False, False, True),
    ],
)
def test_the_runner_by_version_and_model(
    version: tuple[int, int, int], architecture: str, moe: bool, quantized: bool, hybrid: bool, second: bool
) -> None:
    found = uses_v2_runner(Version(*version), architecture, is_moe=moe, is_quantized=quantized, is_hybrid=hybrid)
    assert found is second


def test_pooling_stays_on_the_first_runner_until_0_29() -> None:
    def pooling(version: Version) -> bool:
        return uses_v2_runner(
            version, "Qwen3ForCausalLM", is_moe=False, is_quantized=False, is_hybrid=False, is_pooling=True
        )

    assert not pooling(Version(0, 26))
    assert pooling(Version(0, 29))
