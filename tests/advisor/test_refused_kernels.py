"""What vLLM refuses of KV dtypes, block sizes, context and states whatever the memory, and what stands beside it.

Each case was asked of vLLM 0.32 itself (tests/engine/test_layout_live.py draws more of them each time) or read from
the source of the release it names.
"""

from __future__ import annotations

import pytest

from tests.advisor import plan_samples as s
from tests.advisor.refusal_samples import ask, decoder, hybrid, layout, mamba2, said

DSV32 = "deepseek-ai/DeepSeek-V3.2"


# KV dtypes and kernels


@pytest.mark.parametrize("cap", ["8.0", "8.6"])
@pytest.mark.parametrize(("version", "refused"), [("0.23.0", False), ("0.24.0", True), ("0.32.0", True)])
def test_e5m2_below_ada(cap: str, version: str, refused: bool) -> None:
    got = ask(s.LLAMA, version, cap=cap, args={"kv_cache_dtype": "fp8_e5m2"})
    assert bool(got.refused) is refused


def test_a_model_that_never_hears_of_the_dtype_is_not_refused() -> None:
    got = layout(ask("tiiuae/falcon-7b", cap="8.6", args={"kv_cache_dtype": "fp8"}))
    assert got.bytes_per_token == 32 * 2 * 64 * 2


@pytest.mark.parametrize(
    ("version", "cap", "dtype", "latent_bytes"),
    [
        ("0.32.0", "9.0", "auto", 1152),
        ("0.32.0", "9.0", "bfloat16", 1152),
        ("0.32.0", "9.0", "fp8", 656),
        ("0.32.0", "9.0", "fp8_ds_mla", 656),
        ("0.32.0", "9.0", "fp8_e4m3", None),
        ("0.32.0", "9.0", "fp8_e5m2", None),
        ("0.32.0", "10.0", "fp8", 576),
        ("0.32.0", "10.0", "fp8_e4m3", 576),
        ("0.32.0", "10.0", "fp8_e5m2", None),
        ("0.32.0", "12.0", "auto", 656),
        ("0.32.0", "12.0", "fp8_e4m3", 656),
        ("0.23.0", "12.0", "auto", None),
        ("0.32.0", "8.0", "auto", None),
        ("0.32.0", "8.9", "fp8", None),
        ("0.18.0", "9.0", "fp8_e4m3", None),
        ("0.17.0", "9.0", "fp8_e4m3", 656),
        ("0.17.0", "9.0", "fp8_e5m2", 656),
    ],
)
def test_sparse_mla_by_card_and_dtype(version: str, cap: str, dtype: str, latent_bytes: int | None) -> None:
    got = ask(DSV32, version, cap=cap, args={"kv_cache_dtype": dtype})
    if latent_bytes is None:
        assert got.refused
        return
    latents = 61 * latent_bytes
    indexers = 61 * 132
    assert layout(got).bytes_per_token == latents + indexers


def test_a_checkpoint_that_asks_for_e4m3_is_refused_on_hopper() -> None:
    made = s.plan("nvidia/GLM-5.2-NVFP4", s.h100(8), weights_gib=50, engine={"tensor_parallel_size": 8})
    assert (made.outcome, made.starts) == ("invalid", False)
    assert "kv-dtype-sparse-mla" in s.codes(made)
    newer = s.gpu("B200", 178, cap=(10, 0), count=8)
    assert s.plan("nvidia/GLM-5.2-NVFP4", newer, weights_gib=50, engine={"tensor_parallel_size": 8}).starts


@pytest.mark.parametrize(
    ("version", "dtype", "asked", "backend", "block"),
    [
        ("0.32.0", "fp8", 16, "TRITON_MLA", 16),
        ("0.32.0", "fp8", 64, "FLASHMLA", 64),
        ("0.32.0", "fp8", None, "FLASHMLA", 64),
        ("0.32.0", "auto", 16, "FLASH_ATTN_MLA", 16),
        ("0.32.0", "auto", 32, "FLASH_ATTN_MLA", 32),
        ("0.17.0", "fp8", 16, "FLASHMLA", 64),  # older releases took 64 for whatever did not suit
        ("0.17.0", "auto", 16, "FLASH_ATTN_MLA", 64),
    ],
)
def test_a_block_size_chooses_the_mla_kernel(
    version: str, dtype: str, asked: int | None, backend: str, block: int
) -> None:
    args = {"kv_cache_dtype": dtype} | ({"block_size": asked} if asked else {})
    got = layout(ask(s.MLA, version, args=args))
    assert (got.backend, got.block_size) == (backend, block)


