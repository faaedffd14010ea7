"""Once a server has answered: what it says of itself beside the plan, and what its start cost, kept for the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kvadvise.figures import Figure, actual_figures, actual_parts
from launch.arguments_in_effect import Differing, differing_arguments
from launch.startup_facts import StartupFacts

if TYPE_CHECKING:
    from advisor.measured import Measurement, Span
    from advisor.plan_types import Plan
    from advisor.server_metrics import ServerMetrics
    from launch.diagnosis_types import Diagnosis
    from launch.measured_store import Kept
    from launch.running_server import RunningServer

_NEIGHBOURS = frozenset({"neighbour-loading", "neighbour-changed"})


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A server just become ready: its log's figures, its metrics, its findings, what its start cost."""

    said: StartupFacts
    metrics: ServerMetrics | None
    figures: dict[str, Figure]
    findings: tuple[Diagnosis, ...] = ()
    differing: tuple[Differing, ...] = ()
    cost: Measurement | None = None
    not_measured: str = ""  # why there is no cost


def look_at(server: RunningServer, plan: Plan) -> Started:
    """Read log, metrics and processes of a server that is ready and has no load yet."""
    from launch.diagnosis import diagnose
    from launch.diagnosis_context import context_of
    from launch.log_file import read_whole
    from launch.startup_log import read_startup

    held = server.proportional_bytes()
    lines = read_whole(str(server.log_path), begin=server.process.log_begin)
    said, metrics = read_startup(lines), metrics_of(server)
    findings = tuple(diagnose(lines, context=context_of(plan)))
    cost, why_not = _cost(said, plan, held, source=f"kvadvise launch, {server.log_path.name}")
    if any(finding.code in _NEIGHBOURS for finding in findings):
        cost, why_not = None, "another process loaded at the same time, and vLLM counts that as its own"
    figures = actual_figures(lines, metrics, server.max_model_len)
    return Started(
        said=said,
        metrics=metrics,
        figures=figures | actual_parts(cost, in_budget=plan.memory is not None and plan.memory.cuda_graphs_in_budget),
        findings=tuple(finding for finding in findings if finding.code != "plan-not-applied"),  # `differing` says it
        differing=differing_arguments(plan.flags, said, metrics.cache if metrics is not None else None),
        cost=cost,
        not_measured=why_not,
    )


def metrics_of(server: RunningServer) -> ServerMetrics | None:
    """A reading of the server's metrics; None where it does not give one."""
    import httpx

    from advisor.server_metrics import read_metrics

    url = f"{server.url}{server.command.root_path}/metrics"
    try:  # the certificate is the server's own, and it is this machine's
        return read_metrics(httpx.get(url, timeout=10, trust_env=False, verify=False).text)  # noqa: S501
    except (httpx.HTTPError, ValueError):
        return None


def _cost(said: StartupFacts, plan: Plan, held: int | None, *, source: str) -> tuple[Measurement | None, str]:
    from datetime import UTC, datetime

    from advisor.errors import InvalidInput
    from launch.measured import measurement, observed_key, other_gpu

    if plan.measured is None:
        return None, "the plan does not say under which key; plan it anew"
    if plan.memory is not None and (other := other_gpu(said, plan.memory.total_bytes.value)):
        return None, f"{other} as planned"
    key = observed_key(plan.measured.key, said)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        return measurement(said, key, source=source, kept_on=now, processes=_processes(said, plan, held)), ""
    except InvalidInput as error:
        return None, error.what


def _processes(said: StartupFacts, plan: Plan, held: int | None) -> Span | None:
    """On a CPU, what the processes take beside weights and cache of all ranks; None elsewhere, or where it is open."""
    from launch.measured import process_span

    pool = plan.flags.get("kv_cache_memory_bytes")
    if said.device != "CPU" or plan.memory is None or held is None or not isinstance(pool, int):
        return None
    ranks = int(plan.flags.get("tensor_parallel_size", 1)) * int(plan.flags.get("pipeline_parallel_size", 1))
    return process_span(held, plan.memory.weights_bytes.value * ranks, pool * ranks)


def keep_cost(started: Started) -> Kept | None:
    """Keep what the start cost in the user's store; None where there is nothing to keep.

    Raises InvalidInput where the store cannot be written, or the user has no home.
    """
    import os

    from advisor.errors import InvalidInput
    from kvadvise.measured_files import measured_dir
    from launch.measured_store import keep

    if started.cost is None:
        return None
    directory = measured_dir(os.environ)
    if directory is None:
        raise InvalidInput("there is no home directory to keep it in", hint="set XDG_DATA_HOME")
    return keep(directory, started.cost)
