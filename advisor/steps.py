"""The priority table: what to change first, what it buys, and when to stop.

It starts from what vLLM would do with no flags (pins kept) and moves one argument at a time, what costs
nothing first: the length, the share of the card, the batch; then the KV cache's precision, where the policy
allows a loss. The length and the batch are always cut to what the load needs, because an argument left to
vLLM is an argument that changes with its version; the others move only while the target is not met. A pin is
never moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from advisor import reasons
from advisor.errors import EngineRefuses
from advisor.kv.dtypes import is_quantized
from advisor.kv_quantization import eight_bit_kv
from advisor.plan_types import Change, Step
from advisor.sizing import Problem, Sized, size
from advisor.utilization import largest_utilization, proposed_utilization

SAFE_UTILIZATION = 0.95
_BATCHES = (8192, 4096, 2048, 1024, 512)
_SMALLEST_MULTIMODAL_BATCH = 2048
_SEQS_STEP = 8
_STATE_BLOCK_SHARE = 0.8  # of the state blocks that max_num_seqs may take (vllm#38632, kaito#2319)


class State(msgspec.Struct, frozen=True):
    """Where the walk stands: the moves made so far and what they give."""

    moves: dict[str, Any]
    sized: Sized


class Move(msgspec.Struct, frozen=True):
    """What one row of the table decides: new values (none: keep) and why."""

    values: dict[str, Any]
    reason: str


class Walk(msgspec.Struct, frozen=True):
    """The table as walked."""

    state: State
    steps: tuple[Step, ...]


def met(problem: Problem, sized: Sized) -> bool:
    """Whether it starts at the low end and promises the target."""
    return sized.starts is True and problem.promised(sized.at_p95) >= problem.target


def only_length_fails(problem: Problem, sized: Sized) -> bool:
    """Whether the load is served and nothing but a max_model_len pinned beyond its needs fails the start check."""
    needed = -(-problem.longest_tokens // sized.layout.block_size) * sized.layout.block_size
    if "max_model_len" not in problem.pins or sized.engine.max_model_len <= needed:
        return False
    failing = {name for name, verdict in sized.checks.items() if verdict is not True}
    return failing == {"start_check"} and problem.promised(sized.at_p95) >= problem.target


def better(problem: Problem, a: Sized, b: Sized) -> bool:
    """Whether `a` starts more surely than `b`, or as surely and promises more."""
    return _rank(problem, a) > _rank(problem, b)


def _rank(problem: Problem, sized: Sized) -> tuple[int, int]:
    return {True: 2, None: 1, False: 0}[sized.starts], problem.promised(sized.at_p95)


def walk(problem: Problem, moves: dict[str, Any], *, may_lose: bool) -> Walk:
    """Walk rows 1 to 4 of the table from `moves`; `may_lose` allows row 4 to quantise the KV cache.

    Raises EngineRefuses where vLLM refuses the pins whatever the moves.
    """
    state = _start(problem, moves)
    steps: list[Step] = []
    for priority, (parameter, choose) in enumerate(TABLE, start=1):
        move = choose(problem, state, may_lose)
        after = moved(problem, state, move.values)
        steps.append(record(priority, parameter, state, after, move.reason))
        state = after
    return Walk(state, tuple(steps))


def _start(problem: Problem, moves: dict[str, Any]) -> State:
    """What vLLM would do with no flags; where it refuses its own default length beside the pins, the needed
    one."""
    try:
        return State(moves, size(problem, moves))
    except EngineRefuses:
        if "max_model_len" in problem.pins:
            raise
        moves = moves | {"max_model_len": min(problem.longest_tokens, problem.model.max_length.tokens)}
        return State(moves, size(problem, moves))


def record(priority: int, parameter: str, before: State, after: State, reason: str) -> Step:
    """The step from one state to the next, with every other argument that moved along."""
    names = (before.moves.keys() | after.moves.keys()) - {parameter}
    moved = [name for name in names if value_of(before, name) != value_of(after, name)]
    return Step(
        priority=priority,
        parameter=parameter,
        before=value_of(before, parameter),
        after=value_of(after, parameter),
        reason=reason,
        binding=before.sized.binding,
        concurrency_at_p95_before=before.sized.at_p95,
        concurrency_at_p95_after=after.sized.at_p95,
        starts_before=before.sized.starts,
        starts_after=after.sized.starts,
        also={name: Change(value_of(before, name), value_of(after, name)) for name in sorted(moved)},
    )


def value_of(state: State, name: str) -> Any:
    """An argument's value in a state: the engine's, or as moved."""
    return getattr(state.sized.engine, name, state.moves.get(name))


def _max_model_len(problem: Problem, state: State, _may_lose: bool) -> Move:
    if "max_model_len" in problem.pins:
        return Move({}, reasons.pinned_length(problem, state.sized))
    block = state.sized.layout.block_size
    needed = -(-problem.longest_tokens // block) * block
    value = min(needed, problem.model.max_length.tokens)
    reason = reasons.length(problem, state.sized, value)
    return Move({} if value == state.sized.engine.max_model_len else {"max_model_len": value}, reason)


def _utilization(problem: Problem, state: State, _may_lose: bool) -> Move:
    now = state.sized.engine.gpu_memory_utilization
    if "gpu_memory_utilization" in problem.pins:
        return Move({}, reasons.pinned_utilization(problem, state.sized))
    if problem.gpu.is_cpu:
        return Move({}, reasons.CPU_UTILIZATION)
    ceiling = safe_utilization(state.sized)
    if ceiling < now:
        if state.sized.ledger.start_check is True and state.sized.ledger.outside_check is True:
            return Move({}, reasons.utilization_kept(state.sized))
        return Move({"gpu_memory_utilization": ceiling}, reasons.utilization_lowered(state.sized, ceiling))
    if _sized_otherwise(state.sized):
        return Move({}, reasons.UTILIZATION_UNUSED)
    if met(problem, state.sized):
        return Move({}, reasons.utilization_kept(state.sized))
    return _raised(problem, state, now, ceiling)


def _raised(problem: Problem, state: State, now: float, ceiling: float) -> Move:
    """The smallest share, in whole hundredths, that meets the target; the largest safe one where none
    does."""
    best: tuple[float, Sized] | None = None
    for hundredths in range(round(now * 100) + 1, round(ceiling * 100) + 1):
        share = hundredths / 100
        best = (share, size(problem, state.moves | {"gpu_memory_utilization": share}))
        if met(problem, best[1]):
            break
    if best is None or not better(problem, best[1], state.sized):
        return Move({}, reasons.utilization_no_help(state.sized, ceiling))
    return Move({"gpu_memory_utilization": best[0]}, reasons.utilization_raised(state.sized, best[0], ceiling))


def safe_utilization(sized: Sized) -> float:
    """The largest share to propose: what is free at start less one step, what must lie outside the budget,
    0.95."""
    shares = [SAFE_UTILIZATION]
    for ledger in sized.ledgers:
        total = ledger.total_bytes
        if ledger.checks_free_memory:
            shares.append(proposed_utilization(total.high, ledger.free_bytes.low))
        shares.append(largest_utilization(total.low, max(0, total.low - ledger.outside_budget_bytes.high)))
    return max(0.01, min(shares))


def _sized_otherwise(sized: Sized) -> bool:
    return sized.engine.kv_cache_memory_bytes is not None or sized.engine.num_gpu_blocks_override is not None


def _max_num_seqs(problem: Problem, state: State, _may_lose: bool) -> Move:
    smaller = moved(problem, state, _batch(problem, state.sized))
    trial = _room_outside(problem, smaller)
    may_shrink = "max_num_batched_tokens" not in problem.pins and not only_length_fails(problem, trial.sized)
    if may_shrink and not met(problem, trial.sized):
        trial = _smaller_batch(problem, trial)
    names = ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization")
    values = {name: trial.moves[name] for name in names if name in trial.moves and name not in problem.pins}
    reason = reasons.batch(problem, state.sized, trial.sized)
    if trial.sized.engine.gpu_memory_utilization != smaller.sized.engine.gpu_memory_utilization:
        reason += " " + reasons.utilization_for_graphs(trial.sized)
    return Move(values, reason)


def _room_outside(problem: Problem, state: State) -> State:
    """A share of memory that leaves room outside the budget, where the smaller batch has taken that away: what its
    warm-up no longer takes goes to the pool, and nothing is left for what is captured after it.
    """
    if state.sized.starts is True or "gpu_memory_utilization" in problem.pins or problem.gpu.is_cpu:
        return state
    ceiling = safe_utilization(state.sized)
    if ceiling >= state.sized.engine.gpu_memory_utilization:
        return state
    lower = moved(problem, state, {"gpu_memory_utilization": ceiling})
    return lower if better(problem, lower.sized, state.sized) else state


def moved(problem: Problem, state: State, values: dict[str, Any]) -> State:
    """The state after setting `values`."""
    if not values:
        return state
    moves = state.moves | values
    return State(moves, size(problem, moves))


def _batch(problem: Problem, sized: Sized) -> dict[str, Any]:
    """max_num_seqs for the target, and a batch that holds them; what is pinned is left out."""
    batch, pins = sized.engine.max_num_batched_tokens, problem.pins
    if "max_num_seqs" in pins:
        return {}
    seqs = seqs_for(problem, sized)
    if "max_num_batched_tokens" in pins:
        return {"max_num_seqs": min(seqs, batch)}
    return {"max_num_seqs": seqs} | ({"max_num_batched_tokens": seqs} if batch < seqs else {})


def seqs_for(problem: Problem, sized: Sized) -> int:
    """The target rounded up to whole eights, well below the state blocks of a hybrid, never below the
    target."""
    wanted = -(-problem.target // _SEQS_STEP) * _SEQS_STEP
    if sized.layout.has_states and sized.layout.graphs:
        limit = int(sized.pool_low.num_blocks * _STATE_BLOCK_SHARE)
        wanted = max(problem.target, min(wanted, limit))
    return wanted


def _smaller_batch(problem: Problem, state: State) -> State:
    """The largest batch that meets the target; where none does, the one that promises most, larger first."""
    best = state
    for batch in batches_below(problem, state.sized):
        trial = moved(problem, state, {"max_num_batched_tokens": batch})
        if better(problem, trial.sized, best.sized):
            best = trial
        if met(problem, trial.sized):
            break
    return best


def batches_below(problem: Problem, sized: Sized) -> list[int]:
    """Batch sizes to try below the present one: chunked prefill on, room for every sequence and a whole
    state block."""
    if not sized.engine.enable_chunked_prefill:
        return []
    least = max(sized.engine.max_num_seqs, *(group.block_size for group in sized.layout.groups))
    if problem.model.is_multimodal:
        least = max(least, _SMALLEST_MULTIMODAL_BATCH)
    return [batch for batch in _BATCHES if least <= batch < sized.engine.max_num_batched_tokens]


def _kv_cache_dtype(problem: Problem, state: State, may_lose: bool) -> Move:
    policy = problem.workload.policy.kv_cache_quantization
    if "kv_cache_dtype" in problem.pins:
        return Move({}, reasons.pinned_kv(problem, state.sized))
    if met(problem, state.sized) and policy != "prefer":
        return Move({}, reasons.KV_NOT_NEEDED)
    choice = eight_bit_kv(problem.model, problem.gpu, problem.version, state.sized.engine.cache_dtype)
    if choice.dtype is None:
        return Move({}, reasons.kv_impossible(choice.reason))
    try:
        sized = size(problem, state.moves | {"kv_cache_dtype": choice.dtype})
    except EngineRefuses as refusal:
        return Move({}, reasons.kv_impossible(refusal.what))
    if policy == "never":
        return Move({}, reasons.kv_never(choice, sized))
    return _quantized(problem, state, choice.dtype, sized, may_lose)


def _quantized(problem: Problem, state: State, dtype: str, sized: Sized, may_lose: bool) -> Move:
    policy = problem.workload.policy.kv_cache_quantization
    fragile = is_fragile(problem)
    if met(problem, state.sized) and (policy != "prefer" or fragile):
        return Move({}, reasons.KV_FRAGILE_NOT_NEEDED if policy == "prefer" else reasons.KV_NOT_NEEDED)
    if not better(problem, sized, state.sized):
        return Move({}, reasons.kv_no_gain(dtype, sized))
    if only_length_fails(problem, state.sized) and policy != "prefer":
        return Move({}, reasons.kv_for_length(problem, state.sized))
    if not may_lose:
        return Move({}, reasons.kv_after_gpus(dtype, sized))
    if not met(problem, sized) and policy != "prefer":
        return Move({}, reasons.kv_not_enough(dtype, sized))
    return Move({"kv_cache_dtype": dtype} | _batch_back(problem, state, dtype), reasons.kv_taken(problem, dtype, sized))


def _batch_back(problem: Problem, state: State, dtype: str) -> dict[str, Any]:
    """A batch made smaller in vain is given back when the smaller cache makes that unnecessary."""
    if "max_num_batched_tokens" not in state.moves:
        return {}
    without = {k: v for k, v in state.moves.items() if k != "max_num_batched_tokens"} | {"kv_cache_dtype": dtype}
    sized = size(problem, without)
    batch = sized.engine.max_num_batched_tokens
    moved = batch != state.sized.engine.max_num_batched_tokens and batch >= sized.engine.max_num_seqs
    return {"max_num_batched_tokens": batch} if moved and met(problem, sized) else {}


def is_fragile(problem: Problem) -> bool:
    """Whether 8-bit caches without scales are known to break this family (Qwen2 and 2.5: no norm on keys,
    verl#4435)."""
    model = problem.model
    return (
        model.model_type.startswith(("qwen2", "qwen2_5")) and not model.qk_norm and not model.quantization.kv.calibrated
    )


def is_lossy(sized: Sized) -> bool:
    """Whether a flag, not the checkpoint, keeps the cache in fewer bits than the model computes with."""
    return sized.engine.kv_cache_dtype != "auto" and is_quantized(sized.engine.cache_dtype)


Chooser = Callable[[Problem, State, bool], Move]
TABLE: tuple[tuple[str, Chooser], ...] = (
    ("max_model_len", _max_model_len),
    ("gpu_memory_utilization", _utilization),
    ("max_num_seqs", _max_num_seqs),
    ("kv_cache_dtype", _kv_cache_dtype),
)
