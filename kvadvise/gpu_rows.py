"""The GPU catalogue: one YAML file per GPU in profiles/gpus, its file name (without suffix) being the id.

A GPU is found by its id or by any of its names. The file whose name fits is read alone; else only those files
are parsed in which the name occurs at all, so adding a GPU is adding a file and nothing else.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from kvadvise.gpu_names import name_key, split_size

RowBasis = Literal["measured", "estimated"]


class Band(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GiB with the band seen and where it was seen; of `idle_gap`, the total less what is free on an idle GPU."""

    gib: float
    low: float
    high: float
    source: str

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.gib <= self.high:
            raise ValueError(f"a band must hold its value: {self.low} <= {self.gib} <= {self.high}")


class Memory(Band, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The total as CUDA or HIP reports it on native Linux: the lowest value seen, and the band."""

    basis: RowBasis
    nvml_mib: float | None = None  # what nvidia-smi shows, which counts what the driver keeps back
    windows_gib: float | None = None  # what CUDA reports under Windows and WSL
    ecc_on_gib: float | None = None  # the total with ECC on, of a card that is sold with it off


class Rate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bandwidth in 10^9 bytes per second; of a link, both directions together."""

    gb_per_s: float
    source: str


class MigSlice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One MIG profile: its memory where it is known, and its shares of the GPU's memory and SMs (`3/8`)."""

    memory: str
    sms: str
    basis: RowBasis
    gib: float | None = None

    def __post_init__(self) -> None:
        if not (0 < share(self.memory) <= 1 and 0 < share(self.sms) <= 1):
            raise ValueError(f"a share lies between 0 and 1: {self.memory}, {self.sms}")


class Mig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The MIG profiles of a GPU by name (`1g.10gb`)."""

    source: str
    slices: dict[str, MigSlice]


class GpuRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of the catalogue. `id` is the file's name and not written in it."""

    id: str
    name: str
    device_name: str  # what the driver reports
    vendor: Literal["nvidia", "amd", "intel", "cpu"]
    arch: str
    aliases: tuple[str, ...] = ()
    compute_capability: str | None = None
    memory: Memory | None = None  # None: no total was found, so it must be stated
    idle_gap: Band | None = None  # None: by size of the memory
    unified_memory: bool = False
    bandwidth: Rate | None = None
    dense_tflops: dict[Literal["fp16", "bf16", "fp8", "int8", "fp4"], float] = {}
    flops_source: str = ""
    link: Rate | None = None  # NVLink or Infinity Fabric
    ecc: str = ""
    mig: Mig | None = None
    notes: tuple[str, ...] = ()

    @property
    def capability(self) -> tuple[int, int] | None:
        """The compute capability as a pair."""
        if self.compute_capability is None:
            return None
        major, _, minor = self.compute_capability.partition(".")
        return int(major), int(minor)

    @property
    def keys(self) -> frozenset[str]:
        """Everything this GPU may be called, in the form names are compared in."""
        return frozenset(name_key(n) for n in (self.id, self.name, self.device_name, *self.aliases))


class Catalogue:
    """The rows of one folder, read when they are asked for."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or bundled_folder()

    def all(self) -> list[GpuRow]:
        """Every row, by id."""
        return [load_row(path) for path in self._files()]

    def find(self, text: str) -> list[GpuRow]:
        """The rows that are called `text`; a size in it (`80GB`) that is no part of a name has to fit."""
        key = name_key(text)
        rows = self._called(key) if key else []
        if rows:
            return rows
        base, size_gb = split_size(text)
        if size_gb is None:
            return []
        return [row for row in self._called(name_key(base)) if fits_size(row, size_gb)]

    def suggest(self, text: str, n: int = 3) -> list[str]:
        """Names that are nearly `text`, nearest first."""
        key = name_key(text)
        names = {k: row.name for row in self.all() for k in sorted(row.keys)}
        near = difflib.get_close_matches(key, names, n=3 * n, cutoff=0.6) if key else []
        within = [k for k in sorted(names, key=len) if len(key) >= 2 and (key in k or (len(k) > 3 and k in key))]
        return list(dict.fromkeys(names[k] for k in [*near, *within]))[:n]

    def _called(self, key: str) -> list[GpuRow]:
        if not key:
            return []
        files = self._files()
        for path in files:
            if name_key(path.stem) == key:
                return [load_row(path)]
        rows = [load_row(path) for path in files if key in _names_in(path)]
        return [row for row in rows if key in row.keys]

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.yaml"))


def bundled_folder() -> Path:
    """The folder of the bundled catalogue."""
    import profiles

    return Path(profiles.__file__).parent / "gpus"


@lru_cache(maxsize=256)
def load_row(path: Path) -> GpuRow:
    """One row. Raises ValueError where the file is not what this release expects."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document: Any = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506  a safe loader
    try:
        return msgspec.convert({"id": path.stem, **document}, GpuRow)
    except (TypeError, msgspec.ValidationError) as error:
        raise ValueError(f"{path}: {error}") from error


def _names_in(path: Path) -> str:
    """The key of a file's head, in which its names stand: they come before `vendor:` in every file."""
    return name_key(path.read_text(encoding="utf-8").partition("\nvendor:")[0])


def fits_size(row: GpuRow, size_gb: float) -> bool:
    """Whether a GPU of this size as sold, or as nvidia-smi shows it, may be this one.

    CUDA's total is 0.2 to 11 % below the figure on the box (24 GB with ECC: 22.0 GiB; "288 GB": 267.7 GiB).
    """
    return row.memory is not None and 0.88 * size_gb <= row.memory.gib <= 1.03 * size_gb


def nearest_size(rows: Iterable[GpuRow], gib: float) -> list[GpuRow]:
    """The one row whose total is next to `gib`, if its total differs by no more than a tenth; else none."""
    sized = [(abs(row.memory.gib - gib), row.id, row) for row in rows if row.memory is not None]
    if not sized:
        return []
    distance, _, row = min(sized)
    return [row] if distance <= 0.1 * gib else []


def share(text: str) -> float:
    """`3/8` as a number."""
    above, _, below = text.partition("/")
    return int(above) / int(below)
