"""The key of a start from its log: what the log says, then what was given beside it, then vLLM's own defaults.

Pure. A default is only taken where the log shows which arguments were given: otherwise nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.argument_table import ARGUMENT_RELEASES
from advisor.engine import resolve_engine
from advisor.errors import InvalidInput
from advisor.gpu import Gpu
from advisor.measured import MeasuredKey, key_of
from advisor.model.spec import ModelSpec
from advisor.versions import NEWEST, Version, parse_version
from launch.measured import other_gpu
from launch.startup_facts import StartupFacts

_DECIDES = ("tensor_parallel_size", "max_num_batched_tokens", "max_num_seqs")
_READ = (*_DECIDES, "pipeline_parallel_size", "data_parallel_size", "max_model_len", "enforce_eager", "dtype")
_FALLBACK = "Transformers"  # vLLM's own backend for architectures it has no code for


def key_from_log(facts: StartupFacts, model: ModelSpec, gpu: Gpu, supplied: Mapping[str, Any]) -> MeasuredKey:
    """The key of the start in a log, of `model` on `gpu`; `supplied` are engine arguments that the log does not print.

    Raises InvalidInput that names everything missing, or says where log and model or GPU are not the same.
    """
    missing = missing_parts(facts, supplied)
    if missing:
        raise InvalidInput(f"the log does not say {', '.join(missing)}", hint="give it, as the server was started with")
    _check_same(facts, model, gpu)
    release = release_of(facts, supplied)
    if release is None:
        raise InvalidInput("the log does not say vllm_version")
    pins = {name: value for name, value in supplied.items() if name != "vllm_version"}
    pins |= {name: value for name, value in (facts.args or {}).items() if name in ARGUMENT_RELEASES}
    pins |= {name: value for name in _READ if (value := getattr(facts, name)) is not None}
    pins = {name: value for name, value in pins.items() if name not in ("model", "tokenizer")}
    engine = resolve_engine(model, gpu, min(release, NEWEST), pins)
    return key_of(model, engine, str(release))


def release_of(facts: StartupFacts, supplied: Mapping[str, Any]) -> Version | None:
    """The release: the log's, else the one supplied, else None."""
    stated = supplied.get("vllm_version")
    if facts.release is not None or stated is None:
        return facts.release
    return parse_version(str(stated))


def missing_parts(facts: StartupFacts, supplied: Mapping[str, Any]) -> list[str]:
    """Parts of the key that neither the log nor anybody else says."""
    missing = ["vllm_version"] if release_of(facts, supplied) is None else []
    if facts.args is None or facts.args_partial:
        missing += [name for name in _DECIDES if getattr(facts, name) is None and supplied.get(name) is None]
    return missing


def _check_same(facts: StartupFacts, model: ModelSpec, gpu: Gpu) -> None:
    said = facts.architecture
    if said is not None and said != model.architecture and not said.startswith(_FALLBACK):
        raise InvalidInput(
            f"the log is of a {said}, and {model.id} is a {model.architecture}", hint="name the model that was started"
        )
    is_cpu = facts.device == "CPU"
    if facts.device is not None and is_cpu != gpu.is_cpu:
        raise InvalidInput(f"the log is of a {facts.device}, not of {gpu.name}", hint="name the device it ran on")
    other = other_gpu(facts, gpu.total_bytes.value)
    if other:
        raise InvalidInput(f"{other} as a {gpu.name} has", hint="name the GPU it ran on")
