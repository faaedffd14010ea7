"""Rules of LoRA adapters: which architectures take them, which ranks and slots, what they cost."""

from __future__ import annotations

from advisor.model.interfaces import NO_LORA
from advisor.rules.table import Hit, InputRule
from advisor.sizing import Problem

_RANK_DEFAULT = 16
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_RANK_ONE = (0, 11, 1)  # first release that takes rank 1 too


def _enabled(problem: Problem) -> bool:
    return bool(problem.pins.get("enable_lora"))


def _number(problem: Problem, name: str, default: int) -> int:
    value = problem.pins.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _architecture(problem: Problem) -> Hit | None:
    spans = NO_LORA.get(problem.model.architecture, ())
    if not _enabled(problem) or not any(a <= problem.version and (b is None or problem.version < b) for a, b in spans):
        return None
    later = max((end for _, end in spans if end is not None), default=None)
    return Hit(
        f"{problem.model.architecture} takes no LoRA adapters in vLLM {problem.version}",
        f"use vLLM {'.'.join(map(str, later))} or newer" if later else "merge the adapter into the weights",
    )


def _rank(problem: Problem) -> Hit | None:
    rank = problem.pins.get("max_lora_rank")
    ranks = ((1,) if problem.version >= _RANK_ONE else ()) + _RANKS
    if rank is None or rank in ranks:
        return None
    fits = next((r for r in ranks if isinstance(rank, int) and r > rank), ranks[-1])
    return Hit(
        f"max_lora_rank {rank} is not one that vLLM {problem.version} takes: {', '.join(map(str, ranks))}",
        f"set max_lora_rank: {fits}, and no more than the largest adapter needs: buffers are made for it",
    )


def _adapters(problem: Problem) -> Hit | None:
    limit = _number(problem, "max_lora_rank", _RANK_DEFAULT)
    above = [adapter for adapter in problem.facts.adapters if adapter.rank > limit]
    if not _enabled(problem) or not above:
        return None
    names = ", ".join(f"{adapter.name} ({adapter.rank})" for adapter in above)
    needed = max(adapter.rank for adapter in above)
    fits = next((rank for rank in _RANKS if rank >= needed), None)
    return Hit(
        f"max_lora_rank is {limit}, and the rank of {names} is higher: vLLM refuses to load it",
        f"set max_lora_rank: {fits}" if fits else f"no release takes a rank above {_RANKS[-1]}",
    )


def _slots(problem: Problem) -> Hit | None:
    slots, kept = _number(problem, "max_loras", 1), problem.pins.get("max_cpu_loras")
    if not _enabled(problem):
        return None
    if slots < 1:
        return Hit(f"max_loras {slots} leaves no slot for an adapter", "set max_loras to the adapters of one batch")
    if isinstance(kept, int) and kept < slots:
        return Hit(
            f"max_cpu_loras {kept} is less than max_loras {slots}: an adapter in a slot must be in host memory too",
            f"set max_cpu_loras to {slots} or more, or leave it out",
        )
    return None


def _disabled(problem: Problem) -> Hit | None:
    adapters = problem.pins.get("lora_modules")
    if not adapters or _enabled(problem):
        return None
    return Hit(
        "lora_modules are loaded at start, and enable_lora is not set: the start fails on the first of them",
        "set enable_lora: true, with max_loras and max_lora_rank",
    )


def _more_than_slots(problem: Problem) -> Hit | None:
    adapters, slots = problem.pins.get("lora_modules"), _number(problem, "max_loras", 1)
    count = len(adapters) if isinstance(adapters, list | tuple) else 0
    if not _enabled(problem) or count <= slots or slots < 1:
        return None
    return Hit(
        f"{count} adapters share {slots} slot(s): requests of no more than {slots} of them run in one batch, the "
        "others wait",
        f"set max_loras: {count} if all are asked for at once; each slot costs its own buffers",
    )


def _buffers(problem: Problem) -> Hit | None:
    if not _enabled(problem):
        return None
    rank, slots = _number(problem, "max_lora_rank", _RANK_DEFAULT), problem.pins.get("max_loras") or 1
    largest = max((adapter.rank for adapter in problem.facts.adapters), default=0)
    enough = next((r for r in _RANKS if r >= largest), rank) if largest else rank
    return Hit(
        f"buffers are made for {slots} adapter(s) of rank {rank}, whatever is loaded; an adapter of a higher rank is "
        "refused, and long prompts with an adapter need memory that no start-up check sees",
        (
            f"max_lora_rank: {enough} is enough for them"
            if enough < rank
            else "max_lora_rank need only be the largest one's"
        )
        + "; let verify send adapter requests of the longest prompt",
    )


INPUTS = (
    InputRule(
        code="lora-architecture",
        severity="error",
        check=_architecture,
        consequence="invalid",
        source="vLLM v1/worker/lora_model_runner_mixin.py: load_lora_model",
    ),
    InputRule(
        code="lora-rank",
        severity="error",
        check=_rank,
        consequence="invalid",
        source="vLLM config/lora.py: MaxLoRARanks; vllm#2847",
    ),
    InputRule(
        code="lora-adapter-rank",
        severity="error",
        check=_adapters,
        consequence="invalid",
        source="vLLM lora/peft_helper.py: validate_legal; vllm#2847",
    ),
    InputRule(
        code="lora-slots",
        severity="error",
        check=_slots,
        consequence="invalid",
        source="vLLM config/lora.py: _validate_lora_config",
    ),
    InputRule(
        code="lora-disabled",
        severity="error",
        check=_disabled,
        consequence="invalid",
        source="vLLM entrypoints/openai/models/serving.py: init_static_loras",
    ),
    InputRule(
        code="lora-shared-slots", severity="warning", check=_more_than_slots, source="vLLM v1/core/sched/scheduler.py"
    ),
    InputRule(code="lora-buffers", severity="warning", check=_buffers, source="vllm#15039, vllm#22782"),
)
