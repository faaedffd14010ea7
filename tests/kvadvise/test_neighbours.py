"""Where alternatives are looked for: GPUs that exist in the catalogue, models of the same family."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvadvise.catalogue import find_facts
from kvadvise.neighbours import COMMON_GPUS, common_gpus, family_of, is_sibling, siblings
from kvadvise.surroundings import Surroundings


@pytest.fixture
def around(tmp_path: Path) -> Surroundings:
    return Surroundings(env={}, cwd=tmp_path, home=tmp_path)


def test_every_common_gpu_is_in_the_catalogue() -> None:
    gpus = common_gpus()
    assert len({gpu.name for gpu in gpus}) == len(COMMON_GPUS)
    assert all(gpu.count == 1 for gpu in gpus)


@pytest.mark.parametrize(
    ("model_id", "family"),
    [
        ("Qwen/Qwen2.5-72B-Instruct", "qwen2.5-"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-"),
        ("openai/gpt-oss-120b", "gpt-oss-"),
        ("google/gemma-3-27b-it", "gemma-3-"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-"),
        ("deepseek-ai/DeepSeek-V3", ""),
        ("org/model-a3b5", ""),
    ],
)
def test_family(model_id: str, family: str) -> None:
    assert family_of(model_id) == family


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-72B-Instruct-AWQ", True),
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-7B-Instruct", True),
        ("meta-llama/Llama-3.1-70B-Instruct", "RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8", True),
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-72B", False),
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-Coder-32B-Instruct", False),
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2-7B-Instruct", False),
        ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-R1", False),
    ],
)
def test_sibling(one: str, other: str, expected: bool) -> None:
    assert is_sibling(one, other) is expected


def test_siblings_come_largest_first(around: Surroundings) -> None:
    facts = find_facts("Qwen/Qwen2.5-72B-Instruct", around)
    assert facts is not None
    found = siblings(facts, around)
    sizes = [other.weights.total_bytes for other in found if other.weights is not None]
    assert sizes == sorted(sizes, reverse=True)
    assert "Qwen/Qwen2.5-7B-Instruct" in [other.id for other in found]
    assert facts.id not in [other.id for other in found]


def test_a_broken_entry_is_no_sibling(around: Surroundings) -> None:
    broken = around.own_models / "me" / "Qwen2.5-9B-Instruct.yaml"
    broken.parent.mkdir(parents=True)
    broken.write_text("id: [")
    facts = find_facts("Qwen/Qwen2.5-72B-Instruct", around)
    assert facts is not None
    assert "me/Qwen2.5-9B-Instruct" not in [other.id for other in siblings(facts, around)]
