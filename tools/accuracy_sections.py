"""The parts of docs/accuracy.md besides the ledger's own: KV layouts against vLLM's answers, and whole plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from advisor.facts import ModelFacts
from advisor.model.architectures import ARCHITECTURES as KNOWN
from advisor.versions import DEFAULT
from tests.advisor.test_layout_answers import LEFT_OUT, REFUSED, compact, judge
from tests.layouts import ANSWERS, ARCHITECTURES, differences, predict, read_rows
from tools.planned_startups import Planned, planned_startups

_LAYOUTS = """## KV layouts, against vLLM's own answers

vLLM was asked, without a GPU, how it lays out real configs: groups, page sizes, blocks, printed tokens and concurrency,
or its refusal. *Equal* means every one of these, to the block. Releases between those asked follow the same sources,
read at each boundary (see [kv-layout.md](kv-layout.md)), and were not asked: what is said of 0.8, 0.9, 0.30, 0.31 and
0.33 is interpolated, and a plan for them says so (finding `vllm-between`). A release newer than 0.33 is planned as 0.33
with doubled bands (finding `vllm-newer`).
"""

_BARE = (
    "- Made-up configs that lack a size or the order of the layers: vLLM takes its class defaults, kvadvise refuses "
    "and names the key."
)

_PLANNED = """## Whole plans, against public start-up logs

The same logs once more, now through `kvadvise plan`: model, GPU, flags and weights as in the log, vLLM's own default
batch where it sets none, everything else as planned. Only models of the catalogue; models of several cache kinds
(hybrid) are judged by the concurrency vLLM prints. *Weights* is the planned figure where the log's is not given.
"""


def layouts() -> str:
    """Answers by release, and what is left out."""
    lines = ["| answers of | asked | equal | refused here, or left out |", "|---|---|---|---|"]
    asked: Counter[str] = Counter()
    equal: Counter[str] = Counter()
    for row in read_rows(ANSWERS):
        asked[row["version"]] += 1
        if (row["model"], row["version"]) not in LEFT_OUT:
            equal[row["version"]] += not judge(row)
    versions = sorted(asked, key=lambda text: [int(part) for part in text.split(".")])
    lines += [f"| {v} | {asked[v]} | {equal[v]} | {asked[v] - equal[v]} |" for v in versions]
    lines.append(_architectures())
    left = [f"- `{model}` on {version}: {why}." for (model, version), why in sorted(LEFT_OUT.items())]
    left += [f"- `{name}`: {why}." for name, why in sorted(REFUSED.items())]
    return "\n".join([_LAYOUTS, *lines, "", "Left out or refused, and why:", "", *left, _BARE, ""])


def _architectures() -> str:
    rows = [row for row in read_rows(ARCHITECTURES) if _generates(row)]
    same = 0
    for row in rows:
        facts = ModelFacts(id="made up", config=row["config"], quant_config=row.get("quant_config"))
        same += not differences(compact(row["answer"]), predict(facts, row["case"], DEFAULT))
    names = {row["config"]["architectures"][0] for row in rows}
    return f"| 0.32.0, made-up sizes of {len(names)} architectures | {len(rows)} | {same} | {len(rows) - same} |"


def _generates(row: dict[str, Any]) -> bool:
    entry = KNOWN.get(row["config"]["architectures"][0])
    return entry is None or not entry.pooling


def planned() -> str:
    """Plans beside logs."""
    stated = [p for p in planned_startups() if p.row.grade == "A"]
    free = {p.logged.id: p for p in planned_startups(weights_stated=False)}
    lines = ["| log | kind | KV pool | in the band | concurrency | weights |", "|---" * 6 + "|"]
    lines += [_line(p, free[p.logged.id]) for p in sorted(stated, key=lambda p: (p.row.release, p.logged.id))]
    return "\n".join([_PLANNED, _summary(stated), "", *lines, ""])


def _summary(found: Sequence[Planned]) -> str:
    pools = sorted(abs(p.pool_error) for p in found if p.pool_error is not None)
    held = [p.pool_held for p in found if p.pool_held is not None]
    hybrids = [abs(p.concurrency_error) for p in found if p.concurrency_error is not None and p.row.family == "hybrid"]
    ninetieth = pools[int(0.9 * (len(pools) - 1))]
    return (
        f"{len(pools)} pools: error {median(pools):.2%} at the median, {ninetieth:.2%} at the 90th percentile, "
        f"{sum(held)} of {len(held)} in the band.\n{len(hybrids)} hybrids by concurrency: {median(hybrids):.2%} at the "
        f"median, {max(hybrids):.2%} at worst."
    )


def _line(p: Planned, unstated: Planned) -> str:
    held = {True: "yes", False: "no", None: "-"}[p.pool_held]
    return (
        f"| {p.logged.id} | {p.row.family} | {_signed(p.pool_error)} | {held} | {_signed(p.concurrency_error)} "
        f"| {_signed(unstated.weights_error)} |"
    )


def _signed(share: float | None) -> str:
    return "-" if share is None else f"{share:+.2%}"
