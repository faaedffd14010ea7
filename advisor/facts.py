"""Model facts as they come in: a config and tensor sizes, read elsewhere, and where they were read."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class TensorFact(msgspec.Struct, frozen=True):
    """One tensor of a checkpoint: the dtype as safetensors names it, its shape, its bytes."""

    dtype: str
    shape: tuple[int, ...]
    n_bytes: int


class WeightFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How large the checkpoint is on disk. `tensors` only when the headers were read."""

    total_bytes: int
    basis: Literal["headers", "index", "gguf", "catalogue"]
    source: str
    num_parameters: int | None = None
    tensors: dict[str, TensorFact] | None = None


class AdapterFact(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRA adapter that the workload names and that lies on this machine, by its adapter_config.json."""

    name: str
    rank: int  # the largest of any layer


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model. `config` is config.json; `quant_config` hf_quant_config.json beside it, if any."""

    id: str
    config: dict[str, Any]
    quant_config: dict[str, Any] | None = None
    weights: WeightFacts | None = None
    resolved_from: Literal["directory", "hub cache", "catalogue", "hub"] = "directory"
    revision: str | None = None
    model_max_length: int | None = None  # tokenizer_config.json's, where it was read
    source: str = ""
    adapters: tuple[AdapterFact, ...] = ()
    notes: tuple[str, ...] = ()
