"""A made-up healthy run, of which a test changes one thing. Its metrics are counted from its rows, as a server would.

1001 blocks of 16 tokens (one is vLLM's own), a load of 8 at once, p95 requests of 1000 + 200 tokens: 75 blocks each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from advisor.server_metrics import ServerMetrics
from verify.client.types import ClientFacts
from verify.judge.thresholds import Thresholds
from verify.record.types import GpuMemory, LogWatch, PhaseMark, Planned, RequestRow, Run, Served, Snapshot

BLOCKS, BLOCK_SIZE = 1001, 16
GIB = 1024**3

MARKS: tuple[PhaseMark, ...] = (
    PhaseMark(name="baseline", began_s=0.0, ended_s=3.0, mode="idle"),
    PhaseMark(name="warm_up", began_s=3.0, ended_s=8.0, mode="closed", concurrency=4, planned_requests=4),
    PhaseMark(name="regular", began_s=8.0, ended_s=18.0, mode="closed", concurrency=1, planned_requests=4),
    PhaseMark(name="long", began_s=18.0, ended_s=26.0, mode="closed", concurrency=1, planned_requests=1),
    PhaseMark(name="peak", began_s=26.0, ended_s=66.0, mode="closed", concurrency=8, planned_requests=40),
    PhaseMark(name="tail", began_s=66.0, ended_s=134.0, mode="open", planned_requests=130),
    PhaseMark(name="over_limit", began_s=134.0, ended_s=135.0, mode="closed", concurrency=1, planned_requests=2),
    PhaseMark(name="cancel", began_s=135.0, ended_s=138.0, mode="closed", concurrency=4, planned_requests=4),
    PhaseMark(name="drain", began_s=138.0, ended_s=142.0, mode="idle"),
)
PLANNED = Planned(
    inputs_sha256="0" * 64, outcome="fits", num_blocks=1001, num_blocks_low=1001, num_blocks_high=1001, block_size=16,
    capacity_tokens=16016, max_concurrency=7.8, max_model_len=2048, max_num_seqs=16, kv_cache_bytes=16 * 1024**2,
    at_p95=13, promised=10, blocks_per_request=75, flags={"max_model_len": 2048}, vllm_version="0.32.0",
)  # fmt: skip
SERVED = Served(
    url="http://127.0.0.1:8000", model="tiny", max_model_len=2048, vllm_version="0.32.0", num_blocks=1001,
    block_size=16, engines=1, cache_config={"num_gpu_blocks": "1001", "block_size": "16"},
)  # fmt: skip
THRESHOLDS = Thresholds(
    concurrency=8, requests_per_s=2.0, objectives={"ttft_p95_s": 1.0, "tpot_p95_s": 0.05, "e2e_p95_s": 30.0},
)  # fmt: skip


def answer(
    index: int, phase: Any, sent: float, *, prompt: int = 1000, output: int = 200, ttft: float = 0.2,
    tpot: float = 0.01, scheduled: float | None = None, **changes: Any,
) -> RequestRow:  # fmt: skip
    """A whole answer, `output` tokens one by one."""
    first = sent + ttft
    last = first + tpot * (output - 1)
    row = RequestRow(
        index=index, phase=phase, prompt_tokens=prompt, output_tokens=output, outcome="ok", scheduled_s=scheduled,
        sent_s=sent, first_token_s=first, last_token_s=last, ended_s=last + 0.001, first_chunk_tokens=1,
        max_stall_s=tpot * 2, chunk_gaps_s=(tpot, tpot, tpot * 2), served_prompt_tokens=prompt,
        served_output_tokens=output, served_cached_tokens=0, streamed_tokens=output, chunks=output, status=200,
        finish_reason="length",
    )  # fmt: skip
    return msgspec.structs.replace(row, **changes)


def failed(row: RequestRow, outcome: Any, **changes: Any) -> RequestRow:
    """The same request without an answer."""
    given = {
        "outcome": outcome, "first_token_s": None, "last_token_s": None, "first_chunk_tokens": None,
        "max_stall_s": None, "chunk_gaps_s": None, "served_prompt_tokens": None, "served_output_tokens": None,
        "served_cached_tokens": None, "streamed_tokens": 0, "chunks": 0, "status": None, "finish_reason": None,
        "error": outcome, **changes,
    }  # fmt: skip
    return msgspec.structs.replace(row, **given)


def healthy_rows() -> list[RequestRow]:
    """Every request of the healthy run, in the order of index."""
    rows: list[RequestRow] = []

    def add(phase: str, sent: float, **more: Any) -> None:
        rows.append(answer(len(rows), phase, sent, **more))

    for n in range(4):
        add("warm_up", 3.1 + 0.01 * n)
    for n in range(4):
        add("regular", 8.1 + 2.4 * n, prompt=300, output=100)
    add("long", 18.1, prompt=1500, output=500)
    for n in range(40):
        add("peak", 26.1 + 7.0 * (n // 8) + 0.001 * (n % 8), ttft=0.5, tpot=0.03)
    for n in range(130):
        due = 66.1 + 0.5 * n
        add("tail", due + 0.001, scheduled=due, prompt=400, output=200, ttft=0.2 + 0.001 * n)
    for _ in range(2):
        row = answer(len(rows), "over_limit", 134.1, prompt=3000)
        rows.append(failed(row, "refused", status=400, ended_s=134.2, error=None))
    for n in range(4):
        row = answer(len(rows), "cancel", 135.1 + 0.01 * n)
        rows.append(
            msgspec.structs.replace(
                row,
                outcome="cancelled",
                streamed_tokens=20,
                chunks=20,
                served_output_tokens=None,
                served_prompt_tokens=None,
                finish_reason=None,
                last_token_s=135.5,
                ended_s=135.6,
            )
        )
    return rows


def blocks(row: RequestRow) -> int:
    return -(-(row.prompt_tokens + row.output_tokens) // BLOCK_SIZE)


def metrics_at(at_s: float, rows: Iterable[RequestRow]) -> ServerMetrics:
    """What the server would say: requests counted when they end, blocks held while they run."""
    sums = dict.fromkeys(("done", "prompt", "generated", "running", "held"), 0)
    reasons = {"stop": 0.0, "length": 0.0, "abort": 0.0}
    for row in rows:
        if row.outcome in ("refused", "rejected", "connect_error", "http_4xx", "http_5xx") or row.sent_s is None:
            continue
        ended = row.ended_s if row.ended_s is not None else 1e9
        if row.sent_s <= at_s < ended:
            sums["running"] += 1
            sums["held"] += blocks(row)
        elif at_s >= ended:
            sums["done"] += 1
            sums["prompt"] += row.served_prompt_tokens or row.prompt_tokens
            sums["generated"] += row.served_output_tokens or row.streamed_tokens
            reasons["length" if row.finish_reason == "length" else "abort"] += 1
    return ServerMetrics(
        at_s=at_s, running=float(sums["running"]), waiting=0.0, kv_usage=min(1.0, sums["held"] / (BLOCKS - 1)),
        preemptions=3.0, prefix_queries=500.0 + sums["prompt"], prefix_hits=500.0,
        prompt_tokens=700.0 + sums["prompt"], generation_tokens=90.0 + sums["generated"],
        iterations=10.0 + sums["generated"] + int(at_s * 10), iteration_tokens=100.0 + sums["generated"],
        requests_done=5.0 + sums["done"], rejections=0.0, process_start_s=1.7e9, resident_bytes=2.0 * GIB, engines=1,
        cache={"num_gpu_blocks": "1001", "block_size": "16"}, by_reason=reasons,
    )  # fmt: skip


def phase_at(at_s: float, marks: Iterable[PhaseMark]) -> Any:
    for mark in marks:
        if mark.began_s <= at_s < (mark.ended_s if mark.ended_s is not None else 1e9):
            return mark.name
    return None


Edit = Callable[[Snapshot], Snapshot]


def snapshots(rows: Iterable[RequestRow], marks: Iterable[PhaseMark] = MARKS, end_s: float = 142.0) -> list[Snapshot]:
    """One look a second, and one at the very end."""
    listed, phases = list(rows), list(marks)
    times = [*(float(t) for t in range(int(end_s))), end_s - 0.01]
    return [
        Snapshot(at_s=t, phase=phase_at(t, phases), metrics=metrics_at(t, listed), scrape_s=0.004) for t in times
    ]  # fmt: skip


def client(marks: Iterable[PhaseMark] = MARKS) -> tuple[ClientFacts, ...]:
    return tuple(
        ClientFacts(
            phase=mark.name,
            processes=1,
            loop="uvloop",
            wall_s=10.0,
            cpu_s=0.5,
            cpu_fraction=0.05,
            loop_lag_p99_s=0.002,
            max_in_flight=mark.concurrency or 8,
            connections=8,
            coalesced_fraction=0.0,
        )
        for mark in marks
        if mark.planned_requests
    )


def healthy(
    *, rows: Iterable[RequestRow] | None = None, metric: Callable[[ServerMetrics], ServerMetrics] | None = None,
    look: Edit | None = None, marks: tuple[PhaseMark, ...] = MARKS, end_s: float = 142.0, **changes: Any,
) -> Run:  # fmt: skip
    """The healthy run with these rows, every reading through `metric`, every look through `look`, fields changed."""
    listed = list(rows) if rows is not None else healthy_rows()
    seen = snapshots(listed, marks, end_s)
    if metric is not None:
        edit = metric
        seen = [
            msgspec.structs.replace(s, metrics=edit(s.metrics)) if s.metrics is not None else s for s in seen
        ]  # fmt: skip
    if look is not None:
        seen = [look(s) for s in seen]
    given: dict[str, Any] = {
        "kvadvise_version": "0.1.0", "started_at": "2026-01-02T03:04:05+00:00", "schedule_sha256": "a" * 64, "seed": 7,
        "workload_name": "chat", "planned": PLANNED, "served": SERVED, "rows": tuple(listed),
        "snapshots": tuple(seen), "marks": marks, "client": client(marks),
        "log": LogWatch(path="/tmp/engine.log", readable=True), "is_local": True, "ended": "finished",
        "ending_text": "every phase was played", "declared_hit_rate": 0.0, "load_figures": {"rate_per_s": 2.0},
        "environment": {"python": "3.11.7"}, **changes,
    }  # fmt: skip
    return Run(**given)


def set_metric(**values: Any) -> Callable[[ServerMetrics], ServerMetrics]:
    """Every reading with these values."""
    return lambda m: msgspec.structs.replace(m, **values)


def gpu(free_bytes: int, total_bytes: int = 24 * GIB) -> tuple[GpuMemory, ...]:
    return (GpuMemory(uuid="GPU-0", used_bytes=total_bytes - free_bytes, total_bytes=total_bytes),)


def changed_rows(phase: str, change: Callable[[int, RequestRow], RequestRow]) -> list[RequestRow]:
    """The healthy rows, those of one phase through `change`, which is told their number in it."""
    number = -1
    out = []
    for row in healthy_rows():
        if row.phase == phase:
            number += 1
            out.append(change(number, row))
        else:
            out.append(row)
    return out
