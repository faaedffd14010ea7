"""Symptoms of the load: preemptions, thrash, queues, a client or a GPU at its limit, the prefix cache."""

from __future__ import annotations

from itertools import pairwise

from advisor.server_metrics import grew, mean
from launch.diagnosis_types import Diagnosis
from launch.server_types import Answer, NotJudged, Reading

FULL_USAGE = 0.95
LOW_USAGE = 0.7
SLOWER = 3.0  # times, before it is more than sharing
FLAT_GAIN = 0.1
FLAT_STEP = 1.5
HIT_POINTS = 0.01
RISING_SAMPLES = 4


def preemptions(r: Reading) -> Answer:
    """Requests thrown out of a full cache, by the counter: newer releases do not log them."""
    count = grew(r.before, r.after, "preemptions")
    if count is None:
        return NotJudged("preemptions", "vllm:num_preemptions_total")
    if count == 0:
        return None
    done, usage = grew(r.before, r.after, "requests_done"), max(r.known("kv_usage"), default=None)
    share = f" ({count / done:.1%} of {done:.0f} finished requests)" if done else ""
    full = f", KV usage up to {usage:.0%}" if usage is not None else ""
    return Diagnosis(
        code="preemptions",
        severity="warning",
        message=f"requests were preempted and computed again{share}: more run than the KV cache holds to the end",
        remedy="lower max_num_seqs (or max_num_active_seqs), set watermark to 0.02 to 0.05, or give the cache more "
        "room; what is evicted is not kept on the host",
        evidence=f"vllm:num_preemptions_total +{count:.0f}{full}",
        signals=("the preemption counter", "KV usage"),
        not_seen=() if usage is not None else ("KV usage",),
        source="vllm#42827",
    )


def thrash(r: Reading) -> Answer:
    """A full cache, requests waiting, and fewer tokens with every reading."""
    rates = _token_rates(r)
    usage, waiting = r.known("kv_usage"), r.known("waiting")
    if len(rates) < 3 or len(usage) < 3:
        return NotJudged("kv-thrash", "three readings or more with their times, KV usage and token counters")
    seqs, running = r.facts.max_num_seqs, r.known("running")
    held_back = seqs is None or (bool(running) and max(running) < seqs)
    falling = all(b < a for a, b in pairwise(rates))
    if not (falling and min(usage) > FULL_USAGE and waiting and min(waiting) > 0 and held_back):
        return None
    return Diagnosis(
        code="kv-thrash",
        message="the KV cache is full and the token rate falls: requests are let in and thrown out again",
        remedy="plan for at most 0.85 to 0.9 of the cache: lower max_num_seqs; keep scheduler_reserve_full_isl on",
        evidence=f"KV usage {min(usage):.0%} and more, waiting {min(waiting):.0f} and more, tokens per second "
        + " > ".join(f"{rate:.0f}" for rate in rates),
        signals=("KV usage", "waiting requests", "token rate"),
        not_seen=() if seqs is not None else ("max_num_seqs",),
        source="vllm#25538, vllm#37307",
    )


def _token_rates(r: Reading) -> list[float]:
    rates = []
    for old, new in pairwise(r.all):
        tokens = grew(old, new, "generation_tokens")
        if tokens is None or old.at_s is None or new.at_s is None or new.at_s <= old.at_s:
            return []
        rates.append(tokens / (new.at_s - old.at_s))
    return rates


def queue(r: Reading) -> Answer:
    """A queue that only grows."""
    waiting = r.known("waiting")
    if len(waiting) < RISING_SAMPLES:
        return NotJudged("queue-unbounded", f"{RISING_SAMPLES} readings of vllm:num_requests_waiting")
    if not all(b > a for a, b in pairwise(waiting)):
        return None
    limit = "" if r.facts.queue_limit else "; nothing bounds the queue, so every later request waits longer"
    return Diagnosis(
        code="queue-unbounded",
        message=f"requests arrive faster than they are served, even if all end with 200{limit}",
        remedy="lower the arrival rate or add replicas; bound the queue: max_num_queued_reqs from 0.29, before that at "
        "the gateway",
        evidence="waiting " + ", ".join(f"{value:.0f}" for value in waiting),
        signals=("waiting requests over time",),
        not_seen=() if r.facts.queue_limit is not None else ("whether the queue is bounded",),
        source="vllm#18826, vllm#49445",
    )


def waiting_with_room(r: Reading) -> Answer:
    """Requests wait while the cache has room."""
    waiting, usage, running = r.known("waiting"), r.known("kv_usage"), r.known("running")
    if not waiting or not usage or not running:
        return NotJudged("waiting-low-usage", "waiting and running requests and KV usage")
    if min(waiting) <= 0 or max(usage) >= LOW_USAGE:
        return None
    seqs, reasons = r.facts.max_num_seqs, r.after.waiting_by_reason
    if seqs is not None and max(running) >= seqs:
        cause, remedy = f"max_num_seqs {seqs} keeps them out", "raise max_num_seqs as far as the plan allows"
    elif reasons.get("deferred", 0) > reasons.get("capacity", 0):
        cause, remedy = "they wait for something else (LoRA, a grammar, a KV transfer)", "look at what they wait for"
    else:
        cause = "a long prompt at the head of the queue waits for room for all of it (scheduler_reserve_full_isl)"
        remedy = "raise max_num_batched_tokens or shorten prompts; compare max_num_seqs with the requests running"
    return Diagnosis(
        code="waiting-low-usage",
        severity="warning",
        message=f"requests wait although the KV cache has room: {cause}",
        remedy=remedy,
        evidence=f"waiting {min(waiting):.0f} and more, KV usage at most {max(usage):.0%}, running {max(running):.0f}",
        confidence="high" if seqs is not None else "medium",
        signals=("waiting requests", "KV usage", "waiting by reason" if reasons else "running requests"),
        not_seen=tuple(n for n, v in (("max_num_seqs", seqs), ("waiting by reason", reasons or None)) if v is None),
        source="vLLM v1/core/sched/scheduler.py",
    )


