"""One flag of a plan explained: the sum behind its value, with its numbers, and what would change it.

Works on the finished plan alone, so that a saved plan can be explained as well as a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from advisor.errors import InvalidInput
from advisor.plan_types import Plan
from advisor.units import gib


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`sum` is the arithmetic, a line a term; `changes` says what would give another value."""

    flag: str
    value: Any
    sum: tuple[str, ...]
    changes: tuple[str, ...]


def explain(plan: Plan, flag: str) -> Explanation:
    """The explanation of one flag, spelled as on the command line or as in Python.

    Raises InvalidInput for a flag that the plan does not set.
    """
    name = flag.lstrip("-").replace("-", "_")
    if name not in plan.flags:
        known = ", ".join(plan.flags) or "none, because it has no configuration"
        raise InvalidInput(f"the plan sets no {flag!r}", where="--explain", hint=f"it sets {known}")
    pinned = (plan.workload or {}).get("engine", {})
    said, changes = _EXPLAINED.get(name, _as_given)(plan)
    if name in pinned:
        changes = (f"it is pinned in engine.{name}: the plan never moves it", *changes)
    return Explanation(flag=name, value=plan.flags[name], sum=said, changes=changes)


Lines = tuple[str, ...]
Both = tuple[Lines, Lines]


def _load(plan: Plan) -> dict[str, Any]:
    load: dict[str, Any] = (plan.workload or {}).get("workload", {})
    return load


def _longest(lengths: dict[str, int | None]) -> int:
    return max(value for value in lengths.values() if value is not None)


def _max_model_len(plan: Plan) -> Both:
    load = _load(plan)
    prompt, output = _longest(load["prompt_tokens"]), _longest(load["output_tokens"])
    template = load.get("chat_template_tokens", 0)
    needed = prompt + output + template
    lines = [f"longest prompt {prompt} + longest output {output} + chat template {template} = {needed} tokens"]
    changes = ["a longer prompt or output in the workload raises it; more memory does not"]
    if plan.kv is not None:
        block = plan.kv.block_size
        lines.append(f"in blocks of {block}: {-(-needed // block) * block}")
        lines.append(f"one request of {plan.flags['max_model_len']} takes {gib(plan.kv.bytes_per_request)} at most")
        changes.append(f"the longest that would start here is {plan.kv.estimated_max_model_len}")
    return tuple(lines), tuple(changes)


def _utilization(plan: Plan) -> Both:
    memory = plan.memory
    if memory is None:
        return (), ()
    share = plan.flags["gpu_memory_utilization"]
    lines = [
        f"{share:g} x {gib(memory.total_bytes.value)} = {gib(memory.budget_bytes.value)}",
        f"- weights {gib(memory.weights_bytes.value)}",
        f"- activations {gib(memory.activation_bytes.value)}",
        f"- outside torch {gib(memory.non_torch_bytes.value)}",
    ]
    if memory.cuda_graphs_in_budget:
        lines.append(f"- CUDA graphs {gib(memory.cuda_graph_bytes.value)}")
    pool = memory.kv_cache_bytes
    lines.append(f"= KV cache {gib(pool.value)} ({gib(pool.low)} to {gib(pool.high)}, {pool.basis})")
    left = memory.total_bytes.value - memory.budget_bytes.value
    beside = memory.outside_budget_bytes
    changes = (
        f"0.01 more or less is {gib(memory.total_bytes.value / 100)}",
        f"{gib(left)} stay outside it, and up to {gib(beside.high)} must fit there",
        "the share is of the whole card, whatever else runs on it",
    )
    return tuple(lines), changes


def _max_num_seqs(plan: Plan) -> Both:
    held = plan.concurrency
    if held is None:
        return (), ()
    lines = (
        f"the target is {held.target} requests at once"
        + (f" for each of {held.replicas} engines" if held.replicas > 1 else ""),
        f"the pool holds {held.at_p95} of p95 length, of which {held.promised} are promised",
    )
    return lines, ("another workload.concurrency moves it", "it does not limit what the pool holds, only what runs")


def _batch(plan: Plan) -> Both:
    memory = plan.memory
    lines = ["vLLM's own value for the device, unless the target needs less"]
    if memory is not None:
        lines.append(f"with it the activations peak at {gib(memory.activation_bytes.value)}")
    return tuple(lines), (
        "a smaller one frees activations and, in sliding-window models, blocks in flight; the first token comes later",
    )


def _kv_cache_dtype(plan: Plan) -> Both:
    lines = []
    if plan.kv is not None:
        per_token = plan.kv.bytes_per_token
        if per_token is not None:
            lines.append(f"{per_token} bytes a token on one rank")
        lines.append(f"{plan.kv.bytes_per_block} bytes a block, {plan.kv.num_blocks} blocks")
    policy = (plan.workload or {}).get("policy", {}).get("kv_cache_quantization", "ask")
    return tuple(lines), (f"policy.kv_cache_quantization is {policy}: never, ask (only in need) or prefer",)


def _block_size(plan: Plan) -> Both:
    backend = plan.kv.attention_backend if plan.kv is not None else "the attention backend"
    return (f"the block of {backend}, in tokens",), ("engine.block_size, within what the backend's kernels take",)


def _ranks(plan: Plan) -> Both:
    subject = plan.subject
    lines = [
        f"tensor {plan.flags['tensor_parallel_size']} x pipeline {plan.flags['pipeline_parallel_size']}"
        + (f" of {subject.gpu_count} x {subject.gpu}" if subject is not None else "")
    ]
    if plan.memory is not None:
        lines.append(f"one rank holds {gib(plan.memory.weights_bytes.value)} of weights")
    return tuple(lines), ("gpu.count, or a pin; heads and widths must divide",)


def _pool(plan: Plan) -> Both:
    memory = plan.memory
    if memory is None:
        return (), ()
    lines = (
        f"{gib(memory.total_bytes.value)} of memory - weights {gib(memory.weights_bytes.value)} - processes "
        f"{gib(memory.non_torch_bytes.value)} - one step's tensors {gib(memory.activation_bytes.value)}",
        f"the pool is {gib(plan.flags['kv_cache_memory_bytes'])}, in whole MiB at the low end",
    )
    return lines, ("more memory for the process, or a smaller model",)


def _as_given(_plan: Plan) -> Both:
    return (), ()


_EXPLAINED: dict[str, Callable[[Plan], Both]] = {
    "max_model_len": _max_model_len,
    "gpu_memory_utilization": _utilization,
    "max_num_seqs": _max_num_seqs,
    "max_num_batched_tokens": _batch,
    "kv_cache_dtype": _kv_cache_dtype,
    "block_size": _block_size,
    "tensor_parallel_size": _ranks,
    "pipeline_parallel_size": _ranks,
    "kv_cache_memory_bytes": _pool,
}