def test_mla_keeps_no_fp8_on_other_cards_before_triton_did() -> None:
    assert layout(ask(s.MLA, "0.18.0", cap="8.9", args={"kv_cache_dtype": "fp8"}))
    assert ask(s.MLA, "0.17.0", cap="8.9", args={"kv_cache_dtype": "fp8"}).refused


@pytest.mark.parametrize("asked", [8, 24])
def test_a_block_size_that_no_kernel_takes(asked: int) -> None:
    assert "block_size" in said(ask(s.LLAMA, args={"block_size": asked}))


# decode context parallel


@pytest.mark.parametrize(
    ("cap", "dtype", "refused"),
    [
        ("9.0", "auto", False),
        ("9.0", "fp8", False),
        ("9.0", "fp8_e5m2", True),
        ("8.9", "fp8", True),
        ("8.9", "auto", False),
        ("8.0", "auto", False),
    ],
)
def test_context_and_kv_dtype(cap: str, dtype: str, refused: bool) -> None:
    got = ask("Qwen/Qwen2.5-1.5B-Instruct", tp=4, dcp=2, cap=cap, args={"kv_cache_dtype": dtype})
    assert bool(got.refused) is refused


def test_context_with_sliding_layers() -> None:
    config = decoder(
        "Gemma3ForCausalLM",
        "gemma3_text",
        num_key_value_heads=1,
        sliding_window=512,
        layer_types=[("sliding_attention", "full_attention")[i % 2] for i in range(12)],
    )
    assert "sliding" in said(ask(config, tp=2, dcp=2))
    whole = layout(ask(config, tp=2, dcp=2, args={"disable_hybrid_kv_cache_manager": True}))
    assert {group.kind for group in whole.groups} == {"FullAttentionSpec"}
    everywhere = decoder("MistralForCausalLM", "mistral", num_key_value_heads=1, sliding_window=512)
    assert "sliding" in said(ask(everywhere, tp=2, dcp=2, args={"disable_hybrid_kv_cache_manager": True}))


def test_context_without_attention() -> None:
    assert "keeps none" in said(ask(mamba2(), tp=2, dcp=2))
    assert layout(ask(mamba2(), tp=2))


@pytest.mark.parametrize(("version", "refused"), [("0.24.0", True), ("0.25.0", False)])
def test_context_with_fp8_latents_came_later(version: str, refused: bool) -> None:
    got = ask("deepseek-ai/DeepSeek-V3", version, tp=8, dcp=2, args={"kv_cache_dtype": "fp8"})
    assert bool(got.refused) is refused


# scheduling and states


def test_ngram_drafts_are_not_scheduled_ahead() -> None:
    config = decoder("Gemma3ForCausalLM", "gemma3_text", sliding_window=512, max_position_embeddings=131072)
    config["layer_types"] = ["sliding_attention"] * 12
    drafts = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}}
    args = {"max_num_batched_tokens": 8192}
    alone, drafting = (layout(ask(config, args=args | more)) for more in ({}, drafts))
    assert alone.groups[0].blocks_per_request == (511 + 2 * 8192 + 15) // 16 + 1  # 1057
    assert drafting.groups[0].blocks_per_request == (511 + 8192 + 15) // 16 + 1  # 545
    assert "async-speculation" in said(ask(config, args=args | drafts | {"async_scheduling": True}))
    older = layout(ask(config, "0.25.0", args=args | drafts))
    assert older.groups[0].blocks_per_request == drafting.groups[0].blocks_per_request


def test_states_kept_at_block_ends_need_chunks() -> None:
    config = hybrid(["linear_attention", "full_attention"] * 6)
    off = {"enable_chunked_prefill": False}
    assert "states-need-chunks" in said(ask(config, args=off))
    assert layout(ask(config, args=off | {"enable_prefix_caching": False}))
    assert layout(ask(config, "0.27.0", args=off))  # no prefix caching of its own accord yet


