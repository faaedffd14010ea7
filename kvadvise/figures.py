"""What a plan foretold beside what the running engine says, figure by figure; None where one does not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from advisor.units import GIB

if TYPE_CHECKING:
    from advisor.estimate import Estimate
    from advisor.measured import Measurement, Span
    from advisor.plan_types import Plan
    from advisor.server_metrics import ServerMetrics

Figure = float | int | None
PARTS = ("activation_bytes", "non_torch_bytes", "cuda_graph_bytes")
BANDED = ("kv_cache_bytes", "weights_bytes", *PARTS)


def planned_figures(plan: Plan) -> dict[str, Figure]:
    """The contract's figures, from the plan."""
    kv, memory = plan.kv, plan.memory
    length = plan.flags.get("max_model_len")
    return {
        "num_blocks": kv.num_blocks if kv is not None else None,
        "block_size": kv.block_size if kv is not None else None,
        "capacity_tokens": kv.capacity_tokens if kv is not None else None,
        "max_concurrency": kv.max_concurrency if kv is not None else None,
        "max_model_len": length if isinstance(length, int) and length > 0 else None,
        "kv_cache_bytes": memory.kv_cache_bytes.value if memory is not None else None,
        "weights_bytes": memory.weights_bytes.value if memory is not None else None,
    }


def planned_parts(plan: Plan) -> dict[str, Figure]:
    """What else the start was planned to take, in bytes."""
    return {name: getattr(plan.memory, name).value if plan.memory is not None else None for name in PARTS}


def planned_bands(plan: Plan) -> dict[str, Estimate]:
    """The band of every size; empty for a plan without numbers."""
    return {name: getattr(plan.memory, name) for name in BANDED} if plan.memory is not None else {}


def actual_figures(
    lines: Sequence[str], metrics: ServerMetrics | None = None, max_model_len: int | None = None
) -> dict[str, Figure]:
    """The same from a start-up log, the server's metrics and its list of models; GiB in a log have two decimals."""
    from launch.startup_log import read_startup

    said = read_startup(lines)
    blocks = metrics.cache_int("num_gpu_blocks") if metrics is not None else None
    size = metrics.cache_int("block_size") if metrics is not None else None
    pool, weights = said.smallest_kv_gib, said.weights_gib
    return {
        "num_blocks": blocks if blocks is not None else _whole(said.num_blocks.low if said.num_blocks else None),
        "block_size": size if size is not None else said.block_size,
        "capacity_tokens": _whole(said.kv_tokens.low if said.kv_tokens else None),
        "max_concurrency": said.concurrency.low if said.concurrency else None,
        "max_model_len": max_model_len if max_model_len is not None else said.max_model_len,
        "kv_cache_bytes": round(pool * GIB) if pool is not None else None,
        "weights_bytes": round(weights.high * GIB) if weights is not None else None,
    }


def actual_parts(cost: Measurement | None, *, in_budget: bool) -> dict[str, Figure]:
    """What the start took besides, as measured: graphs as vLLM's estimate where the pool pays for that."""
    if cost is None:
        return dict.fromkeys(PARTS)
    graphs = cost.cuda_graphs_estimated if in_budget else cost.cuda_graphs
    return dict(zip(PARTS, (_middle(cost.activation), _middle(cost.non_torch), _middle(graphs)), strict=True))


def side_by_side(
    planned: Mapping[str, Figure], actual: Mapping[str, Figure], bands: Mapping[str, Estimate] | None = None
) -> list[str]:
    """One line a figure: planned, actual, how far apart, and where there is a band whether it holds the actual one."""
    rows = [("", "planned", "actual", "")]
    for name, foretold in planned.items():
        seen = actual.get(name)
        note = _apart(name, foretold, seen)
        note += _held(seen, (bands or {}).get(name), note)
        rows.append((name, _text(name, foretold), _text(name, seen), note))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return [f"  {a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}  {note}".rstrip() for a, b, c, note in rows]


def _middle(span: Span | None) -> int | None:
    return None if span is None else span.value


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _text(name: str, value: Figure) -> str:
    if value is None:
        return "not said"
    if name.endswith("_bytes"):
        return f"{value / GIB:.2f} GiB"
    return f"{value:.2f}" if name == "max_concurrency" else f"{value:,}"


def _apart(name: str, foretold: Figure, seen: Figure) -> str:
    if foretold is None or seen is None:
        return ""
    if foretold == seen:
        return "equal"
    if name.endswith("_bytes") and abs(seen - foretold) <= GIB / 200:
        return "equal, as far as the log says"
    if name == "max_concurrency" and abs(seen - foretold) <= 0.005:
        return "equal"
    return f"{seen / foretold - 1:+.2%}" if foretold else ""


def _held(seen: Figure, band: Estimate | None, apart: str) -> str:
    """Whether a band holds a figure that is not as planned, to the two decimals of a log."""
    if seen is None or band is None or not apart or apart.startswith("equal") or band.low == band.high:
        return ""
    is_held = band.low - GIB / 200 <= seen <= band.high + GIB / 200
    return f", {'within' if is_held else 'outside'} {band.low / GIB:.2f} to {band.high / GIB:.2f} GiB"
