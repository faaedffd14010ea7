"""From a model and an engine to the memory model's inputs, and the lines that only some starts have."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.engine import Engine, resolve_engine
from advisor.estimate import exact
from advisor.facts import ModelFacts
from advisor.gpu import Gpu
from advisor.ledger_lines import draft_line, lora_line, mtp_line
from advisor.model.read import read_model
from advisor.model.spec import ModelSpec
from advisor.overhead_constants import EncoderShape
from advisor.overhead_facts import encoder_shape, overhead_inputs
from advisor.overheads import overheads
from advisor.units import GIB
from advisor.versions import Version
from tests.advisor.cost_samples import constants, gpu

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
QWEN3_NEXT: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "vocab_size": 151936,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "linear_num_value_heads": 32,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "max_position_embeddings": 262144,
    "torch_dtype": "bfloat16",
}


def model(config: dict[str, Any], **changes: Any) -> ModelSpec:
    return read_model(ModelFacts(id="test/model", config={**config, **changes}), Version(0, 19, 0))


def engine(
    spec: ModelSpec, version: tuple[int, int, int] = (0, 19, 0), device: Gpu | None = None, **pins: Any
) -> Engine:
    return resolve_engine(spec, device or gpu(), Version(*version), pins)


def test_a_dense_model() -> None:
    spec = model(LLAMA)
    found = overhead_inputs(spec, engine(spec, max_model_len=8192))
    assert (found.hidden_size, found.intermediate_size, found.attention_width) == (4096, 14336, 6144)
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.num_layers) == (1024, 8192, 32)
    assert found.is_last_stage
    assert overheads(found, constants()).activation_bytes.value / GIB == pytest.approx(1.89, abs=0.01)


def test_the_vocabulary_is_padded_to_64() -> None:
    spec = model(LLAMA, vocab_size=49155)
    assert overhead_inputs(spec, engine(spec, max_model_len=8192)).vocab_size == 49216


def test_pipeline_stages_share_the_layers_and_only_the_last_samples() -> None:
    spec = model(LLAMA)
    split = engine(spec, max_model_len=8192, pipeline_parallel_size=3)
    stages = [overhead_inputs(spec, split, stage=i) for i in range(3)]
    assert [s.num_layers for s in stages] == [11, 11, 10]
    assert [s.is_last_stage for s in stages] == [False, False, True]
    peaks = [overheads(s, constants()).activation_bytes.value for s in stages]
    assert peaks[0] == peaks[1] < peaks[2]


def test_a_gated_delta_net_hybrid() -> None:
    spec = model(QWEN3_NEXT)
    found = overhead_inputs(spec, engine(spec, max_model_len=8192))
    assert found.is_hybrid
    assert found.uses_gdn
    assert (found.num_experts, found.experts_per_token, found.moe_intermediate_size) == (512, 10, 512)
    assert found.attention_width == 2 * 16 * 128 + 2 * 32 * 128


def test_a_dense_model_without_an_mlp_width_is_given_one() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "intermediate_size"}
    spec = model(config)
    assert overhead_inputs(spec, engine(spec, max_model_len=8192)).intermediate_size > 2 * 4096


@pytest.mark.parametrize(
    ("pins", "sizes"),
    [
        ({"cudagraph_capture_sizes": [8, 1, 4]}, (1, 4, 8)),
        ({"compilation_config": {"cudagraph_capture_sizes": [2, 16]}}, (2, 16)),
        ({"max_cudagraph_capture_size": 4}, (1, 2, 4)),
        ({"compilation_config": {"max_cudagraph_capture_size": 8}}, (1, 2, 4, 8)),
        ({"compilation_config": {"cudagraph_mode": "NONE"}}, ()),
        ({}, None),
    ],
)
def test_capture_sizes_that_the_user_set(pins: dict[str, Any], sizes: tuple[int, ...] | None) -> None:
    spec = model(LLAMA)
    assert overhead_inputs(spec, engine(spec, max_model_len=8192, **pins)).capture_sizes == sizes


@pytest.mark.parametrize(
    ("pins", "off"),
    [
        ({"limit_mm_per_prompt": {"image": 0, "video": 0}}, True),
        ({"limit_mm_per_prompt": {"image": 0, "video": 1}}, False),
        ({"language_model_only": True}, True),
        ({}, False),
    ],
)
def test_every_modality_at_zero_switches_the_tower_off(pins: dict[str, Any], off: bool) -> None:
    spec = model(LLAMA)
    assert overhead_inputs(spec, engine(spec, max_model_len=8192, **pins)).multimodal_off is off


def test_towers_are_known_by_name_stated_by_config_or_unknown() -> None:
    known = constants().encoders
    stated = {"model_type": "qwen3_vl", "vision_config": {"hidden_size": 1024, "deepstack_visual_indexes": [5, 11]}}
    assert encoder_shape(stated, known) == EncoderShape(
        item_tokens=16384, item_patches=65536, hidden_size=1024, intermediate_size=4304, levels=3
    )
    image = {
        "image_size": 448,
        "patch_size": 14,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "spatial_merge_size": 2,
    }
    assert encoder_shape({"model_type": "new", "vision_config": image}, known) == EncoderShape(
        item_tokens=256, item_patches=1024, hidden_size=1024, intermediate_size=4096
    )
    assert encoder_shape({"model_type": "new", "vision_config": {"hidden_size": 1024}}, known) is None
    assert encoder_shape({"model_type": "new"}, known) is None


def test_lora_slots_by_hand() -> None:
    """Rank 16 on one rank: 32 layers x 16 x 2 bytes x (q, k, v, o, gate, up, down in and out)."""
    spec = model(LLAMA)
    line = lora_line(spec, engine(spec, max_model_len=8192), max_loras=2, max_lora_rank=16)
    per_layer = 3 * 4096 + 6144 + 4096 + 4096 + 2 * 4096 + 2 * 14336 + 14336 + 4096
    assert line.bytes.value == 2 * 16 * 2 * 32 * per_layer
    assert line.in_budget


def test_lora_and_mtp_shrink_with_tensor_parallel() -> None:
    spec = model(QWEN3_NEXT)
    one, two = (engine(spec, max_model_len=8192, tensor_parallel_size=n) for n in (1, 2))
    lora = [lora_line(spec, e, max_loras=1, max_lora_rank=8).bytes for e in (one, two)]
    assert lora[0].value > lora[1].value
    assert lora[0].high > 10 * lora[0].value  # experts, at the high end only


def test_a_draft_is_its_weights_and_mtp_a_layer_each() -> None:
    assert draft_line(exact(GIB)).bytes == exact(GIB)
    spec = model(LLAMA)
    assert mtp_line(spec, engine(spec, max_model_len=8192)).bytes.value == 0
