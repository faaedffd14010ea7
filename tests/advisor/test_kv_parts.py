"""The pieces of the layout, each against figures worked out elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.errors import EngineRefuses
from advisor.kv.dtypes import attention_bytes_per_head_token, latent_bytes_per_token
from advisor.kv.groups import group_size, make_groups
from advisor.kv.parallel import heads_per_rank, pipeline_slices
from advisor.kv.specs import Kind, LayerSpec, Lengths
from advisor.kv.states import state_bytes, state_dtypes
from advisor.model.spec import StateCache
from advisor.versions import Version, parse_version

NOW = Version(0, 32, 0)


def spec(
    kind: Kind = "FullAttentionSpec", block: int = 16, per_token: int = 4096, span: int | None = None
) -> LayerSpec:
    return LayerSpec(kind=kind, block_size=block, bytes_per_token=per_token, span_tokens=span)


# bytes a head, token and layer for a head of 128: vllm-facts section 2.1
@pytest.mark.parametrize(
    ("cache_dtype", "expected"),
    [
        ("auto", 512),
        ("bfloat16", 512),
        ("fp8", 256),
        ("fp8_e5m2", 256),
        ("int8_per_token_head", 264),
        ("fp8_per_token_head", 264),
        ("int4_per_token_head", 136),
        ("nvfp4", 144),
        ("turboquant_k8v4", 196),
        ("turboquant_4bit_nc", 134),
        ("turboquant_k3v4_nc", 118),
        ("turboquant_3bit_nc", 102),
    ],
)
def test_bytes_per_head_and_token(cache_dtype: str, expected: int) -> None:
    assert attention_bytes_per_head_token(cache_dtype, "bfloat16", 128, 128) == expected


@pytest.mark.parametrize(
    ("cache_dtype", "expected"), [("auto", 1152), ("fp8", 576), ("fp8_ds_mla", 656), ("nvfp4_ds_mla", 352)]
)
def test_latent_bytes_of_deepseek(cache_dtype: str, expected: int) -> None:
    assert latent_bytes_per_token(cache_dtype, "bfloat16", 576) == expected


# sliding layers: gpt-oss-20b and its neighbours, up to 0.25 (one batch in flight) and from 0.26 on (two)
@pytest.mark.parametrize(
    ("window", "in_flight", "tokens", "expected"),
    [
        (128, 2048, 32768, 137),  # P34: 2,192 tokens in 137 blocks
        (128, 4096, 32768, 265),
        (128, 8192, 8192, 513),
        (1024, 16384, 131072, 1089),
        (4096, 8192, 32768, 769),
        (4096, 8192, 4096, 257),
    ],
)
def test_sliding_window_blocks(window: int, in_flight: int, tokens: int, expected: int) -> None:
    layer = spec("SlidingWindowSpec", span=window)
    assert layer.blocks(Lengths(tokens=tokens, in_flight_tokens=in_flight)) == expected


def test_chunked_layers_keep_a_chunk_and_what_is_in_flight() -> None:
    layer = spec("ChunkedLocalAttentionSpec", span=8192)
    assert layer.blocks(Lengths(tokens=32768, in_flight_tokens=16384)) == 1536  # Llama 4 Scout, vLLM 0.32


def test_context_parallel_divides_the_tokens_of_a_rank() -> None:
    assert spec().blocks(Lengths(tokens=4097, in_flight_tokens=0, dcp=4)) == 65


@pytest.mark.parametrize(
    ("layers", "pp", "sizes"),
    [
        (32, 1, [32]),
        (32, 3, [11, 11, 10]),
        (61, 3, [20, 21, 20]),
        (40, 3, [13, 14, 13]),
        (16, 2, [8, 8]),
        (30, 4, [7, 8, 8, 7]),
        (7, 7, [1] * 7),
    ],
)
def test_pipeline_remainder_goes_before_the_last_stage(layers: int, pp: int, sizes: list[int]) -> None:
    slices = pipeline_slices(layers, pp)
    assert [end - first for first, end in slices] == sizes
    assert slices[0][0] == 0
    assert slices[-1][1] == layers


def test_more_stages_than_layers_is_refused() -> None:
    with pytest.raises(EngineRefuses, match="exceeds the model's 4 layers"):
        pipeline_slices(4, 5)


# P42, P43 and vllm-facts section 3
@pytest.mark.parametrize(
    ("heads", "kv", "tp", "expected"),
    [(32, 8, 1, 8), (32, 8, 8, 1), (32, 8, 16, 1), (64, 4, 8, 1), (64, 4, 2, 2), (28, 4, 4, 1), (71, 1, 1, 1)],
)
def test_kv_heads_of_a_rank(heads: int, kv: int, tp: int, expected: int) -> None:
    assert heads_per_rank(heads, kv, tp) == expected


@pytest.mark.parametrize(("heads", "kv", "tp"), [(52, 4, 8), (64, 8, 3), (28, 4, 8), (30, 6, 5)])
def test_heads_that_do_not_divide_are_refused(heads: int, kv: int, tp: int) -> None:
    with pytest.raises(EngineRefuses):
        heads_per_rank(heads, kv, tp)


# the smallest kind decides until 0.12; then the largest when max < 1.25 min, from 0.18 when max < 1.5 min
@pytest.mark.parametrize(
    ("counts", "version", "expected"),
    [
        ([12, 13], "0.11.2", 12),
        ([12, 13], "0.13.0", 13),
        ([10, 14], "0.16.0", 10),
        ([10, 14], "0.18.0", 14),
        ([10, 15], "0.32.0", 10),
        ([10, 52], "0.32.0", 10),
        ([6, 10], "0.32.0", 6),
    ],
)
def test_layers_a_group(counts: list[int], version: str, expected: int) -> None:
    assert group_size(counts, parse_version(version)) == expected


def test_equal_layers_make_one_group() -> None:
    groups = make_groups([spec()] * 32, NOW, hybrid_disabled=False)
    assert [len(group.members) for group in groups] == [32]


def test_layers_are_dealt_out_in_turn() -> None:
    sliding, full = spec("SlidingWindowSpec", span=1024), spec()
    order = ([sliding] * 5 + [full]) * 10 + [sliding] * 2  # Gemma 3 27B
    groups = make_groups(order, NOW, hybrid_disabled=False)
    assert sorted(len(g.members) for g in groups) == [8, 8, 9, 9, 9, 9, 10]
    old = make_groups(order, Version(0, 10, 2), hybrid_disabled=False)
    assert [len(g.members) for g in old] == [10, 10, 10, 10, 10, 10, 2]
    assert old[0].spec.kind == "FullAttentionSpec"


def test_smaller_pages_take_more_tokens() -> None:
    wide, narrow = spec(per_token=8192), spec("SlidingWindowSpec", per_token=4096, span=512)
    groups = make_groups([wide, narrow], NOW, hybrid_disabled=False)
    assert {(g.spec.kind, g.spec.block_size, g.spec.page_size_bytes) for g in groups} == {
        ("FullAttentionSpec", 16, 131072),
        ("SlidingWindowSpec", 32, 131072),
    }


def test_pages_that_do_not_divide_are_padded_from_0_24() -> None:
    mixed = [spec(per_token=6144), spec("SlidingWindowSpec", per_token=4096, span=512)]
    groups = make_groups(mixed, NOW, hybrid_disabled=False)
    assert {g.spec.page_size_bytes for g in groups} == {98304}
    with pytest.raises(EngineRefuses, match="cannot be brought"):
        make_groups(mixed, Version(0, 23, 0), hybrid_disabled=False)


def test_without_the_hybrid_manager_windows_count_as_full() -> None:
    layers = [spec("SlidingWindowSpec", span=1024), spec()]
    groups = make_groups(layers, NOW, hybrid_disabled=True)
    assert [(g.spec.kind, len(g.members)) for g in groups] == [("FullAttentionSpec", 2)]


def test_states_need_the_hybrid_manager() -> None:
    state = LayerSpec(kind="MambaSpec", block_size=4096, state_bytes=65536)
    with pytest.raises(EngineRefuses, match="disable_hybrid_kv_cache_manager"):
        make_groups([state, spec()], NOW, hybrid_disabled=True)


# states: Qwen3-Next 1,097,728 B (vllm-facts 2.6); the others by the formulas of mamba_utils
@pytest.mark.parametrize(
    ("state", "tp", "ssm", "expected"),
    [
        (
            StateCache(
                kind="gdn",
                sizes={"num_k_heads": 16, "num_v_heads": 32, "head_k_dim": 128, "head_v_dim": 128, "conv_kernel": 4},
            ),
            1,
            "auto",
            1_097_728,
        ),
        (StateCache(kind="short_conv", sizes={"intermediate_size": 2048, "conv_kernel": 3}), 1, "auto", 8192),
        (StateCache(kind="linear", sizes={"num_heads": 64, "head_dim": 128}), 8, "auto", 262_144),
        (
            StateCache(kind="mamba1", sizes={"intermediate_size": 8192, "state_size": 16, "conv_kernel": 4}),
            2,
            "auto",
            4096 * 3 * 2 + 4096 * 16 * 2,
        ),
        (StateCache(kind="kda", sizes={"num_heads": 32, "head_dim": 128, "conv_kernel": 4}), 1, "auto", 2_170_880),
    ],
)
def test_state_bytes(state: StateCache, tp: int, ssm: str, expected: int) -> None:
    conv, recurrent = state_dtypes(state.kind, "bfloat16", "auto", ssm)
    assert state_bytes(state, tp=tp, conv_dtype=conv, ssm_dtype=recurrent) == expected


def test_mamba2_groups_are_copied_where_tp_exceeds_them() -> None:
    state = StateCache(
        kind="mamba2",
        sizes={
            "intermediate_size": 4096,
            "n_groups": 1,
            "num_heads": 64,
            "head_dim": 64,
            "state_size": 128,
            "conv_kernel": 4,
        },
    )
    one = state_bytes(state, tp=1, conv_dtype="bfloat16", ssm_dtype="float32")
    four = state_bytes(state, tp=4, conv_dtype="bfloat16", ssm_dtype="float32")
    assert one == (4096 + 2 * 128) * 3 * 2 + 64 * 64 * 128 * 4
    assert four == (4096 + 2 * 4 * 128) // 4 * 3 * 2 + 16 * 64 * 128 * 4


@given(
    tokens=st.integers(1, 1 << 21),
    more=st.integers(0, 1 << 20),
    block=st.sampled_from([16, 32, 64, 128, 544]),
    window=st.integers(1, 1 << 17),
    in_flight=st.integers(1, 1 << 16),
)
def test_longer_requests_never_hold_fewer_blocks(
    tokens: int, more: int, block: int, window: int, in_flight: int
) -> None:
    kinds: tuple[Kind, ...] = ("FullAttentionSpec", "SlidingWindowSpec", "ChunkedLocalAttentionSpec")
    for kind in kinds:
        layer = spec(kind, block=block, span=None if kind == "FullAttentionSpec" else window)
        short = layer.blocks(Lengths(tokens=tokens, in_flight_tokens=in_flight))
        assert short <= layer.blocks(Lengths(tokens=tokens + more, in_flight_tokens=in_flight))
        assert short * block >= min(tokens, window)


@given(
    full=st.integers(1, 40),
    sliding=st.integers(1, 60),
    version=st.sampled_from(["0.11.2", "0.16.0", "0.22.1", "0.32.0", "0.33.0"]),
)
def test_every_layer_is_in_exactly_one_group(full: int, sliding: int, version: str) -> None:
    layers = [spec()] * full + [spec("SlidingWindowSpec", span=512)] * sliding
    groups = make_groups(layers, parse_version(version), hybrid_disabled=False)
    assert sorted(i for g in groups for i, _ in g.members) == list(range(full + sliding))
    assert len({g.spec.page_size_bytes for g in groups}) == 1