@pytest.mark.parametrize(
    ("version", "prefix", "block", "blocks"),
    [("0.32.0", True, 16, 3), ("0.32.0", None, 2048, 1), ("0.31.0", True, 16, 2), ("0.11.2", True, 2048, 1)],
)
def test_states_alone_with_prefix_caching(version: str, prefix: bool | None, block: int, blocks: int) -> None:
    args = {"max_model_len": 2048} | ({} if prefix is None else {"enable_prefix_caching": prefix})
    (group,) = layout(ask(mamba2(), version, args=args)).groups
    assert (group.block_size, group.blocks_per_request) == (block, blocks)


@pytest.mark.parametrize(
    ("instructions", "widened"), [(frozenset({"avx512_bf16"}), True), (frozenset[str](), False), (None, True)]
)
def test_states_on_the_cpu_follow_its_instructions(instructions: frozenset[str] | None, widened: bool) -> None:
    device = s.gpu("CPU", 64, 60, cap=None, vendor="cpu", device_name="cpu", instructions=instructions)
    sizes = {}
    for dtype in ("auto", "float32"):
        made = s.plan("tiiuae/Falcon-H1-0.5B-Instruct", device, concurrency=1, engine={"mamba_ssm_cache_dtype": dtype})
        sizes[dtype] = s.known(made.kv).groups
        assert ("cpu-state-dtype" in s.codes(made)) is (instructions is None and dtype == "auto")
    assert (sizes["auto"] == sizes["float32"]) is widened


@pytest.mark.parametrize(
    ("model", "dtype", "becomes"),
    [
        ("google/gemma-3-1b-it", None, "float32"),
        ("google/gemma-2-2b-it", None, "float32"),
        ("google/gemma-2b", None, "float16"),
        (s.QWEN3, None, "float16"),
        ("google/gemma-3-1b-it", "half", None),
        (s.QWEN3, "half", "float16"),
    ],
)
def test_what_bfloat16_becomes_on_turing(model: str, dtype: str | None, becomes: str | None) -> None:
    args = {"max_model_len": 4096} | ({"dtype": dtype} if dtype else {})
    got = ask(model, cap="7.5", args=args)
    if becomes is None:
        assert "unstable in float16" in said(got)
        return
    wide = layout(ask(model, cap="9.0", args={"max_model_len": 4096}))
    assert layout(got).bytes_per_block[0] == wide.bytes_per_block[0] * (2 if becomes == "float32" else 1)


def test_a_float32_model_says_so() -> None:
    made = s.plan("google/gemma-3-1b-it", s.t4(), concurrency=1)
    assert "float32" in s.messages(made, "dtype-replaced")


@pytest.mark.parametrize(
    ("model", "refused", "understood"),
    [
        (s.HYBRID, False, True),
        (s.QWEN3, True, False),
        ("google/gemma-3-1b-it", True, True),
        (s.SLIDING, True, True),
        ("tiiuae/Falcon-H1-0.5B-Instruct", True, True),
    ],
)
def test_turboquant_is_for_full_attention(model: str, refused: bool, understood: bool) -> None:
    got = ask(model, args={"kv_cache_dtype": "turboquant_4bit_nc"})
    assert bool(got.refused) is refused
    assert ("does not make" in got.refused) is not understood


@pytest.mark.parametrize(("dtype", "refused"), [("fp8", False), ("fp8_e5m2", True), ("int4_per_token_head", True)])
def test_keys_and_values_of_two_sizes(dtype: str, refused: bool) -> None:
    sizes = {"hybrid_layer_pattern": [0, 1] * 6, "v_head_dim": 64, "sliding_window": 128, "num_experts": 8}
    got = ask(decoder("MiMoV2FlashForCausalLM", "mimo_v2_flash", **sizes), args={"kv_cache_dtype": dtype})
    assert bool(got.refused) is refused


@pytest.mark.parametrize(
    ("dtype", "refused"), [("auto", False), ("fp8", False), ("fp8_e5m2", False), ("bfloat16", True)]
)
def test_packed_pages_take_every_fp8_for_their_own(dtype: str, refused: bool) -> None:
    got = ask("deepseek-ai/DeepSeek-V4-Flash", tp=4, args={"kv_cache_dtype": dtype})
    assert bool(got.refused) is refused
    assert ask("deepseek-ai/DeepSeek-V4-Flash", tp=4, dcp=2, args={"kv_cache_dtype": dtype}).refused
