"""The memory ledger: vLLM's own sums, the start check, and public start-ups (tests/data/startups_*.jsonl)."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.estimate import Estimate, estimated, exact, measured
from advisor.ledger import Line, MemoryLedger, budget, cpu_ledger, memory_ledger
from advisor.overheads import Overheads, overheads
from advisor.units import GIB, bytes_from_gib
from advisor.versions import Version
from tests.advisor.cost_samples import constants, gpu, llama_8b
from tools.accuracy import percentile
from tools.startups import Prediction, Startup, left_out, load_rows, predict

ROWS = load_rows()
PREDICTIONS = [predict(row) for row in ROWS]
GRADED = [p for p in PREDICTIONS if p.row.grade == "A" and p.row.release < (0, 20)]
SHARED = Path(os.environ.get("KVADVISE_SHARED") or Path(__file__).resolve().parents[2].parent / "shared")


def costs(activation: int = 2 * GIB, graphs: int = GIB, *, counted: bool = False, communicators: int = 0) -> Overheads:
    return Overheads(
        activation_bytes=exact(activation),
        non_torch_bytes=exact(GIB // 4),
        cuda_graph_bytes=exact(graphs),
        cuda_graphs_in_budget=counted,
        communicator_bytes=exact(communicators),
        run_time_bytes=exact(0),
    )


def ledger(**more: Any) -> MemoryLedger:
    values: dict[str, Any] = {
        "version": Version(0, 19, 0),
        "total": exact(24 * GIB),
        "free": exact(23 * GIB),
        "utilization": 0.9,
        "weights": exact(14 * GIB),
        "overheads": costs(),
    }
    return memory_ledger(**{**values, **more})


def test_the_pool_is_what_the_budget_leaves() -> None:
    """24 GiB at 0.9 with 14 GiB of weights fits, whatever published explanations say."""
    found = ledger()
    assert found.budget_bytes.value == math.ceil(24 * GIB * 0.9)
    assert found.kv_cache_bytes == exact(found.budget_bytes.value - 14 * GIB - 2 * GIB - GIB // 4)
    assert found.outside_budget_bytes == exact(GIB + GIB)  # context and others, graphs


def test_counted_graphs_come_out_of_the_pool_instead() -> None:
    beside, inside = ledger(), ledger(overheads=costs(counted=True))
    assert beside.kv_cache_bytes.value - inside.kv_cache_bytes.value == GIB
    assert beside.outside_budget_bytes.value - inside.outside_budget_bytes.value == GIB
    assert inside.cuda_graphs_in_budget


def test_lines_asked_for_are_paid_by_the_pool_or_lie_beside_it() -> None:
    lines = (Line("lora", exact(GIB)), Line("draft", estimated(GIB, GIB // 2, 2 * GIB), in_budget=False))
    found = ledger(lines=lines)
    assert ledger().kv_cache_bytes.value - found.kv_cache_bytes.value == GIB
    assert found.outside_budget_bytes.high - ledger().outside_budget_bytes.high == 2 * GIB
    assert found.lines == lines


def test_the_pool_may_be_negative() -> None:
    assert ledger(weights=exact(30 * GIB)).kv_cache_bytes.value < 0


def test_a_stated_pool_is_exact_and_its_overrun_lies_beside_the_budget() -> None:
    found = ledger(kv_cache_memory_bytes=10 * GIB)
    assert found.kv_cache_bytes == exact(10 * GIB)
    over = 14 * GIB + 2 * GIB + GIB // 4 + 10 * GIB - found.budget_bytes.value
    assert found.outside_budget_bytes == exact(GIB + GIB + over)
    assert found.outside_check is False
    assert ledger(kv_cache_memory_bytes=GIB).outside_check is True


@pytest.mark.parametrize(
    ("total_gib", "free_gib", "utilization", "starts"),
    [(31.84, 30.12, 0.95, False), (31.84, 30.12, 0.94, True), (22.05, 19.77, 0.9, False), (22.05, 19.77, 0.89, True)],
)
def test_the_start_check_as_two_logs_met_it(
    total_gib: float, free_gib: float, utilization: float, starts: bool
) -> None:
    """cognithor#318 and pytorch#175666."""
    found = ledger(
        total=exact(bytes_from_gib(total_gib)), free=exact(bytes_from_gib(free_gib)), utilization=utilization
    )
    assert found.start_check is starts


