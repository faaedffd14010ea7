"""A running server against the table of symptoms: what is known of it beside its metrics, and what comes out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from advisor.errors import InvalidInput

if TYPE_CHECKING:
    from advisor.plan_types import Plan
    from advisor.server_metrics import ServerMetrics
    from launch.live_server import Live
    from launch.server_types import ServerDiagnosis, ServerFacts
    from launch.startup_facts import StartupFacts

API_KEYS = ("KVADVISE_API_KEY", "VLLM_API_KEY")
SYMPTOMS = ("quality-long-context",)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """How to look, and what the user says beside: what one request alone takes, tokens per second at several loads."""

    url: str
    seconds: float
    readings: int
    ca_file: str | None = None
    alone_tpot_s: float | None = None
    ladder: tuple[tuple[int, float], ...] = ()
    symptoms: tuple[str, ...] = ()
    offered_concurrency: int | None = None
    plan: Plan | None = None


def look_at_server(asked: Asked, on_wait: Callable[[float], None] | None = None) -> Live:
    """Read it. Raises as launch.live_server.look does."""
    from launch.live_server import look

    key = next((os.environ[name] for name in API_KEYS if os.environ.get(name)), None)
    return look(
        asked.url, api_key=key, seconds=asked.seconds, readings=asked.readings, ca_file=asked.ca_file, on_wait=on_wait
    )


def judge_server(live: Live, asked: Asked, said: StartupFacts | None) -> ServerDiagnosis:
    """What the readings show; all of it is not judged where there are none."""
    from advisor.server_metrics import ServerMetrics
    from launch.server_symptoms import diagnose_server

    readings = live.readings or (ServerMetrics(), ServerMetrics())
    return diagnose_server(readings[0], readings[-1], _facts(live, readings[-1], asked, said, readings[1:-1]))


def _facts(
    live: Live, last: ServerMetrics, asked: Asked, said: StartupFacts | None, samples: Sequence[ServerMetrics]
) -> ServerFacts:
    from launch.server_types import ServerFacts

    flags = _flags(asked.plan, said)
    length = next((model.max_model_len for model in live.models if model.max_model_len is not None), None)
    return ServerFacts(
        samples=tuple(samples),
        health_status=live.health_status,
        max_num_seqs=_whole(flags.get("max_num_seqs")),
        max_model_len=length,
        kv_cache_dtype=last.cache.get("cache_dtype"),
        rope_overridden=_rope_overridden(flags) if flags else None,
        prefix_caching={"True": True, "False": False}.get(last.cache.get("enable_prefix_caching", "")),
        declared_hit_rate=_declared(asked.plan),
        offered_concurrency=asked.offered_concurrency,
        alone_tpot_s=asked.alone_tpot_s,
        least_free_bytes=_least_free(live.url),
        ladder=asked.ladder,
        queue_limit=True if flags.get("max_num_queued_reqs") else None,
        symptoms=frozenset(asked.symptoms),
    )


def _flags(plan: Plan | None, said: StartupFacts | None) -> dict[str, Any]:
    """Engine arguments: the plan's, and above them what the log says."""
    flags = dict(plan.flags) if plan is not None else {}
    if said is None:
        return flags
    flags |= said.args or {}
    return flags | ({"max_num_seqs": said.max_num_seqs} if said.max_num_seqs is not None else {})


def _least_free(url: str) -> int | None:
    """What the GPUs here that vLLM is on have free now; None for a server elsewhere, or where none is seen."""
    from launch.gpu_state import read_gpus
    from launch.live_server import is_here

    if not is_here(url):
        return None
    return min((gpu.free_bytes for gpu in read_gpus() if any(p.is_engine for p in gpu.processes)), default=None)


def was_idle(live: Live) -> bool:
    """Whether no request ran and no token came in all the readings: what shows under load could not be seen."""
    from advisor.server_metrics import grew

    if len(live.readings) < 2:
        return False
    running = [reading.running for reading in live.readings]
    return all(value == 0 for value in running) and not grew(live.readings[0], live.readings[-1], "generation_tokens")


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _rope_overridden(flags: Mapping[str, Any]) -> bool:
    overrides = flags.get("hf_overrides")
    return bool(flags.get("rope_scaling")) or (isinstance(overrides, dict) and any("rope" in key for key in overrides))


def _declared(plan: Plan | None) -> float | None:
    """The share of prompt tokens that a workload says are the same for all requests."""
    load = (plan.workload or {}).get("workload") if plan is not None else None
    if not isinstance(load, dict):
        return None
    shared = load.get("shared_prefix_tokens") or 0
    prompt = (load.get("prompt_tokens") or {}).get("p50") or (load.get("prompt_tokens") or {}).get("p95")
    return min(1.0, shared / prompt) if shared and prompt else None


def read_ladder(words: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """`REQUESTS=TOKENS_PER_S` as pairs. Raises InvalidInput for what is none."""
    found = []
    for word in words:
        requests, _, rate = word.partition("=")
        try:
            found.append((int(requests), float(rate)))
        except ValueError:
            raise InvalidInput(f"{word!r} is no throughput", where="--throughput", hint="write 8=900 16=950") from None
    return tuple(found)


def not_seen(live: Live, judged: ServerDiagnosis) -> list[str]:
    """Symptoms that were looked for and are not there."""
    from launch.server_symptoms import SERVER_CODES

    if not live.readings or any(finding.code == "server-restarted" for finding in judged.findings):
        return []
    told = {finding.code for finding in judged.findings}
    open_ones = tuple(one.code for one in judged.not_judged)
    return [code for code in SERVER_CODES if code not in told and not code.startswith(open_ones)]
