"""Which layers have experts, for the architectures whose pipeline stages must each hold one of them.

Their classes look for a mixture of experts while they are built, and raise where a stage has none. Source: vLLM 0.10
to 0.32 model_executor/models/{afmoe,glm4_moe,hy_v3,lfm2_moe,nemotron_h,openpangu,qwen3_moe,qwen3_next,step3p5}.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from advisor.errors import NotUnderstood
from advisor.model.config_view import ConfigView
from advisor.versions import Version

Reader = Callable[[ConfigView, int], frozenset[int]]


def _from(key: str) -> Reader:
    def read(cfg: ConfigView, layers: int) -> frozenset[int]:
        return frozenset(range(cfg.count(key), layers))

    return read


def _qwen(cfg: ConfigView, layers: int) -> frozenset[int]:
    """Every `decoder_sparse_step`-th layer but those in mlp_only_layers."""
    step = cfg.optional_size("decoder_sparse_step", default=1) or 1
    dense = set(cfg.numbers("mlp_only_layers") or ())
    return frozenset(i for i in range(layers) if i not in dense and (i + 1) % step == 0)


def _step(cfg: ConfigView, layers: int) -> frozenset[int]:
    stated: Any = cfg.raw("moe_layers_enum")
    if stated is None:
        return frozenset(range(1, layers))
    words = stated.split(",") if isinstance(stated, str) else stated
    return frozenset(int(word) for word in words if str(word).strip().isdigit())


def _letters(cfg: ConfigView, layers: int) -> frozenset[int]:
    pattern: Any = cfg.raw("hybrid_override_pattern") or cfg.raw("layers_block_type") or ""
    return frozenset(i for i, word in enumerate(pattern[:layers]) if word in ("E", "moe"))


_LOOKS_FOR_ONE: dict[str, tuple[Reader, tuple[int, int, int]]] = {
    "AfmoeForCausalLM": (_from("num_dense_layers"), (0, 11, 2)),
    "Glm4MoeForCausalLM": (_from("first_k_dense_replace"), (0, 10, 1)),
    "HYV3ForCausalLM": (_from("first_k_dense_replace"), (0, 20, 0)),
    "Lfm2MoeForCausalLM": (_from("num_dense_layers"), (0, 11, 2)),
    "NemotronHForCausalLM": (_letters, (0, 15, 0)),
    "NemotronHPuzzleForCausalLM": (_letters, (0, 16, 0)),
    "PanguUltraMoEForCausalLM": (_from("first_k_dense_replace"), (0, 11, 2)),
    "Qwen3MoeForCausalLM": (_qwen, (0, 10, 1)),
    "Qwen3NextForCausalLM": (_qwen, (0, 10, 2)),
    "Qwen3VLMoeForConditionalGeneration": (_qwen, (0, 12, 0)),
    "Step3p5ForCausalLM": (_step, (0, 16, 0)),
}


def expert_layers(architecture: str, cfg: ConfigView, layers: int, version: Version) -> tuple[int, ...] | None:
    """The layers with experts, in order; None where no stage needs one, or the config does not say."""
    reader, since = _LOOKS_FOR_ONE.get(architecture, (None, (0, 0, 0)))
    if reader is None or version < since:
        return None
    try:
        found = reader(cfg, layers)
    except (NotUnderstood, TypeError, ValueError):
        return None
    return tuple(sorted(found)) or None
