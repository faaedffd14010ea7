"""Public start-ups against the memory ledger: one prediction per logged start, and constants refitted without a source.

The rows (tests/data/startups_rows.jsonl) restate facts of public start-up logs, each with its source; the shapes beside
them are the models' public dimensions. Weights are the log's own, so that what is judged is everything else.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from advisor.cuda_graphs import capture_sizes
from advisor.estimate import Estimate, measured
from advisor.gpu import Gpu
from advisor.ledger import MemoryLedger, memory_ledger
from advisor.overhead_constants import Factor, OverheadConstants
from advisor.overhead_inputs import OverheadInputs
from advisor.overheads import Overheads, has_nvls, overheads
from advisor.units import GIB, bytes_from_gib
from advisor.versions import Version, parse_version
from kvadvise.constants import load_constants

DATA = Path(__file__).parent.parent / "tests" / "data"
_ROUNDING = GIB // 200  # logs print two decimals


class Startup(msgspec.Struct, frozen=True, kw_only=True):
    """One logged start. Sizes in GiB as printed; None where the log does not say."""

    id: str
    source: str
    version: str
    grade: str
    family: str
    shape: str
    gpu: str
    cc: tuple[int, int]
    total_gib: float
    utilization: float
    outcome: str
    weights_gib: float | None = None
    total_from: str = "log"
    weights_from: str = "log"
    unified: bool = False
    free_gib: float | None = None
    seqs: int | None = None
    batched: int | None = None
    length: int | None = None
    tp: int = 1
    pp: int = 1
    rank: str = "last"
    eager: bool = False
    quantization: str | None = None
    dtype_bytes: int = 2
    max_capture_size: int | None = None
    failure: str | None = None
    kv_gib: float | None = None
    needed_gib: float | None = None
    activation_gib: float | None = None
    non_torch_gib: float | None = None
    graphs_gib: float | None = None
    graphs_estimated_gib: float | None = None

    @property
    def release(self) -> Version:
        """The version, without what follows the release number."""
        return parse_version(self.version)

    @property
    def project(self) -> str:
        """Who published it: logs of one project come from one hand and often one machine."""
        head = self.source.split()[0]
        if head.startswith("vllm-project/vllm#") or head == "public":
            return (
                self.source.split("(")[0].strip() if head != "public" else self.source.split("index ")[-1].rstrip(")")
            )
        return head.rstrip("/")


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """A start beside what the ledger says of it."""

    row: Startup
    overheads: Overheads
    ledger: MemoryLedger

    @property
    def error_fraction(self) -> float | None:
        """Predicted pool against the logged one, as a share of the logged one."""
        if self.row.kv_gib is None or self.row.kv_gib <= 0:
            return None
        logged = self.row.kv_gib * GIB
        return (self.ledger.kv_cache_bytes.value - logged) / logged

    @property
    def holds(self) -> bool | None:
        """Whether the band holds the logged pool (to the log's rounding)."""
        if self.row.kv_gib is None:
            return None
        logged = bytes_from_gib(self.row.kv_gib)
        pool = self.ledger.kv_cache_bytes
        return pool.low - _ROUNDING <= logged <= pool.high + _ROUNDING

    @property
    def too_high(self) -> bool | None:
        """Whether even the low end promises more than there was."""
        if self.row.kv_gib is None:
            return None
        return self.ledger.kv_cache_bytes.low - _ROUNDING > bytes_from_gib(self.row.kv_gib)

    @property
    def width_fraction(self) -> float | None:
        """The band's width as a share of the logged pool."""
        if self.row.kv_gib is None or self.row.kv_gib <= 0:
            return None
        pool = self.ledger.kv_cache_bytes
        return (pool.high - pool.low) / (self.row.kv_gib * GIB)

    @property
    def starts(self) -> bool | None:
        """Whether the pool holds one request of max_model_len, and free memory the budget."""
        if self.row.needed_gib is None and self.ledger.kv_cache_bytes.low > 0:
            return None
        needed = bytes_from_gib(self.row.needed_gib or 0.01)
        pool = self.ledger.kv_cache_bytes
        checks = (self.ledger.start_check, self.ledger.outside_check)
        if pool.high < needed or False in checks:
            return False
        return True if pool.low >= needed and all(checks) else None


def load_rows(directory: Path = DATA) -> list[Startup]:
    """Every start-up of the data file."""
    lines = (directory / "startups_rows.jsonl").read_text(encoding="utf-8").splitlines()
    return [msgspec.convert(json.loads(line), Startup) for line in lines]


@lru_cache(maxsize=2)
def load_shapes(directory: Path = DATA) -> dict[str, dict[str, Any]]:
    """The models' dimensions by name."""
    lines = (directory / "startups_shapes.jsonl").read_text(encoding="utf-8").splitlines()
    return {shape.pop("name"): shape for shape in map(json.loads, lines)}


def default_batch(version: Version, gpu: Gpu) -> tuple[int, int]:
    """(max_num_seqs, max_num_batched_tokens) of an API server where the log sets none (get_batch_defaults)."""
    large = gpu.total_bytes.value >= 70 * GIB and ("a100" not in gpu.name.lower() or version < (0, 9))
    if version >= (0, 29) and gpu.total_bytes.value >= 160 * GIB:
        return 1024, 16384
    if large:
        return 1024, 8192
    return (1024 if version < (0, 8, 4) else 256), 2048


def inputs_of(row: Startup, constants: OverheadConstants) -> OverheadInputs:
    """The ledger's inputs for one row."""
    shape = dict(load_shapes()[row.shape])
    multimodal = shape.pop("multimodal", None)
    total = measured(bytes_from_gib(row.total_gib))
    gpu = Gpu(
        name=row.gpu,
        device_name=row.gpu,
        vendor="nvidia",
        compute_capability=row.cc,
        count=row.tp * row.pp,
        total_bytes=total,
        free_bytes=total,
        unified_memory=row.unified,
    )
    seqs, batched = default_batch(row.release, gpu)
    seqs, batched = row.seqs or seqs, row.batched or batched
    shape["num_layers"] = -(-shape["num_layers"] // row.pp)
    sizes = None
    if row.max_capture_size is not None:
        sizes = capture_sizes(
            row.release,
            gpu,
            architecture=shape["architecture"],
            max_num_seqs=seqs,
            max_num_batched_tokens=batched,
            max_capture_size=row.max_capture_size,
        )
    return OverheadInputs(
        version=row.release,
        gpu=gpu,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        max_model_len=row.length or 8192,
        dtype_bytes=row.dtype_bytes,
        quantization=row.quantization,
        is_multimodal=multimodal is not None,
        encoder=constants.encoders.get(multimodal) if multimodal else None,
        tensor_parallel_size=row.tp,
        pipeline_parallel_size=row.pp,
        is_last_stage=row.rank == "last",
        enforce_eager=row.eager,
        capture_sizes=sizes,
        **shape,
    )


def predict(row: Startup, constants: OverheadConstants | None = None) -> Prediction:
    """What the ledger says of one logged start."""
    constants = constants or load_constants().at(row.release)
    inputs = inputs_of(row, constants)
    costs = overheads(inputs, constants)
    total = _logged(row.total_gib, 0 if row.total_from == "log" else GIB // 10)
    free = _logged(row.free_gib, 0) if row.free_gib is not None else total
    if row.free_gib is not None:  # the log's figure is what is left after the communicators
        free = Estimate(
            free.value + costs.communicator_bytes.value,
            free.low + costs.communicator_bytes.value,
            free.high + costs.communicator_bytes.value,
            "measured",
        )
    ledger = memory_ledger(
        version=row.release,
        total=total,
        free=free,
        utilization=row.utilization,
        weights=_logged(row.weights_gib or 0.0, 0),
        overheads=costs,
    )
    return Prediction(row=row, overheads=costs, ledger=ledger)


def _logged(gib: float, more: int) -> Estimate:
    value = bytes_from_gib(gib)
    spread = _ROUNDING + more
    return measured(value, value - spread, value + spread)


# Refitting without one project: what the constants would be had its logs never been seen.


def refit(rows: Iterable[Startup], version: Version) -> OverheadConstants:
    """The constants for `version` with every value that logs gave taken again from `rows`: the median of what they
    imply in the same version range, of any version where none is left, unchanged where nothing is left at all."""
    constants = load_constants().at(version)
    known = [row for row in rows if row.activation_gib is not None or row.non_torch_gib is not None]
    changes: dict[str, Factor] = {}
    for name, implied in _IMPLIED.items():
        values = [(row, implied(row)) for row in known]
        pairs = [(row, value) for row, value in values if value is not None]
        near = [v for row, v in pairs if getattr(load_constants().at(row.release), name) == getattr(constants, name)]
        if chosen := near or [v for _, v in pairs]:
            changes[name] = _moved(getattr(constants, name), statistics.median(chosen))
    return msgspec.structs.replace(constants, **changes)


def _moved(factor: Factor, value: float) -> Factor:
    shift = value - factor.value
    return Factor(value, min(value, factor.low + shift), max(value, factor.high + shift))


def _implied_base(row: Startup) -> float | None:
    if row.activation_gib is None:
        return None
    prediction = predict(row)
    rest = prediction.overheads.activation_bytes.value - prediction.overheads.parts["base"].value
    return row.activation_gib * GIB - rest


def _implied_non_torch(kind: str) -> Callable[[Startup], float | None]:
    def implied(row: Startup) -> float | None:
        if row.non_torch_gib is None or row.unified:
            return None
        gpu = inputs_of(row, load_constants().at(row.release)).gpu
        if row.tp > 1:
            found = "nvls" if has_nvls(gpu) else "tensor"
        else:
            found = "stages" if row.pp > 1 else "single"
        return row.non_torch_gib * GIB if found == kind else None

    return implied


_IMPLIED: dict[str, Callable[[Startup], float | None]] = {
    "base": _implied_base,
    **{f"non_torch_{kind}": _implied_non_torch(kind) for kind in ("single", "stages", "nvls", "tensor")},
}


def left_out(rows: list[Startup]) -> list[Prediction]:
    """Every row predicted with constants that never saw its project."""
    found = []
    for row in rows:
        others = [other for other in rows if other.project != row.project]
        found.append(predict(row, refit(others, row.release)))
    return found
