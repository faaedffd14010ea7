"""What weight_bytes answers from: a stated figure, a config, a fragment with a checkpoint, a checkpoint alone."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.errors import EngineRefuses, InvalidInput, NotUnderstood
from advisor.facts import TensorFact, WeightFacts
from advisor.units import GIB
from advisor.versions import Version
from advisor.weights import WeightCount, weight_bytes

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
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
TOTAL = 16_060_522_496


def llama(**changes: object) -> dict[str, Any]:
    return {**LLAMA, **changes}


def of_size(total: int, **more: Any) -> WeightFacts:
    return WeightFacts(total_bytes=total, basis="headers", source="headers", **more)


def value(count: WeightCount) -> int:
    return max(stage.value for stage in count.per_stage)


def test_a_llama_by_hand() -> None:
    """Every term of Llama 3.1 8B, added up apart from the code."""
    hidden, inner, layers, vocab = 4096, 14336, 32, 128256
    attention = hidden * (4096 + 2 * 1024) + 4096 * hidden
    mlp = 3 * hidden * inner
    norms = 2 * hidden
    layer = 2 * (attention + mlp + norms) + 16  # and four float32 scales
    rotary = 131072 * 128 * 2
    expected = layers * layer + 2 * (2 * vocab * hidden + hidden) + rotary
    assert value(weight_bytes(LLAMA)) == expected


def test_a_stated_figure_decides_and_has_a_logs_rounding() -> None:
    count = weight_bytes({"architectures": ["Nobody"]}, pp=2, weights_gib_per_gpu=7.51)
    assert count.basis == "measured"
    assert len(count.per_stage) == 2
    stage = count.per_stage[0]
    assert stage.basis == "measured"
    assert stage.low < 7.51 * GIB < stage.high
    assert (stage.high - stage.low) / GIB == pytest.approx(0.01)


def test_the_config_decides_in_a_small_band() -> None:
    count = weight_bytes(LLAMA, facts=of_size(TOTAL))
    (stage,) = count.per_stage
    assert count.basis == stage.basis == "estimated"
    assert count.notes == ()
    assert 0.99 * stage.value < stage.low < stage.value < stage.high < 1.011 * stage.value


@pytest.mark.parametrize("architectures", [["NobodyForCausalLM"], [], None, "LlamaForCausalLM"])
def test_nothing_known_is_refused(architectures: object) -> None:
    with pytest.raises(NotUnderstood) as caught:
        weight_bytes(llama(architectures=architectures))
    assert caught.value.where == "architectures"
    assert "weights_gib_per_gpu" in caught.value.hint


def test_an_unknown_architecture_is_the_checkpoint_divided() -> None:
    config = llama(architectures=["NobodyForCausalLM"])
    whole = weight_bytes(config, facts=of_size(TOTAL)).per_stage[0]
    assert whole.value == TOTAL
    assert whole.high >= 1.05 * TOTAL
    halves = weight_bytes(config, facts=of_size(TOTAL), tp=2)
    assert halves.per_stage[0].value == TOTAL // 2
    assert any("NobodyForCausalLM" in note for note in halves.notes)
    stages = weight_bytes(config, facts=of_size(TOTAL), pp=4).per_stage
    assert len(stages) == 4
    assert stages[0].value > stages[1].value  # the embeddings
    assert sum(stage.value for stage in stages) == pytest.approx(TOTAL, rel=1e-6)


def test_the_divided_band_holds_what_is_built() -> None:
    """The fallback, asked about a model that is known."""
    for tp, pp in ((1, 1), (2, 1), (1, 2), (4, 2), (8, 1)):
        built = weight_bytes(LLAMA, tp=tp, pp=pp).per_stage
        guessed = weight_bytes(llama(architectures=["Nobody"]), facts=of_size(TOTAL), tp=tp, pp=pp).per_stage
        assert all(g.low <= b.value <= g.high for g, b in zip(guessed, built, strict=True))


def test_a_fragment_takes_class_defaults_in_a_wide_band() -> None:
    """vLLM builds what the class says; a missing key at top level is most likely missing from a copy."""
    fragment = {k: v for k, v in LLAMA.items() if k != "intermediate_size"}
    count = weight_bytes(fragment)
    (stage,) = count.per_stage
    assert stage.value == value(weight_bytes(llama(intermediate_size=11008)))
    assert stage.high > 1.3 * stage.value
    assert "intermediate_size" in count.notes[-1]


def test_a_fragment_with_a_checkpoint_takes_its_size() -> None:
    fragment = {k: v for k, v in LLAMA.items() if k != "intermediate_size"}
    count = weight_bytes(fragment, facts=of_size(TOTAL), tp=2)
    (stage,) = count.per_stage
    assert stage.value == pytest.approx(TOTAL / 2, rel=0.01)
    assert stage.low <= value(weight_bytes(LLAMA, tp=2)) <= stage.high
    assert "intermediate_size" in count.notes[0]


def test_gguf_keeps_the_files_blocks() -> None:
    facts = WeightFacts(total_bytes=4_900_000_000, basis="gguf", source="header")
    count = weight_bytes(LLAMA, facts=facts)
    assert count.per_stage[0].value == pytest.approx(4_900_000_000, rel=1e-6)
    assert "GGUF" in count.notes[0]


def test_a_checkpoint_of_another_size_is_told_and_reached() -> None:
    count = weight_bytes(LLAMA, facts=of_size(TOTAL // 2))
    (stage,) = count.per_stage
    assert stage.value == value(weight_bytes(LLAMA))
    assert stage.low <= TOTAL // 2
    assert "the checkpoint has 7.48 GiB" in count.notes[0]


def test_float32_files_load_in_16_bits() -> None:
    facts = of_size(2 * TOTAL, num_parameters=TOTAL // 2)
    count = weight_bytes(LLAMA, facts=facts)
    assert count.notes == ("the checkpoint is stored in 32 bits and loaded in 16",)
    assert count.per_stage[0].high < 1.02 * TOTAL


def tensors(*, head: bool) -> dict[str, TensorFact]:
    """A checkpoint of one large tensor, and a head if asked for; a layer of multi-token prediction besides."""
    names = {
        "model.layers.0.mlp.weight": TensorFact("BF16", (1,), TOTAL - 4 * 128256 * 4096),
        "model.embed_tokens.weight": TensorFact("BF16", (128256, 4096), 2 * 128256 * 4096),
        "model.layers.32.eh_proj.weight": TensorFact("BF16", (1,), 3 * GIB),
    }
    if head:
        names["lm_head.weight"] = TensorFact("BF16", (128256, 4096), 2 * 128256 * 4096)
    return names


def test_a_head_in_the_checkpoint_may_untie() -> None:
    config = llama(tie_word_embeddings=True)
    tied, untied = value(weight_bytes(config)), value(weight_bytes(LLAMA))
    facts = of_size(TOTAL, tensors=tensors(head=True))
    count = weight_bytes(config, facts=facts)
    assert count.per_stage[0].value == tied
    assert count.per_stage[0].high >= untied
    assert "output head" in count.notes[0]
    older = weight_bytes(config, facts=facts, version=Version(0, 30, 0))
    assert older.per_stage[0].high < untied
    assert older.notes == ()
    without = weight_bytes(config, facts=of_size(TOTAL, tensors=tensors(head=False)))
    assert without.notes == ()


def test_layers_past_the_models_own_are_not_loaded() -> None:
    """Multi-token prediction: 3 GiB of it change nothing."""
    facts = of_size(TOTAL + 3 * GIB, tensors=tensors(head=True))
    assert weight_bytes(LLAMA, facts=facts).notes == ()


@pytest.mark.parametrize(
    ("dtype", "stated", "capability", "times"),
    [
        (None, "bfloat16", (9, 0), 1),
        ("auto", "float32", (9, 0), 1),
        ("float32", "bfloat16", (9, 0), 2),
        ("half", "float32", (9, 0), 1),
        (None, "float32", None, 1),
        (None, "bfloat16", (7, 5), 1),
    ],
)
def test_dtypes(dtype: str | None, stated: str, capability: tuple[int, int] | None, times: int) -> None:
    count = weight_bytes(llama(torch_dtype=stated), dtype=dtype, capability=capability)
    assert value(count) == pytest.approx(times * value(weight_bytes(LLAMA)), rel=1e-6)


def test_a_dtype_that_is_none() -> None:
    with pytest.raises(InvalidInput, match="'int8' is not a dtype"):
        weight_bytes(LLAMA, dtype="int8")


@pytest.mark.parametrize(("tp", "what"), [(3, "number of attention heads"), (64, "number of attention heads")])
def test_tensor_parallelism_that_does_not_divide(tp: int, what: str) -> None:
    with pytest.raises(EngineRefuses, match=what) as caught:
        weight_bytes(LLAMA, tp=tp)
    assert caught.value.code == "tensor_parallel_not_dividing"


def test_more_stages_than_layers() -> None:
    with pytest.raises(EngineRefuses) as caught:
        weight_bytes(LLAMA, pp=33)
    assert caught.value.code == "more_stages_than_layers"


def test_kv_heads_are_replicated_when_too_few() -> None:
    """Eight KV heads on 16 ranks: one head each, twice over."""
    config = llama(vocab_size=128256)
    layer = 2 * (4096 * (256 + 128 + 128) + 256 * 4096 + 3 * 4096 * 896 + 2 * 4096) + 16
    edges = 2 * (2 * 128256 * 4096 // 16 + 4096) + 131072 * 128 * 2
    assert value(weight_bytes(config, tp=16)) == 32 * layer + edges


def test_layers_that_do_not_divide_go_to_the_stages_before_the_last() -> None:
    counts = weight_bytes(llama(num_hidden_layers=33, vocab_size=64), pp=4).per_stage
    layer = value(weight_bytes(llama(num_hidden_layers=34))) - value(weight_bytes(llama(num_hidden_layers=33)))
    assert [round(stage.value / layer) for stage in counts] == [8, 8, 9, 8]
    stated = weight_bytes(llama(num_hidden_layers=33, vocab_size=64), pp=4, partition=(12, 7, 7, 7)).per_stage
    assert [round(stage.value / layer) for stage in stated] == [12, 7, 7, 7]


def test_towers_can_be_left_out() -> None:
    config = {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        **{k: v for k, v in LLAMA.items() if k not in ("architectures", "model_type")},
        "vision_config": {"hidden_size": 1280, "depth": 32, "intermediate_size": 3420, "out_hidden_size": 4096},
    }
    seeing, blind = weight_bytes(config), weight_bytes(config, towers=False)
    assert value(seeing) - value(blind) == pytest.approx(1.3e9, rel=0.1)
    assert blind.per_stage[0].high - value(blind) < seeing.per_stage[0].high - value(seeing)


def test_values_of_the_wrong_kind_are_refused_in_one_sentence() -> None:
    for key, wrong in (
        ("hidden_size", "4096"),
        ("num_hidden_layers", -1),
        ("num_attention_heads", 0),
        ("rope_scaling", "linear"),
        ("vocab_size", [1]),
        ("intermediate_size", 1 << 50),
        ("rope_scaling", {"rope_type": "linear", "factor": "many"}),
    ):
        with pytest.raises(NotUnderstood):
            weight_bytes(llama(**{key: wrong}))
