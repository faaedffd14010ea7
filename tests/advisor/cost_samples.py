"""Inputs of the memory model that several tests share: an H100, a Llama, and strategies around them."""

from __future__ import annotations

from typing import Any

from advisor.estimate import measured
from advisor.gpu import Gpu
from advisor.overhead_constants import OverheadConstants
from advisor.overhead_inputs import OverheadInputs
from advisor.units import bytes_from_gib
from advisor.versions import Version
from kvadvise.constants import load_constants


def gpu(name: str = "H100 80GB", total_gib: float = 79.19, cc: tuple[int, int] | None = (9, 0), **more: Any) -> Gpu:
    total = measured(bytes_from_gib(total_gib))
    values: dict[str, Any] = {"vendor": "nvidia", "free_bytes": total, **more}
    return Gpu(name=name, device_name=name, compute_capability=cc, total_bytes=total, **values)


def constants(version: tuple[int, int, int] = (0, 19, 0)) -> OverheadConstants:
    return load_constants().at(Version(*version))


def llama_8b(version: tuple[int, int, int] = (0, 19, 0), **more: Any) -> OverheadInputs:
    """Llama-3.1-8B as the API server starts it on an H100."""
    values: dict[str, Any] = {
        "version": Version(*version),
        "gpu": gpu(),
        "architecture": "LlamaForCausalLM",
        "hidden_size": 4096,
        "vocab_size": 128256,
        "num_layers": 32,
        "intermediate_size": 14336,
        "attention_width": 6144,
        "max_num_seqs": 1024,
        "max_num_batched_tokens": 8192,
        "max_model_len": 8192,
    }
    return OverheadInputs(**{**values, **more})
