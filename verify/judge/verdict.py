"""The verdict: every check, and one function that decides.

Order (contracts, section 4): an out-of-memory fails whatever else is unknown, and so does an engine that died or hangs;
then a run that did not measure what it should is inconclusive; then a failed check fails; then what is unknown is
inconclusive; and only then is it a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from verify.judge import alive, answers, latencies, memory, objectives, pool, queue, validity
from verify.judge.evidence import FAILURES, Evidence, fig, finite, of
from verify.judge.kv_use import KvTimeline
from verify.judge.thresholds import Thresholds
from verify.judge.types import Check, Result, Verdict
from verify.record.text import encodable, without_user_info
from verify.record.types import Planned, Run, Served

DECISIVE = ("no_oom", "engine_alive")


def judge(run: Run, thresholds: Thresholds) -> Verdict:
    """What a run says of the server. A function of both and of nothing else; raises for no run."""
    e = Evidence(run, thresholds)
    kv = KvTimeline(e)
    checks = _checks(e, kv)
    verdict, summary = decide(checks)
    if verdict == "pass":
        summary = f"{summary}: {_measured(e, kv)}{_warnings(checks)}"
    found = Verdict(
        kvadvise_version=run.kvadvise_version,
        verdict=verdict,
        summary=summary,
        checks=checks,
        kv=kv.report(),
        server=_server(e),
        requests=answers.report(e),
        latency=latencies.report(e),
        plan=_plan(e),
        target=_target(run),
        environment={**run.environment, "client": [msgspec.to_builtins(one) for one in run.client]},
        run=_run(e),
        notes=_notes(e),
    )
    return encodable(found)


def engine_did_not_start(
    diagnosis: Mapping[str, Any] | None,
    planned: Planned | None,
    thresholds: Thresholds,
    *,
    kvadvise_version: str,
    started_at: str,
    seconds: float | None = None,
    workload_name: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Verdict:
    """The verdict of a gate whose engine never answered. `diagnosis` has code, message, remedy and evidence.

    An engine that ran out of memory while it started has failed `no_oom`, too.
    """
    said = {key: value for key, value in (diagnosis or {}).items() if key in _DIAGNOSIS}
    code, message = str(said.get("code") or ""), str(said.get("message") or "no reason was found in its log")
    remedy = str(said.get("remedy") or "")
    reason = message if code == "unreachable" else f"the engine did not start: {message}"
    run = Run(
        kvadvise_version=kvadvise_version, started_at=started_at, schedule_sha256="", seed=0,
        workload_name=workload_name, planned=planned, served=Served(url=""), rows=(), snapshots=(), marks=(),
        is_local=True, ended="engine_lost", ending_text=reason, environment=dict(environment or {}),
    )  # fmt: skip
    judged = judge(run, thresholds)
    is_oom = code.startswith("oom") or code in ("killed-by-host", "sampler-warmup")
    checks = tuple(_not_started(check, reason, remedy, is_oom) for check in judged.checks)
    ran = {**judged.run, "seconds": seconds, "ended": "engine_did_not_start", "ending_text": reason}
    return encodable(msgspec.structs.replace(
        judged, verdict="fail", summary=reason, checks=checks, diagnosis=said or None, run=ran
    ))  # fmt: skip


_DIAGNOSIS = ("code", "message", "remedy", "evidence")


def _not_started(check: Check, reason: str, remedy: str, is_oom: bool) -> Check:
    if check.id == "engine_alive" or (check.id == "no_oom" and is_oom):
        return msgspec.structs.replace(check, status="fail", reason=reason, remedy=remedy)
    if check.status == "not_applicable":
        return check
    return msgspec.structs.replace(
        check, status="unknown", reason="there was no engine to ask", remedy="", observed=None, interval=None, n=0
    )


def decide(checks: Sequence[Check]) -> tuple[Result, str]:
    """The verdict of these checks and one sentence that says what decided it."""
    failed = [check for check in checks if check.status == "fail" and check.level == "error"]
    unknown = [check for check in checks if check.status == "unknown" and check.level == "error"]
    invalid = [check for check in unknown if check.is_validity]
    for name in DECISIVE:
        worst = next((check for check in failed if check.id == name), None)
        if worst is not None:
            return "fail", _sentence(worst, failed)
    if invalid:
        cut_short = [check for check in invalid if check.id == "run_complete"]  # what else is open follows from it
        return "inconclusive", _sentence((cut_short or invalid)[0], [*invalid, *failed])
    if failed:
        return "fail", _sentence(failed[0], failed)
    if unknown:
        return "inconclusive", _sentence(unknown[0], unknown)
    return "pass", "every check holds"


def _sentence(first: Check, others: Sequence[Check]) -> str:
    more = [check.id for check in others if check is not first]
    also = f" (also: {', '.join(more)})" if more else ""
    return f"{first.id}: {first.reason}{also}"


def _checks(e: Evidence, kv: KvTimeline) -> tuple[Check, ...]:
    simple: tuple[Callable[[Evidence], Check], ...] = (
        validity.workload_reproduced, validity.cache_hits_as_declared, validity.client_kept_up,
        validity.counters_agree, validity.no_restart, alive.run_complete, alive.engine_alive, alive.no_oom,
        answers.requests_completed, pool.preemptions,
    )  # fmt: skip
    of_pool: tuple[Callable[[Evidence, KvTimeline], Check], ...] = (
        pool.kv_peak, pool.kv_use_as_planned, pool.concurrency_served,
    )  # fmt: skip
    return (
        *(check(e) for check in simple),
        *(check(e, kv) for check in of_pool),
        queue.queue_drains(e),
        pool.kv_released(e, kv),
        pool.blocks_as_planned(e),
        answers.over_limit_rejected(e),
        memory.gpu_memory_headroom(e),
        memory.memory_steady(e),
        objectives.stalls(e),
        objectives.slo_attainment(e),
        *objectives.objectives(e),
    )


def _measured(e: Evidence, kv: KvTimeline) -> str:
    """What a pass rests on, in numbers."""
    parts = [of(sum(1 for row in e.run.rows if row.outcome == "ok"), "answer")]
    use = kv.loaded
    if use is not None:
        blocks = kv.blocks(use.peak_usage)
        held = f"{blocks:,} of {kv.usable_blocks:,} KV blocks" if blocks is not None else "of the KV cache"
        parts.append(f"{held} at the peak ({use.peak_usage:.0%})")
    count = e.growth("preemptions").whole
    if count is not None:
        parts.append("no preemption" if not count else of(int(count), "preemption"))
    return ", ".join(parts)


def _warnings(checks: Sequence[Check]) -> str:
    warned = [check.id for check in checks if check.level == "warn" and check.status == "fail"]
    return f"; warnings: {', '.join(warned)}" if warned else ""


def _server(e: Evidence) -> dict[str, Any]:
    grew = {name: e.growth(name).whole for name in _COUNTERS}
    steepest = queue.steepest(e)
    waiting, running = e.values("waiting"), e.values("running")
    count, sent = grew["preemptions"], len(e.run.rows)
    missed = sum(1 for seen in e.looks if seen.metrics is None)
    return {
        "preemptions": count,
        "preemptions_share": count / sent if count is not None and sent else None,
        "preemptions_by_phase": pool.preemptions_by_phase(e),
        "prefix_cache_hit_rate": validity.hit_rate(e)[0],
        "waiting_max": max((value for _, value in waiting), default=None),
        "running_max": max((value for _, value in running), default=None),
        "waiting_slope_per_s": steepest.queue.slope if steepest is not None and steepest.queue is not None else None,
        "drain_s": queue.drain_s(e),
        "requests_by_reason": _by_reason(e),
        "restarted": e.restart,
        **{name: grew[name] for name in _COUNTERS if name != "preemptions"},
        "queue_s_mean": _mean(grew, "queue"),
        "ttft_s_mean": _mean(grew, "ttft"),
        "engines": e.engines,
        "looks": len(e.looks),
        "looks_missed": missed,
        **memory.report(e),
    }


_COUNTERS = (
    *("preemptions", "prompt_tokens", "generation_tokens", "requests_done", "rejections", "iterations"),
    *("queue_sum_s", "queue_count", "ttft_sum_s", "ttft_count"),
)


def _mean(grew: Mapping[str, float | None], name: str) -> float | None:
    total, count = grew[f"{name}_sum_s"], grew[f"{name}_count"]
    return total / count if total is not None and count else None


def _by_reason(e: Evidence) -> dict[str, float]:
    if not e.readings or e.restart:
        return {}
    first, last = e.readings[0][1].by_reason, e.readings[-1][1].by_reason
    grown = {reason: last[reason] - first.get(reason, 0.0) for reason in sorted(last)}
    return {reason: count for reason, count in grown.items() if finite(count) is not None}


def _plan(e: Evidence) -> dict[str, Any] | None:
    planned = e.run.planned
    if planned is None:
        return None
    served = e.run.served
    version = planned.vllm_version
    return {
        **msgspec.to_builtins(planned),
        "actual": {
            "num_blocks": e.num_blocks,
            "block_size": e.block_size,
            "max_model_len": served.max_model_len,
            "vllm_version": served.vllm_version,
        },
        "same_vllm_version": None if version is None or served.vllm_version is None else version == served.vllm_version,
    }


def _target(run: Run) -> dict[str, Any]:
    served = msgspec.structs.replace(run.served, url=without_user_info(run.served.url))
    return {**msgspec.to_builtins(served), "is_local": run.is_local, "engine_exit": run.engine_exit}


def _run(e: Evidence) -> dict[str, Any]:
    run = e.run
    last = [seen.at_s for seen in e.looks] + [mark.ended_s or mark.began_s for mark in run.marks]
    return {
        "workload": run.workload_name,
        "started_at": run.started_at,
        "seconds": max(last, default=0.0),
        "seed": run.seed,
        "schedule_sha256": run.schedule_sha256,
        "ended": run.ended,
        "ending_text": run.ending_text,
        "declared_hit_rate": run.declared_hit_rate,
        "phases": [msgspec.to_builtins(mark) for mark in run.marks],
        "load": dict(run.load_figures),
        "thresholds": msgspec.to_builtins(e.limits),
    }


def _notes(e: Evidence) -> tuple[str, ...]:
    run, notes = e.run, []
    played = {mark.name for mark in run.marks}
    left_out = [name for name in _USUAL if name not in played]
    if left_out and run.marks:
        notes.append(f"phases that were not played: {', '.join(left_out)}")
    minutes = max((seen.at_s for seen in e.looks), default=0.0) / 60
    if minutes:
        notes.append(
            f"this ran for {fig(round(minutes, 1))} minutes: memory that runs out after hours does not show in it"
        )  # fmt: skip
    if run.planned is not None and run.planned.vllm_version and run.served.vllm_version not in (
        None, run.planned.vllm_version,
    ):  # fmt: skip
        notes.append(f"planned for vLLM {run.planned.vllm_version}, served by {run.served.vllm_version}")
    missed = sum(1 for seen in e.looks if seen.metrics is None)
    if missed:
        notes.append(f"{missed:,} of {of(len(e.looks), 'look')} at the server brought no metrics")
    jit = [event for event in (run.log.events if run.log is not None else ()) if event.kind == "jit"]
    if jit:
        notes.append(f"the engine compiled during the run ({of(len(jit), 'line')} of its log): later runs are faster")
    notes += run.load_notes
    if run.dropped:
        listed = ", ".join(f"{count:,} {reason}" for reason, count in sorted(run.dropped.items()))
        notes.append(f"rows of the trace that were left out: {listed}")
    use = KvTimeline(e).use("peak")
    if use is not None and use.peak_usage < 0.5 and not any(row.outcome in FAILURES for row in run.rows):
        notes.append(f"the peak phase used {use.peak_usage:.0%} of the KV cache: it is not what limits this load")
    return tuple(notes)


_USUAL = ("warm_up", "regular", "long", "peak", "tail", "over_limit", "cancel", "drain")
