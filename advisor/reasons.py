"""The words of the priority table: why a step was taken or not, with the numbers it rests on."""

from __future__ import annotations

from advisor.gpu import Gpu
from advisor.kv_quantization import KvChoice
from advisor.sizing import AUTO_LENGTH, Problem, Sized
from advisor.units import GIB, gib
from advisor.workload import Lengths

CPU_UTILIZATION = (
    "On a CPU the pool is stated in bytes (kv_cache_memory_bytes), and the share plays no part: with a stated pool "
    "vLLM does not look at it."
)
UTILIZATION_UNUSED = (
    "The pool is pinned in bytes or blocks, so the share decides only the start check: so much must be free."
)
KV_NOT_NEEDED = "Not needed: 16-bit keys and values meet the target."
KV_FRAGILE_NOT_NEEDED = (
    "Preferred by the policy, but this family loses its answers with 8-bit keys that have no scales, and 16 bits meet "
    "the target."
)
_SAMPLER_BYTES = 12  # float32 logits, sorted values and int64 indices of one row and vocabulary entry


def length(problem: Problem, sized: Sized, value: int) -> str:
    """Row 1: what the length is made of, and what it does and does not buy."""
    load, default = problem.workload.workload, sized.engine.max_model_len
    parts = [f"{load.prompt_tokens.longest} prompt", f"{load.output_tokens.longest} output"]
    if load.chat_template_tokens:
        parts.insert(1, f"{load.chat_template_tokens} chat template")
    rounded = f", in blocks of {sized.layout.block_size}: {value}" if value != problem.longest_tokens else ""
    text = [
        f"The load needs {' + '.join(parts)} = {problem.longest_tokens} tokens{rounded}.",
        f"Unset, vLLM would take {default}: {_start_check(sized)}.",
        _auto(longest_start(sized), value),
        "A smaller length frees no memory by itself: it bounds the worst request and the start check.",
        longer_share(load.prompt_tokens, load.output_tokens),
        "" if load.prompt_tokens.max and load.output_tokens.max else "Give max to cover them all.",
    ]
    return " ".join(part for part in text if part)


def _auto(longest: int, value: int) -> str:
    if longest < value:
        return f"`--max-model-len -1` would take {longest}, too short for this load."
    return f"`--max-model-len -1` would take {longest}, the longest that starts; no request here is so long."


def longest_start(sized: Sized) -> int:
    """The longest request that starts, never more than the model's own length."""
    return min(sized.pool_low.estimated_max_model_len, sized.layout.longest_model_len)


def _start_check(sized: Sized) -> str:
    pool = sized.pool_low
    verdict = "starts" if pool.starts else "does not start"
    if pool.mamba_blocks_exceeded:
        return f"it does not start, because {sized.engine.max_num_seqs} sequences need a state block each"
    room = f"{gib(max(0, pool.available_bytes))} left at {sized.engine.max_num_seqs} sequences"
    return f"one such request needs {gib(pool.needed_bytes)} of the {room}, so it {verdict}"


def longer_share(prompt: Lengths, output: Lengths) -> str:
    """What becomes of requests longer than the lengths that are known."""
    unknown = [(name, share(values)) for name, values in (("prompts", prompt), ("outputs", output))]
    said = [f"up to {part} of {name}" for name, part in unknown if part]
    if not said:
        return ""
    return (
        f"{' and '.join(said).capitalize()} may be longer than the highest percentile given; the server refuses "
        "requests beyond max_model_len."
    )


def share(lengths: Lengths) -> str:
    """The share of requests that may be longer than the largest length given; empty where max is known."""
    if lengths.max is not None:
        return ""
    for known, part in ((lengths.p99, "1 %"), (lengths.p95, "5 %"), (lengths.p90, "10 %")):
        if known is not None:
            return part
    return "50 %"


def pinned_length(problem: Problem, sized: Sized) -> str:
    """Row 1, pinned."""
    needed, value = problem.longest_tokens, sized.engine.max_model_len
    if problem.pins["max_model_len"] in AUTO_LENGTH:
        return f"Pinned to the longest that starts, {value} here; it moves with the memory. The load needs {needed}."
    if value < needed:
        return f"Pinned to {value}; the load needs {needed}. Longer requests are refused by the server."
    if value == needed:
        return f"Pinned to {value}, exactly what the load needs."
    return (
        f"Pinned to {value}; the load needs {needed}. The rest costs no memory by itself, but one request may use it, "
        f"and the start check asks for it: {_start_check(sized)}."
    )


def pinned_utilization(problem: Problem, sized: Sized) -> str:
    """Row 2, pinned."""
    ledger = sized.ledger
    return (
        f"Pinned: {sized.engine.gpu_memory_utilization:g} of {gib(ledger.total_bytes.value)} is "
        f"{gib(ledger.budget_bytes.value)}; {_remainder(problem.gpu, sized)}."
    )


def utilization_kept(sized: Sized) -> str:
    """Row 2, not needed."""
    return f"Not needed: vLLM's own {sized.engine.gpu_memory_utilization:g} is enough."


def utilization_no_help(sized: Sized, ceiling: float) -> str:
    """Row 2, where more would change nothing."""
    now = sized.engine.gpu_memory_utilization
    if ceiling <= now:
        return f"{now:g} is already the largest safe share here."
    return f"Up to {ceiling:g}, the largest safe share here, no further request fits."