def client_limited(r: Reading) -> Answer:
    """Fewer requests at the server than the client means to hold."""
    offered, running, waiting = r.facts.offered_concurrency, r.known("running"), r.known("waiting")
    if offered is None or not running or not waiting:
        return NotJudged("client-limited", "the concurrency that the client means to hold")
    seen = max(a + b for a, b in zip(running, waiting, strict=False))
    if seen >= 0.9 * offered:
        return None
    return Diagnosis(
        code="client-limited",
        severity="warning",
        message=f"the load does not reach the server: {offered} requests were meant to be in flight",
        remedy="raise the client's connection limit, start more client processes, look at the proxy between",
        evidence=f"running and waiting together never above {seen:.0f}",
        signals=("running and waiting requests", "the concurrency meant"),
        source="vllm#39963, gpustack#2324",
    )


def flat_throughput(r: Reading) -> Answer:
    """More requests, no more tokens, room in the cache."""
    usage, steps = r.known("kv_usage"), sorted(r.facts.ladder)
    if len(steps) < 2 or not usage:
        return NotJudged("memory-free-throughput-flat", "throughput at two loads or more, and KV usage")
    (few, slow), (many, fast) = steps[-2], steps[-1]
    if many < FLAT_STEP * few or slow <= 0 or fast / slow - 1 >= FLAT_GAIN or max(usage) >= LOW_USAGE:
        return None
    return Diagnosis(
        code="memory-free-throughput-flat",
        severity="note",
        message="more requests bring no more tokens although the KV cache has room: computing is the limit",
        remedy="more KV cache will not help; serve fewer at once for latency, or add replicas or a faster GPU",
        evidence=f"{few} requests {slow:.0f} tokens/s, {many} requests {fast:.0f}; KV usage at most {max(usage):.0%}",
        signals=("throughput at two loads", "KV usage"),
        not_seen=("whether the GPU's arithmetic or its memory bandwidth is at its limit",),
        source="vLLM docs: optimization",
    )


def slow_together(r: Reading) -> Answer:
    """One request alone is much faster than under load."""
    alone, together = r.facts.alone_tpot_s, mean(r.before, r.after, "tpot")
    if alone is None or together is None or alone <= 0:
        return NotJudged("alone-fast-together-slow", "time per token of one request alone, and of the load")
    if together < SLOWER * alone or max(r.known("running"), default=0) < 2:
        return None
    count, usage = grew(r.before, r.after, "preemptions"), max(r.known("kv_usage"), default=None)
    if count:
        cause, remedy = "preempted requests are computed again", "see preemptions: fewer sequences or more KV cache"
    elif usage is not None and usage >= FULL_USAGE:
        cause, remedy = "the KV cache is full", "fewer sequences, or more KV cache"
    else:
        cause = "steps are long: prompts of others are computed in between, or the batch is too large for the objective"
        remedy = "lower max_num_batched_tokens (shorter steps) or max_num_seqs; long prompts on a server of their own"
    return Diagnosis(
        code="alone-fast-together-slow",
        severity="warning",
        message=f"one request alone is {together / alone:.1f} times faster per token than under load: {cause}",
        remedy=remedy,
        evidence=f"{alone * 1000:.0f} ms alone, {together * 1000:.0f} ms under load",
        confidence="high" if count else "medium",
        signals=("time per token alone and together", "preemptions", "KV usage"),
        not_seen=tuple(n for n, v in (("preemptions", count), ("KV usage", usage)) if v is None),
    )


def prefix_cache(r: Reading) -> Answer:
    """Hits against what the load declares, in both directions."""
    queries, hits = grew(r.before, r.after, "prefix_queries"), grew(r.before, r.after, "prefix_hits")
    prompts, declared = grew(r.before, r.after, "prompt_tokens"), r.facts.declared_hit_rate
    if queries is None or hits is None:
        return NotJudged("prefix-cache", "vllm:prefix_cache_queries_total and _hits_total")
    if not queries:
        off = r.facts.prefix_caching is False or r.after.cache.get("enable_prefix_caching") == "False"
        return _prefix_off() if prompts and declared and off else None
    rate = hits / queries
    if declared is None:
        return NotJudged("prefix-cache", "the hit rate that the load declares")
    if abs(rate - declared) <= HIT_POINTS + 0.1 * declared:
        return None
    warm = rate > declared
    return Diagnosis(
        code="prefix-cache-warm" if warm else "prefix-cache-cold",
        severity="warning",
        message="prompts came from the prefix cache more than the load declares: what was measured is the cache"
        if warm
        else "prompts share less than the load declares, or the cache is too small to keep what they share",
        remedy="use prompts that were not sent before, or reset the cache between runs"
        if warm
        else "put what is shared first in the prompt, token for token; give the cache more room",
        evidence=f"hit rate {rate:.1%} of {queries:.0f} tokens, {declared:.1%} declared",
        signals=("prefix cache queries and hits", "the declared rate"),
        source="vllm#52884, vllm#54227",
    )


def _prefix_off() -> Diagnosis:
    return Diagnosis(
        code="prefix-cache-off",
        severity="warning",
        message="the load declares a shared prefix and prefix caching is off",
        remedy="set enable_prefix_caching",
        change={"enable_prefix_caching": True},
        evidence="no prefix cache queries while prompts were served",
        signals=("prefix cache queries", "enable_prefix_caching"),
    )
