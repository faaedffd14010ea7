"""Rules of the load: sequences at once, batches, queues, rates, prefixes."""

from __future__ import annotations

import math

from advisor.rules.table import Hit, InputRule, Planned, PlanRule
from advisor.sizing import Problem

_STATE_BLOCK_SHARE = 0.8
_THRASH_HEADROOM = 0.9
_QUEUE_LIMITS = (0, 29)
_HYBRID_PREFIXES = (0, 28)


def _seqs_below_target(problem: Problem) -> Hit | None:
    pinned = problem.pins.get("max_num_seqs")
    if not isinstance(pinned, int) or pinned >= problem.target:
        return None
    return Hit(
        f"max_num_seqs is pinned to {pinned}: of {problem.target} requests {problem.target - pinned} wait, whatever "
        "the KV cache holds",
        f"pin at least {problem.target}, or lower workload.concurrency",
    )


def _batch_below_seqs(problem: Problem) -> Hit | None:
    batch, seqs = problem.pins.get("max_num_batched_tokens"), problem.pins.get("max_num_seqs")
    if not isinstance(batch, int) or not isinstance(seqs, int) or batch >= seqs:
        return None
    return Hit(
        f"max_num_batched_tokens {batch} is less than max_num_seqs {seqs}: vLLM refuses it",
        f"at least {seqs} tokens a step, one for each sequence",
    )


def _batch_below_target(problem: Problem) -> Hit | None:
    batch = problem.pins.get("max_num_batched_tokens")
    if not isinstance(batch, int) or batch >= problem.target or "max_num_seqs" in problem.pins:
        return None
    return Hit(
        f"max_num_batched_tokens is pinned to {batch}: no more than {batch} of {problem.target} sequences get a token "
        "in one step",
        f"pin at least {problem.target}",
    )


def _chunked_off(problem: Problem) -> Hit | None:
    batch, length = problem.pins.get("max_num_batched_tokens"), problem.pins.get("max_model_len")
    if problem.pins.get("enable_chunked_prefill") is not False or not isinstance(batch, int):
        return None
    needed = length if isinstance(length, int) and length > 0 else problem.longest_tokens
    if batch >= needed:
        return None
    return Hit(
        f"without chunked prefill a prompt must fit one step: max_num_batched_tokens {batch} is less than the length "
        f"{needed}",
        f"leave chunked prefill on, or pin max_num_batched_tokens {needed}",
    )


def _thrash(problem: Problem) -> Hit | None:
    headroom = problem.workload.policy.headroom
    if headroom <= _THRASH_HEADROOM:
        return None
    return Hit(
        f"policy.headroom {headroom:g} promises nearly the whole pool: long prompts near a full cache are preempted, "
        "recomputed and preempted again",
        "0.8 to 0.9 leaves room for requests above the p95",
    )


def _rate(problem: Problem) -> Hit | None:
    load, slo = problem.workload.workload, problem.workload.slo
    ttft, tpot = slo.ttft_p95_s or slo.ttft_p50_s, slo.tpot_p95_s or slo.tpot_p50_s
    if load.requests_per_s is None or ttft is None or tpot is None:
        return None
    output = load.output_tokens.p50 or load.output_tokens.at_p95
    held = load.requests_per_s * (ttft + tpot * output)
    if held <= load.concurrency:
        return None
    return Hit(
        f"{load.requests_per_s:g} requests a second that each take {ttft:g} s and {output} x {tpot:g} s, as the slo "
        f"allows, are {math.ceil(held)} in flight; concurrency is {load.concurrency}",
        f"plan workload.concurrency {math.ceil(held)}, or a tighter slo",
    )


