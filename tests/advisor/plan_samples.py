"""Workloads, devices and models for the planner's tests, and the plan made of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from advisor.estimate import Estimate
from advisor.facts import ModelFacts
from advisor.gpu import Gpu
from advisor.model.read import read_model
from advisor.plan import make_plan, planned_version
from advisor.plan_types import Plan
from advisor.sizing import Problem
from advisor.units import GIB
from advisor.workload import GpuRef, Lengths, Load, ModelRef, Policy, Slo, WorkloadFile
from kvadvise.catalogue import find_facts
from kvadvise.constants import load_constants
from kvadvise.surroundings import Surroundings

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Llama-3.1-70B-Instruct"
QWEN = "Qwen/Qwen2.5-7B-Instruct"
QWEN3 = "Qwen/Qwen3-8B"
HYBRID = "Qwen/Qwen3-Next-80B-A3B-Instruct"
MLA = "deepseek-ai/DeepSeek-V2-Lite"
SLIDING = "openai/gpt-oss-20b"
_NOWHERE = Surroundings(env={}, cwd=Path("/"), home=Path("/nonexistent"))


T = TypeVar("T")


def known(value: T | None) -> T:
    """What must not be unknown here."""
    assert value is not None
    return value


@lru_cache(maxsize=64)
def facts_of(model: str) -> ModelFacts:
    found = find_facts(model, _NOWHERE)
    assert found is not None, f"{model} is not in the catalogue"
    return found


def _band(gib: float, width: float = 0.0) -> Estimate:
    low, high = round(gib * GIB), round((gib + width) * GIB)
    return Estimate(low, low, high, "measured")


def gpu(
    name: str = "RTX 4090",
    total: float = 23.52,
    free: float | None = None,
    *,
    cap: tuple[int, int] | None = (8, 9),
    count: int = 1,
    width: float = 0.0,
    **fields: Any,
) -> Gpu:
    return Gpu(
        **{
            "name": name,
            "device_name": f"NVIDIA {name}",
            "vendor": "nvidia",
            "compute_capability": cap,
            "count": count,
            "total_bytes": _band(total, width),
            "free_bytes": _band(free if free is not None else total - 0.42, width),
        }
        | fields
    )


def h100(count: int = 1) -> Gpu:
    return gpu("H100 80GB", 79.18, 78.6, cap=(9, 0), count=count, device_name="NVIDIA H100 80GB HBM3")


def a100(count: int = 1) -> Gpu:
    return gpu("A100 80GB", 79.25, 78.8, cap=(8, 0), count=count, device_name="NVIDIA A100-SXM4-80GB")


def rtx_3090(count: int = 1) -> Gpu:
    return gpu("RTX 3090", 23.56, 23.2, cap=(8, 6), count=count)


def t4() -> Gpu:
    return gpu("T4", 14.56, 14.4, cap=(7, 5))


def cpu(total: float = 15.0, free: float = 12.0) -> Gpu:
    return gpu("CPU", total, free, cap=None, vendor="cpu", unified_memory=True, device_name="cpu")


def workload(
    model: str = LLAMA,
    *,
    prompt: int | Lengths = 2000,
    output: int | Lengths = 200,
    concurrency: int = 16,
    weights_gib: float | None = None,
    policy: str = "ask",
    headroom: float = 0.8,
    engine: dict[str, Any] | None = None,
    slo: Slo | None = None,
    file: str = "workload.yaml",
    **load: Any,
) -> WorkloadFile:
    """`prompt` and `output` as a number are the maximum; weights are stated so that no other figure moves them."""
    return WorkloadFile(
        file=file,
        model=ModelRef(id=model, weights_gib_per_gpu=weights_gib),
        gpu=GpuRef(name="test"),
        workload=Load(prompt_tokens=_lengths(prompt), output_tokens=_lengths(output), concurrency=concurrency, **load),
        slo=slo or Slo(),
        policy=Policy(kv_cache_quantization=policy, headroom=headroom),  # type: ignore[arg-type]
        engine=engine or {},
    )


def _lengths(value: int | Lengths) -> Lengths:
    return value if isinstance(value, Lengths) else Lengths(p95=value, max=value)


def problem(model: str = LLAMA, device: Gpu | None = None, **fields: Any) -> Problem:
    work = workload(model, **fields)
    version = planned_version(work)
    facts = facts_of(model)
    return Problem(
        workload=work,
        facts=facts,
        model=read_model(facts, version),
        gpu=device or h100(),
        version=version,
        constants=load_constants().at(version),
        pins={name: value for name, value in work.engine.items() if name != "vllm_version"},
    )


def plan(
    model: str = LLAMA,
    device: Gpu | None = None,
    *,
    known_gpus: Sequence[Gpu] = (),
    siblings: Sequence[ModelFacts] = (),
    **fields: Any,
) -> Plan:
    return make_plan(
        workload(model, **fields),
        facts_of(model),
        device or h100(),
        load_constants(),
        kvadvise_version="0.0.0",
        inputs_sha256="0" * 64,
        known_gpus=known_gpus,
        siblings=siblings,
    )


def codes(made: Plan) -> set[str]:
    return {finding.code for finding in made.findings}


def messages(made: Plan, code: str) -> str:
    return " ".join(f"{f.message} {f.remedy}" for f in made.findings if f.code == code)
