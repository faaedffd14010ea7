"""The two sums of a plan, to check by hand: what the memory of one GPU holds, and how many requests fit in
it.
"""

from __future__ import annotations

from collections import Counter

from advisor.estimate import Estimate
from advisor.plan_types import Concurrency, Kv, Memory, Plan
from kvadvise.printing.figures import count, gib, setting
from kvadvise.printing.look import Look, columns

_WIDEST_BAR = 30
_WIDTH_WITHOUT_BAR = 60  # of the widest row


def memory(plan: Plan, look: Look) -> list[str]:
    """The ledger of the rank with least room, one row a part, with its band and where the figure comes
    from.
    """
    ledger = plan.memory
    if ledger is None:
        return []
    utilisation = plan.flags.get("gpu_memory_utilization")
    aside = "in GiB, the rank with least room" + (f" (stage {ledger.stage})" if ledger.stage else "")
    graphs = "CUDA graphs" if ledger.cuda_graphs_in_budget else "CUDA graphs, outside"
    parts = [
        ("weights", ledger.weights_bytes),
        ("activations", ledger.activation_bytes),
        ("non-torch", ledger.non_torch_bytes),
        (graphs, ledger.cuda_graph_bytes),
        ("KV cache", ledger.kv_cache_bytes),
        ("outside budget", ledger.outside_budget_bytes),
    ]
    rows = [_row(name, figure, ledger, look) for name, figure in parts if figure.low or figure.high]
    share = f"{setting(utilisation)} x total" if utilisation is not None else ""
    if plan.flags.get("kv_cache_memory_bytes") is not None:
        share = "not used: kv_cache_memory_bytes is set"
    for name, figure, how in (("budget", ledger.budget_bytes, share), ("total", ledger.total_bytes, "")):
        rows.append([f"  {name}", gib(figure.value), _band(figure, look), figure.basis, how])
    return [look.heading("Memory of one device", aside), *columns(rows, right=(1,)), *_how_bands_add(parts, look)]


def concurrency(plan: Plan, look: Look) -> list[str]:
    """How the promise follows from the blocks, step by step."""
    held, pool = plan.concurrency, plan.kv
    if held is None or pool is None:
        return []
    return [
        look.heading("Requests at once", "from the low end of the band"),
        *(look_line for line in _sum(plan, held, pool) for look_line in look.wrap(line, indent=4, first="  ")),
    ]


def _how_bands_add(parts: list[tuple[str, Estimate]], look: Look) -> list[str]:
    """Only where there is more than one band to add (advisor/spread.py)."""
    if sum(figure.low != figure.high for _, figure in parts) < 3:
        return []
    text = "The KV cache is what the others leave: of their bands the widest counts whole, the rest in quadrature."
    return look.wrap(text, indent=2)


def _row(name: str, figure: Estimate, ledger: Memory, look: Look) -> list[str]:
    width = min(_WIDEST_BAR, look.width - _WIDTH_WITHOUT_BAR)
    share = figure.value / ledger.total_bytes.value if ledger.total_bytes.value > 0 else 0.0
    bar = look.bar(share, width) if width > 0 else ""
    return [f"  {name}", gib(figure.value), _band(figure, look), figure.basis, look.paint(bar, "cyan")]


def _band(figure: Estimate, look: Look) -> str:
    return "" if figure.low == figure.high else f"{gib(figure.low)} {look.to} {gib(figure.high)}"


def _sum(plan: Plan, held: Concurrency, pool: Kv) -> list[str]:
    band = f", up to {count(pool.num_blocks_high)}" if pool.num_blocks_low != pool.num_blocks_high else ""
    blocks = f"{count(pool.num_blocks_low)} blocks of {count(pool.bytes_per_block)} bytes at least{band}"
    shared = f" - {count(held.shared_blocks)} for the shared prefix" if held.shared_blocks else ""
    at_once = f"{count(held.at_p95)} at once" + (f", bound by {held.bound_by}" if held.bound_by != "none" else "")
    division = f"({count(pool.num_blocks_low)} - 1 kept back{shared}) / {count(held.blocks_per_request)}"
    verdict = ">=" if held.promised >= held.target else "<"
    each = f", for each of {held.replicas} replicas" if held.replicas > 1 else ""
    promised = f"{count(held.at_p95)}{_headroom(plan)} = {count(held.promised)} promised"
    return [
        *_groups(pool),
        blocks,
        f"one request of p95 length holds {count(held.blocks_per_request)} blocks: {division} = {at_once}",
        f"{promised} {verdict} {count(held.target)} wanted{each}",
    ]


def _groups(pool: Kv) -> list[str]:
    """One line for each group, those alike on one."""
    alike = Counter(pool.groups)
    return [
        (f"{count(times)} groups of " if times > 1 else "")
        + f"{count(group.layers)} {'layer' if group.layers == 1 else 'layers'} {group.kind}: "
        f"{count(group.blocks_per_request)} blocks of {group.block_size} tokens at max_model_len"
        for group, times in alike.items()
    ]


def _headroom(plan: Plan) -> str:
    policy = (plan.workload or {}).get("policy", {})
    return f" x {setting(policy['headroom'])} headroom" if "headroom" in policy else " less headroom"