def test_the_start_check_is_open_within_the_band_and_absent_before_0_9() -> None:
    free = measured(int(21.6 * GIB), 21 * GIB, 22 * GIB)
    assert ledger(free=free).start_check is None
    assert ledger(free=free, version=Version(0, 8, 5)).start_check is True


def test_communicators_lower_what_the_start_check_sees_and_not_the_pool() -> None:
    alone, two = ledger(free=exact(22 * GIB)), ledger(free=exact(22 * GIB), overheads=costs(communicators=GIB))
    assert (alone.start_check, two.start_check) == (True, False)
    assert alone.kv_cache_bytes == two.kv_cache_bytes


def test_a_card_filled_to_the_brim_leaves_graphs_no_room() -> None:
    """0.98 of 22.36 GiB left 0.447 GiB (vllm#57475)."""
    card: dict[str, Any] = {"total": exact(bytes_from_gib(22.36)), "free": exact(bytes_from_gib(22.3))}
    brim = ledger(**card, utilization=0.98, weights=exact(5 * GIB), overheads=costs(activation=GIB // 4))
    assert brim.outside_room_bytes / GIB == pytest.approx(0.447, abs=0.001)
    assert brim.outside_check is False
    assert brim.outside_is_tight
    roomy = ledger(**card, utilization=0.9, weights=exact(5 * GIB))
    assert roomy.outside_check is True
    assert not roomy.outside_is_tight


def test_the_activation_peaks_room_takes_what_the_middle_misses() -> None:
    graphs = Overheads(
        activation_bytes=exact(2 * GIB),
        non_torch_bytes=exact(0),
        cuda_graph_bytes=estimated(GIB, 0, 4 * GIB),
        cuda_graphs_in_budget=False,
        communicator_bytes=exact(0),
        run_time_bytes=exact(0),
    )
    assert ledger(overheads=graphs, utilization=0.85).outside_check is True
    assert ledger(overheads=graphs, utilization=0.93).outside_check is None


def test_the_cpu_pool_is_stated_or_what_is_left() -> None:
    room = overheads(llama_8b((0, 32, 0), gpu=gpu("cpu", 16.0, None, vendor="cpu")), constants((0, 32, 0)))
    left = cpu_ledger(total=exact(16 * GIB), weights=exact(2 * GIB), overheads=room)
    assert 9 * GIB < left.kv_cache_bytes.low < left.kv_cache_bytes.value < 14 * GIB
    assert left.outside_check is True
    stated = cpu_ledger(total=exact(16 * GIB), weights=exact(2 * GIB), overheads=room, kv_cache_memory_bytes=4 * GIB)
    assert stated.kv_cache_bytes == exact(4 * GIB)
    assert (stated.start_check, stated.outside_check) == (True, True)
    too_much = cpu_ledger(total=exact(16 * GIB), weights=exact(2 * GIB), overheads=room, kv_cache_memory_bytes=30 * GIB)
    assert too_much.outside_check is False


@given(st.integers(GIB, 300 * GIB), st.floats(0.01, 0.99), st.floats(0.0, 0.01))
def test_the_budget_grows_with_utilisation(total: int, share: float, more: float) -> None:
    assert budget(exact(total), share).value <= budget(exact(total), share + more).value <= total + 1


@given(st.integers(0, 40 * GIB), st.integers(0, 8 * GIB), st.floats(0.1, 1.0))
def test_the_pool_is_bounded_by_its_bad_ends(weights: int, spread: int, utilization: float) -> None:
    uncertain = estimated(weights, max(0, weights - spread), weights + spread)
    found = ledger(weights=uncertain, utilization=utilization)
    assert found.kv_cache_bytes.low <= found.kv_cache_bytes.value <= found.kv_cache_bytes.high
    assert found.kv_cache_bytes.value == ledger(weights=exact(weights), utilization=utilization).kv_cache_bytes.value


# Public start-ups


def name(value: object) -> str | None:
    return value.row.id if isinstance(value, Prediction) else None


def test_there_are_enough_rows_to_mean_something() -> None:
    assert len(ROWS) >= 50
    assert len({row.project for row in ROWS}) >= 8
    assert len({row.release for row in ROWS}) >= 10


@pytest.mark.parametrize("prediction", PREDICTIONS, ids=name)
def test_the_band_holds_the_logged_pool(prediction: Prediction) -> None:
    assert prediction.holds is not False
    assert not prediction.too_high


def test_the_pool_is_within_1_percent_at_the_median_and_5_at_the_90th_percentile() -> None:
    errors = [abs(p.error_fraction) for p in GRADED if p.error_fraction is not None]
    assert percentile(errors, 0.5) < 0.01
    assert percentile(errors, 0.9) < 0.05


def test_the_band_is_narrow() -> None:
    widths = [p.width_fraction for p in GRADED if p.width_fraction is not None]
    assert percentile(widths, 0.5) < 0.10


def test_no_start_that_worked_is_foretold_to_fail_and_few_are_left_open() -> None:
    worked = [p for p in GRADED if p.row.outcome == "started" and p.row.needed_gib is not None]
    assert not [p.row.id for p in worked if p.starts is False]
    assert sum(p.starts is None for p in worked) <= 0.15 * len(worked)


def test_no_start_that_failed_for_lack_of_memory_is_foretold_to_work() -> None:
    """Whose need is not in the log, or whose card another process held, cannot be foretold and stays open."""
    failed = [p for p in PREDICTIONS if p.row.outcome == "kv_insufficient"]
    assert len(failed) >= 4
    assert not [p.row.id for p in failed if p.starts is True]


def test_activation_and_non_torch_are_right_by_themselves_on_one_gpu() -> None:
    """Errors must not cancel: each part against its own line in the log."""
    alone = [p for p in GRADED if p.row.activation_gib is not None and p.row.release >= (0, 17)]
    assert len(alone) > 25
    for p in alone:
        activation, outside = p.row.activation_gib or 0.0, p.row.non_torch_gib or 0.0
        assert p.ledger.activation_bytes.value / GIB == pytest.approx(activation, abs=0.15), p.row.id
        assert p.ledger.non_torch_bytes.value / GIB == pytest.approx(outside, abs=0.25), p.row.id


def test_constants_hold_without_the_logs_they_came_from() -> None:
    """Each project predicted with constants that never saw it: the errors published in docs/accuracy.md."""
    blind = [p for p in left_out(ROWS) if p.row.grade == "A" and p.row.release < (0, 20)]
    errors = [abs(p.error_fraction) for p in blind if p.error_fraction is not None]
    assert percentile(errors, 0.5) < 0.02
    assert percentile(errors, 0.9) < 0.12


@pytest.mark.skipif(not (SHARED / "startups.jsonl").exists(), reason="no public start-up logs beside the checkout")
def test_the_restated_rows_agree_with_the_logs() -> None:
    logs = {log["id"]: log for log in map(json.loads, (SHARED / "startups.jsonl").read_text("utf-8").splitlines())}
    compared = [_differences(row, logs[row.id]) for row in ROWS if row.id in logs]
    assert len(compared) >= 50
    assert not [difference for found in compared for difference in found]


def _differences(row: Startup, log: dict[str, Any]) -> list[str]:
    stated = {
        "vllm_version": row.version,
        "grade": row.grade,
        "outcome": row.outcome,
        "model_loading_gib": row.weights_gib if row.weights_from == "log" else None,
        "available_kv_gib": row.kv_gib,
        "peak_activation_gib": row.activation_gib,
        "non_torch_gib": row.non_torch_gib,
        "total_gpu_gib": row.total_gib if row.total_from == "log" and log["total_gpu_gib"] is not None else None,
    }
    return [f"{row.id}: {key} {log[key]} restated as {value}" for key, value in stated.items() if log[key] != value]


def test_estimates_keep_their_worst_basis() -> None:
    found = ledger(weights=Estimate(GIB, GIB, GIB, "measured"))
    assert found.kv_cache_bytes.basis == "measured"
