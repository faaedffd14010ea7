from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.cuda_graphs import capture_sizes, graph_count
from advisor.versions import Version
from tests.advisor.cost_samples import gpu

H100, B200 = gpu(), gpu("B200", 178.35, (10, 0))


def sizes(
    version: tuple[int, int, int], seqs: int, batched: int = 8192, architecture: str = "LlamaForCausalLM", spec: int = 0
) -> tuple[int, ...]:
    return capture_sizes(
        Version(*version),
        H100,
        architecture=architecture,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        num_speculative_tokens=spec,
    )


@pytest.mark.parametrize(
    ("version", "seqs", "architecture", "count", "largest"),
    [
        ((0, 32, 0), 1024, "LlamaForCausalLM", 51, 512),
        ((0, 19, 0), 1024, "LlamaForCausalLM", 51, 512),
        ((0, 32, 0), 64, "LlamaForCausalLM", 19, 128),
        ((0, 32, 0), 1024, "GptOssForCausalLM", 83, 1024),
        ((0, 8, 5), 16, "LlamaForCausalLM", 67, 512),
        ((0, 10, 0), 16, "LlamaForCausalLM", 7, 32),
        ((0, 32, 0), 2, "LlamaForCausalLM", 3, 4),
    ],
)
def test_sizes_as_vllm_captures_them(
    version: tuple[int, int, int], seqs: int, architecture: str, count: int, largest: int
) -> None:
    found = sizes(version, seqs, architecture=architecture)
    assert (len(found), found[-1]) == (count, largest)


def test_data_centre_blackwell_captures_larger_batches_from_0_28() -> None:
    def largest(version: Version) -> int:
        return capture_sizes(
            version, B200, architecture="LlamaForCausalLM", max_num_seqs=1024, max_num_batched_tokens=8192
        )[-1]

    assert largest(Version(0, 26)) == 512
    assert largest(Version(0, 28)) == 1024


def test_a_stated_ceiling_is_kept_and_zero_captures_nothing() -> None:
    def up_to(ceiling: int) -> tuple[int, ...]:
        return capture_sizes(
            Version(0, 20),
            H100,
            architecture="LlamaForCausalLM",
            max_num_seqs=256,
            max_num_batched_tokens=4096,
            max_capture_size=ceiling,
        )

    assert up_to(4) == (1, 2, 4)
    assert up_to(0) == ()


def test_speculation_widens_the_ceiling_and_from_0_29_adds_exact_decode_batches() -> None:
    assert sizes((0, 16, 0), 8, spec=3)[-1] == 64
    assert 4 * 5 in sizes((0, 29, 0), 5, spec=3)
    assert 4 * 5 not in sizes((0, 22, 0), 5, spec=3)


def test_full_graphs_exist_for_decode_batches_only() -> None:
    found = sizes((0, 19, 0), 64)
    assert graph_count(Version(0, 19), found, 64) == len(found) + sum(n <= 64 for n in found)
    assert graph_count(Version(0, 10, 2), found, 64) == len(found)


@given(st.integers(1, 2048), st.integers(1, 16384), st.integers(0, 4))
def test_no_size_exceeds_the_batch(seqs: int, batched: int, spec: int) -> None:
    found = sizes((0, 32, 0), seqs, batched, spec=spec)
    assert list(found) == sorted(set(found))
    assert found[0] == 1
    assert found[-1] <= batched