def utilization_raised(sized: Sized, share_: float, ceiling: float) -> str:
    """Row 2, raised."""
    total = sized.ledger.total_bytes.value
    added = round((share_ - sized.engine.gpu_memory_utilization) * total)
    return (
        f"{added / GIB:.2f} GiB more for the pool. The share is of the whole card, not of what is left; {ceiling:g} is "
        f"the largest safe one here: {gib(total - round(ceiling * total))} stay for what lies outside the budget "
        f"({gib(sized.ledger.outside_budget_bytes.high)} at most)."
    )


def utilization_for_graphs(sized: Sized) -> str:
    """Why the share comes down with the batch."""
    share = sized.engine.gpu_memory_utilization
    return (
        f"gpu_memory_utilization goes down to {share:g}: the pool takes what the warm-up no longer does, and what lies "
        f"outside the budget needs up to {gib(sized.ledger.outside_budget_bytes.high)}."
    )


def utilization_lowered(sized: Sized, ceiling: float) -> str:
    """Row 2, lowered because the default does not start or leaves too little outside the budget."""
    ledger, now = sized.ledger, sized.engine.gpu_memory_utilization
    if ledger.start_check is not True:
        return (
            f"At {now:g} vLLM wants {gib(ledger.budget_bytes.value)} free at start; "
            f"{gib(ledger.free_bytes.low)} are. {ceiling:g} starts, with a step of 0.01 kept back."
        )
    return (
        f"At {now:g} only {gib(ledger.outside_room_bytes)} stay outside the budget, and up to "
        f"{gib(ledger.outside_budget_bytes.high)} must fit there."
    )


def _remainder(gpu: Gpu, sized: Sized) -> str:
    ledger = sized.ledger
    check = {True: "free at start", False: "not free at start", None: "perhaps not free at start"}
    return f"{check[ledger.start_check]} ({gib(ledger.free_bytes.low)} on {gpu.name})"


def batch(problem: Problem, before: Sized, after: Sized) -> str:
    """Row 3: sequences and tokens of one step."""
    vocab, was, now = problem.model.vocab_size, before.engine.max_num_seqs, after.engine.max_num_seqs
    text = []
    if "max_num_seqs" in problem.pins:
        text.append(f"max_num_seqs is pinned to {now}; the target is {problem.target}.")
    elif now == was:
        text.append(f"max_num_seqs stays {now}, for a target of {problem.target}.")
    else:
        text.append(f"The target of {problem.target} needs {now} sequences a step, not {was}.")
    if "max_num_seqs" not in problem.pins and now < was and not problem.gpu.is_cpu:
        text.append(
            f"Warming up the sampler with {was} rows of {vocab} may take {gib(was * vocab * _SAMPLER_BYTES)}, with "
            f"{now} {gib(now * vocab * _SAMPLER_BYTES)}; CUDA graphs are captured for smaller batches only."
        )
    tokens, were = after.engine.max_num_batched_tokens, before.engine.max_num_batched_tokens
    if "max_num_batched_tokens" in problem.pins:
        text.append(f"max_num_batched_tokens is pinned to {tokens}.")
    elif tokens < were:
        text.append(
            f"max_num_batched_tokens goes down to {tokens}: it sets the activations and what sliding layers keep in "
            "flight. Long prompts take more steps, so the first token comes later."
        )
    else:
        text.append(f"max_num_batched_tokens is {tokens}" + (", vLLM's own value." if tokens == were else "."))
    return " ".join(text)


def pinned_kv(problem: Problem, sized: Sized) -> str:
    """Row 4, pinned."""
    return f"Pinned to {problem.pins['kv_cache_dtype']} (the cache is {sized.engine.cache_dtype})."


def kv_impossible(why: str) -> str:
    """Row 4, where no 8-bit cache can be had."""
    return f"Not possible here: {why}."


def kv_never(choice: KvChoice, sized: Sized) -> str:
    """Row 4, forbidden."""
    return f"The policy is `never`; {choice.dtype} would hold {sized.at_p95} requests of p95 length."


def kv_no_gain(dtype: str, sized: Sized) -> str:
    """Row 4, of no use."""
    return f"{dtype} would hold no more ({sized.at_p95} requests of p95 length): the loss buys nothing."


def kv_for_length(problem: Problem, sized: Sized) -> str:
    """Row 4, asked for only by a length that no request has."""
    return (
        f"Not taken: the pool serves the load in 16 bits. Only the pinned max_model_len {sized.engine.max_model_len} "
        f"does not start; {problem.longest_tokens} would do, and a loss is not taken for a length that no request has."
    )


def kv_after_gpus(dtype: str, sized: Sized) -> str:
    """Row 4, put off because GPUs that are there cost no quality."""
    return f"Put off: {dtype} would hold {sized.at_p95} requests, but more of the GPUs given cost no quality."


def kv_not_enough(dtype: str, sized: Sized) -> str:
    """Row 4, not enough by itself."""
    return f"{dtype} would hold {sized.at_p95} requests and still miss the target: a loss is not taken in vain."


def kv_taken(problem: Problem, dtype: str, sized: Sized) -> str:
    """Row 4, taken."""
    why = "Preferred by the policy" if problem.workload.policy.kv_cache_quantization == "prefer" else "The last resort"
    return (
        f"{why}: {dtype} keeps one byte a value, so the same pool holds {sized.at_p95} requests. It buys room, not "
        "speed, and the answers must be checked."
    )