def _target_missed(planned: Planned) -> Hit | None:
    problem, sized = planned.problem, planned.sized
    promised = problem.promised(sized.at_p95)
    if promised >= problem.target:
        return None
    requests = sized.requests
    what = "state blocks" if requests.bound_by == "mamba_blocks" else "KV blocks"
    return Hit(
        f"{promised} of {problem.target} requests can be promised: {sized.pool_low.num_blocks} {what} hold "
        f"{sized.at_p95} of {requests.blocks_per_request} blocks each, and the headroom is "
        f"{problem.workload.policy.headroom:g}",
        "see the alternatives"
        if sized.starts is not False
        else "first what keeps it from starting, then the alternatives",
    )


def _mamba_blocks(planned: Planned) -> Hit | None:
    pool, seqs = planned.sized.pool_low, planned.sized.engine.max_num_seqs
    if not pool.mamba_blocks_exceeded:
        return None
    return Hit(
        f"max_num_seqs ({seqs}) exceeds the {pool.num_blocks} state blocks: graph capture refuses to start",
        f"at most {int(pool.num_blocks * _STATE_BLOCK_SHARE)}, a fifth kept back; a longer max_model_len or LoRA "
        "lowers the count",
    )


def _prefix_off(planned: Planned) -> Hit | None:
    shared = planned.problem.workload.workload.shared_prefix_tokens
    if not shared or planned.sized.engine.enable_prefix_caching:
        return None
    hybrid = planned.problem.model.is_hybrid and planned.problem.version < _HYBRID_PREFIXES
    why = "hybrid models do so only when asked, before 0.28" if hybrid else "it is off in this configuration"
    return Hit(
        f"{shared} tokens are shared by all requests, but prefix caching is off ({why}): each request keeps them for "
        "itself, and so they are counted",
        "set enable_prefix_caching: true",
    )


def _queue(planned: Planned) -> Hit | None:
    load = planned.problem.workload.workload
    if load.requests_per_s is None:
        return None
    limit = 2 * planned.sized.engine.max_num_seqs
    if planned.problem.version >= _QUEUE_LIMITS:
        return Hit(
            "the queue is not limited: what arrives faster than it is served waits without end",
            f"set max_num_queued_reqs, such as {limit} (running and waiting, over all engines): more is answered with "
            "503",
        )
    return Hit(
        f"vLLM {planned.problem.version} has no limit to its queue: what arrives faster than it is served waits "
        "without end",
        "limit requests in flight at the gateway",
    )


INPUTS = (
    InputRule(
        code="batched-tokens-below-seqs",
        severity="error",
        check=_batch_below_seqs,
        consequence="invalid",
        source="vLLM config/scheduler.py",
    ),
    InputRule(
        code="batched-tokens-below-length",
        severity="error",
        check=_chunked_off,
        consequence="invalid",
        source="vLLM config/scheduler.py: verify_max_model_len",
    ),
    InputRule(
        code="max-num-seqs-below-target",
        severity="warning",
        check=_seqs_below_target,
        source="vLLM v1/core/sched/scheduler.py",
    ),
    InputRule(
        code="batched-tokens-below-target",
        severity="warning",
        check=_batch_below_target,
        source="vLLM v1/core/sched/scheduler.py",
    ),
    InputRule(code="headroom-thin", severity="warning", check=_thrash, source="vllm#25538, vllm#37307"),
    InputRule(code="rate-over-concurrency", severity="warning", check=_rate, source="Little's law"),
)
PLANS = (
    PlanRule(
        code="target-missed",
        severity="error",
        check=_target_missed,
        consequence="does_not_fit",
        source="vLLM v1/core/block_pool.py",
    ),
    PlanRule(
        code="mamba-blocks",
        severity="error",
        check=_mamba_blocks,
        source="vLLM config/compilation.py; vllm#34094, kaito#2319",
    ),
    PlanRule(
        code="shared-prefix-not-cached",
        severity="warning",
        check=_prefix_off,
        source="vLLM engine/arg_utils.py: _set_default_chunked_prefill_and_prefix_caching_args",
    ),
    PlanRule(code="queue-unbounded", severity="note", check=_queue, source="vllm#18826, vllm#49445"),
)
