"""Bytes of quantised modules by hand, and which modules each method leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.errors import EngineRefuses, NotUnderstood
from advisor.weights import quant_names as q
from advisor.weights import weight_bytes
from advisor.weights.quant_formats import (
    PLAIN,
    Experts,
    Fp8Block,
    Fp8Channel,
    Fp8Tensor,
    Linear,
    Mxfp4,
    Mxfp8,
    Nvfp4,
    PackedInt,
    kernel_padding,
)
from tests.advisor.test_weights import LLAMA, llama, value

SQUARE = Linear(4096, 4096, (4096,), 2)
MOE = Experts(8, 2048, 768, 2, False, 2, 1)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (PLAIN, 2 * 4096 * 4096),
        (Fp8Tensor(static=False), 4096 * 4096 + 4),
        (Fp8Tensor(static=True), 4096 * 4096 + 8),
        (Fp8Channel(), 4096 * 4096 + 4 * 4096),
        (Fp8Block(128, 128), 4096 * 4096 + 4 * 32 * 32),
        (Nvfp4(), 4096 * 2048 + 4096 * 256 + 8),
        (Nvfp4(input_scale="none"), 4096 * 2048 + 4096 * 256 + 4),
        (Mxfp8(), 4096 * 4096 + 4096 * 128),
        (Mxfp4(), 4096 * 2048 + 4096 * 128),
        # words, scales in 16 bits, zero points
        (PackedInt(4, 128, "awq"), 4096 * 2048 + 32 * 4096 * 2 + 32 * 2048),
        (PackedInt(4, 128, "packed", zero_points=False), 4096 * 2048 + 32 * 4096 * 2 + 16),
        (PackedInt(8, -1, "packed", zero_points=False), 4096 * 4096 + 4096 * 2 + 16),
    ],
)
def test_a_square_linear(form: Any, expected: int) -> None:
    assert form.linear(SQUARE) == expected


WEIGHTS = 8 * 3 * 2048 * 768


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (PLAIN, 2 * WEIGHTS),
        (Fp8Tensor(static=False), WEIGHTS + 8 * 12),
        (Fp8Block(128, 128), WEIGHTS + 4 * 8 * (12 * 16 + 16 * 6)),
        (Nvfp4(), WEIGHTS // 2 + WEIGHTS // 16 + 8 * 24),
        (Mxfp4(128, 256, 2), WEIGHTS // 2 + WEIGHTS // 32),
    ],
)
def test_eight_experts(form: Any, expected: int) -> None:
    assert form.experts(MOE) == expected


def test_mxfp4_experts_are_padded_and_a_kernel_may_pad_less() -> None:
    odd = Experts(32, 2880, 2880, 2, True, 2, 1)
    form = Mxfp4(128, 256, 2)
    padded = Experts(32, 3072, 2944, 2, True, 2, 1)
    assert form.experts(odd) == form.experts(padded)
    less, more = kernel_padding(form, odd, (9, 0))
    assert less > 0
    assert more == 0


def test_plain_experts_are_padded_on_blackwell() -> None:
    cut = MOE._replace(inner=96)
    assert kernel_padding(PLAIN, cut, (9, 0)) == (0, 0)
    assert kernel_padding(PLAIN, cut, (10, 0)) == (0, 2 * 8 * 3 * 2048 * 32)


def test_packed_experts_whose_groups_do_not_fit_halve_them() -> None:
    """inner 192 with groups of 128: 64 divides both, and experts have no biases then (moe_wna16)."""
    cut = MOE._replace(inner=192)
    form = PackedInt(4, 128, "gptq", expert_zero_points=False)
    weights = 8 * 3 * 2048 * 192
    assert form.experts(cut) == weights // 2 + 2 * weights // 64
    with pytest.raises(EngineRefuses, match="no group of 32"):
        form.experts(MOE._replace(inner=48))


def test_blocks_shrink_where_a_part_is_not_whole_blocks() -> None:
    """inner 192 with blocks of 128: blocks of 64 (fused_moe/oracle/fp8.py)."""
    cut = MOE._replace(inner=192, cut=4)
    weights = 8 * 3 * 2048 * 192
    assert Fp8Block(128, 128).experts(cut) == weights + 4 * 8 * (6 * 32 + 32 * 3)


@pytest.mark.parametrize(
    ("quantization", "ratio"),
    [("fp8", 0.57), ("fp8_per_block", 0.57), ("mxfp8", 0.58), ("mxfp4", 0.36), ("bitsandbytes", 0.37)],
)
def test_quantised_while_loading(quantization: str, ratio: float) -> None:
    """Head and embeddings stay in 16 bits."""
    quantised = value(weight_bytes(LLAMA, quantization=quantization))
    assert quantised / value(weight_bytes(LLAMA)) == pytest.approx(ratio, abs=0.01)


def test_bitsandbytes_has_a_wider_band_and_says_so() -> None:
    count = weight_bytes(LLAMA, quantization="bitsandbytes")
    (stage,) = count.per_stage
    assert stage.high - stage.low > 0.1 * stage.value
    assert "bitsandbytes" in count.notes[0]


@pytest.mark.parametrize("quantization", ["awq", "modelopt", "compressed-tensors", "wizardry"])
def test_methods_that_need_a_checkpoint(quantization: str) -> None:
    with pytest.raises(NotUnderstood):
        weight_bytes(LLAMA, quantization=quantization)


def quantised(config: dict[str, Any], **changes: object) -> int:
    return value(weight_bytes(llama(quantization_config=config, **changes)))


def test_a_checkpoints_own_method_wins() -> None:
    config = llama(quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    assert value(weight_bytes(config, quantization="fp8")) == value(weight_bytes(config))


def test_ignored_modules_stay_in_16_bits() -> None:
    """Each spelling of "the first layer's MLP stays", and all give the same bytes."""
    whole = quantised({"quant_method": "fp8", "weight_block_size": [128, 128]})
    mlp = 3 * 4096 * 14336
    scales = 4 * (2 * 112 * 32 + 32 * 112)
    expected = whole + mlp - scales
    names = [f"model.layers.0.mlp.{part}_proj" for part in ("gate", "up", "down")]
    assert quantised({"quant_method": "fp8", "weight_block_size": [128, 128], "ignored_layers": names}) == expected
    alias = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": names}
    assert quantised(alias) == expected


def compressed(ignore: list[str], bits: int = 4) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
    group = {"targets": ["Linear"], "weights": weights}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "ignore": ignore,
        "config_groups": {"g": group},
    }


def test_compressed_tensors_ignores_names_and_patterns() -> None:
    every = quantised(compressed(["lm_head"]))
    first = quantised(compressed(["lm_head", "re:.*layers\\.0\\.mlp.*"]))
    listed = quantised(compressed(["lm_head", *(f"model.layers.0.mlp.{p}_proj" for p in ("gate", "up", "down"))]))
    assert first == listed > every
    partly = quantised(compressed(["lm_head", "model.layers.0.mlp.gate_proj"]))
    assert partly == every  # a merged module is ignored only when all its parts are


def test_modelopt_quantises_the_head_unless_it_is_excluded() -> None:
    config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
    head = 128256 * 4096
    smaller, larger = quantised(config), quantised({**config, "ignore": ["lm_head"]})
    assert larger - smaller == 2 * head - (head // 2 + head // 16 + 8)


def test_a_legacy_modelopt_file_without_a_producer_is_not_seen() -> None:
    beside = {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    count = weight_bytes(LLAMA, beside)
    assert value(count) == value(weight_bytes(LLAMA))
    assert "producer" in count.notes[0]
    seen = weight_bytes(LLAMA, {**beside, "producer": {"name": "modelopt"}})
    assert value(seen) < 0.5 * value(count)


@pytest.mark.parametrize(
    "config",
    [
        {"quant_method": "sorcery"},
        {"quant_method": "modelopt", "quant_algo": "W1A1"},
        {"quant_method": "compressed-tensors"},
        {"quant_method": "gptq", "bits": 5},
        {"quant_method": "compressed-tensors", "config_groups": {"g": {"targets": ["Linear"]}}},
    ],
)
def test_methods_that_are_not_known(config: dict[str, Any]) -> None:
    with pytest.raises(NotUnderstood) as caught:
        weight_bytes(llama(quantization_config=config))
    assert caught.value.where.startswith("quantization_config")


def test_gptq_dynamic_rules_by_layer() -> None:
    base = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
    every = quantised(base)
    without = quantised({**base, "dynamic": {"-:.*layers\\.3\\..*": {}}})
    wider = quantised({**base, "dynamic": {"+:.*layers\\.3\\.mlp.*": {"bits": 8}}})
    assert every < wider < without


def test_names_by_wildcard_substring_and_prefix() -> None:
    excluded = q.Excluded(q.split_wildcards(["lm_head", "*.layers.0.*", "mtp*", "model.norm?"]), q.COMMON_FUSED)
    assert excluded.has("lm_head")
    assert excluded.has("language_model.lm_head")
    assert excluded.has("model.layers.0.mlp.down_proj")
    assert excluded.has("mtp.layers.1.fc")
    assert excluded.has("model.norms")
    assert not excluded.has("model.layers.1.mlp.down_proj")


def test_renames_apply_substrings_then_prefixes() -> None:
    names = q.Renames((("model.", "language_model.model."),), ((".conv.", ".short_conv."),))
    assert names("model.layers.0.conv.in_proj") == "language_model.model.layers.0.short_conv.in_proj"
    assert names("lm_head") == "lm_head"


def test_layers_that_names_treat_alike_share_a_signature() -> None:
    patterns = q.LayerPatterns([f"model.layers.{i}.mlp.down_proj" for i in (0, 5)])
    assert patterns.signature(0) == patterns.signature(5) != patterns.signature(1) == patterns.signature(2)
    assert len({q.LayerPatterns(["re:.*layers\\.[0-3]\\..*"]).signature(i) for i in range(4)}) == 4
