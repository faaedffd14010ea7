"""What each pipeline stage holds of a model's layers and groups, and which cuts vLLM refuses.

Source: vLLM 0.32 distributed/utils.py (get_pp_indices), platforms/interface.py (update_block_size_for_backend),
model_executor/layers/attention/attention.py (validate_kv_sharing_target), v1/core/kv_cache_utils.py
(_project_kv_cache_groups_to_worker).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from advisor.engine import Engine
from advisor.errors import EngineRefuses
from advisor.kv.groups import LayerGroup
from advisor.kv.kernels import Backend
from advisor.kv.parallel import pipeline_slices
from advisor.kv.per_layer import Sizing, size_blocks, unaligned
from advisor.kv.specs import LayerSpec
from advisor.model.spec import Layer, ModelSpec, StateCache

_WORKERS_ALIGN = (0, 20)  # before it the engine aligned once for all workers


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline stage: its layers [first, end), and the blocks its worker makes."""

    first: int
    end: int
    sizing: Sizing

    def holds(self, index: int) -> bool:
        """Whether the layer is of this stage."""
        return self.first <= index < self.end


def cut(model: ModelSpec, engine: Engine, backend: Backend) -> tuple[Stage, ...]:
    """The stages of the model, each with the blocks of its worker; refuses cuts that vLLM cannot build."""
    sizing = size_blocks(model, engine, backend)
    slices = pipeline_slices(model.num_layers, engine.pipeline_parallel_size)
    stages = []
    for first, end in slices:
        layers = [layer for layer in model.layers if first <= layer.index < end]
        _check_shared(layers, first, end)
        _check_experts(model, first, end)
        alone = len(slices) > 1 and engine.version >= _WORKERS_ALIGN and model.is_hybrid and not _attends(layers)
        stages.append(Stage(first=first, end=end, sizing=unaligned(engine) if alone else sizing))
    return tuple(stages)


def sizing_of(stages: Sequence[Stage], index: int) -> Sizing:
    """The blocks of the worker that holds a layer."""
    return next(stage.sizing for stage in stages if stage.holds(index))


def _attends(layers: Sequence[Layer]) -> bool:
    return any(not isinstance(cache, StateCache) for layer in layers for cache in layer.caches)


def _check_shared(layers: Sequence[Layer], first: int, end: int) -> None:
    for layer in layers:
        if layer.shares_with is not None and not first <= layer.shares_with < end:
            raise EngineRefuses(
                "pp-shared-cache",
                f"layer {layer.index} reads the cache of layer {layer.shares_with}, which another pipeline stage holds",
                hint="set pipeline_parallel_size: 1; tensor_parallel_size splits this model",
                source="vLLM model_executor/layers/attention/attention.py: validate_kv_sharing_target",
            )


def _check_experts(model: ModelSpec, first: int, end: int) -> None:
    if model.expert_layers is not None and not any(first <= i < end for i in model.expert_layers):
        raise EngineRefuses(
            "pp-no-experts",
            f"the pipeline stage of layers {first} to {end - 1} has no layer with experts, which {model.architecture} "
            "looks for",
            hint="use fewer pipeline stages; tensor_parallel_size splits this model too",
            source="vLLM model_executor/models: set_moe_parameters",
        )


def check_context(groups: Sequence[LayerGroup], engine: Engine) -> None:
    """Sliding layers cannot be divided by tokens; laid out as full ones (hybrid manager disabled) they can."""
    sliding = any(spec.kind == "SlidingWindowSpec" for group in groups for _, spec in group.members)
    if sliding and engine.decode_context_parallel_size > 1:
        raise EngineRefuses(
            "dcp-sliding-window",
            "decode context parallel does not support sliding-window layers",
            hint="set decode_context_parallel_size: 1, or disable_hybrid_kv_cache_manager: true beside full layers",
            source="vLLM v1/kv_cache_interface.py: SlidingWindowSpec",
        )


def reported_block_size(cuts: Sequence[Stage], groups: Sequence[LayerGroup]) -> int:
    """The block size a server states; where workers disagree, the smallest of the groups."""
    if len({stage.sizing for stage in cuts}) == 1:
        return cuts[0].sizing.reported_block_size
    return min(group.spec.block_size for group in groups)


def held_by(stage: Stage, groups: Sequence[LayerGroup], owners: Sequence[int]) -> list[list[LayerSpec]]:
    """The layers of each group that one stage holds."""
    return [[spec for i, spec in group.members if stage.holds(owners[i])] for group in groups]


def block_bytes(groups: Sequence[LayerGroup], held: Sequence[Sequence[LayerSpec]]) -> int:
    """Bytes of one block on a stage that holds these layers of the groups: its longest group's."""
    return max(_group_bytes(group, members) for group, members in zip(groups, held, strict=True))


def _group_bytes(group: LayerGroup, members: Sequence[LayerSpec]) -> int:
    if group.uniform:
        return sum(spec.page_size_bytes for spec in members)
    return len(members) * group.spec.page_size_bytes


def token_bytes(groups: Sequence[LayerGroup], held: Sequence[Sequence[LayerSpec]]) -> int | None:
    """Bytes of one token on a stage, all its layers; None where layers differ in kind."""
    if len(groups) != 1 or groups[0].spec.kind not in ("FullAttentionSpec", "MLAAttentionSpec"):
        return None
    return sum(spec.bytes_per_token for spec in held[0])
