"""`kvadvise calibrate`: what a start cost, from a log that somebody recorded, kept for the next plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kvadvise.cli import debug_option
from kvadvise.commands.plan import complete_profile

if TYPE_CHECKING:
    from advisor.measured import Measurement, Span
    from kvadvise.calibration import Given
    from launch.measured_store import Kept


@click.command("calibrate", short_help="Keep what a start cost, from its log, for the next plan.")
@click.option("--log", "log", required=True, metavar="FILE", help="The log of a start that came up; `-` is stdin.")
@click.option(
    "--profile", "reference", metavar="NAME|FILE", shell_complete=complete_profile,
    help="The workload it was started for: its model, GPU and pins, where the log does not say them.",
)  # fmt: skip
@click.option("--gpu", metavar="NAME", help="The GPU it ran on; a log does not name it.")
@click.option("--model", metavar="ID|DIR", help="The model, where the log's own name for it is not known here.")
@click.option("--pin", "pins", multiple=True, metavar="NAME=VALUE", help="An engine argument the log does not print.")
@click.option("--dry-run", is_flag=True, help="Say what would be kept, and keep nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print kvadvise.calibrate/1, and nothing else on stdout.")
@debug_option
def command(
    log: str,
    reference: str | None,
    gpu: str | None,
    model: str | None,
    pins: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Read activations, memory outside torch and CUDA graphs from a start-up log and keep them under their key.

    The next plan with that key takes them for the predicted ones. What the log says comes first; what it leaves open
    has to be given. Exit code 0: kept, or known already. 2: there is nothing in it to keep, or not enough is known.
    """
    import os
    from datetime import UTC, datetime

    from advisor.errors import InvalidInput
    from kvadvise.calibration import measure
    from kvadvise.measured_files import measured_dir
    from kvadvise.output import tell
    from launch.measured_store import keep

    given = _given(reference, gpu, model, pins)
    lines, source = _read(log)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = measure(lines, given, where="stdin" if log == "-" else log, source=source, kept_on=now)
    directory = measured_dir(os.environ)
    if directory is None:
        raise InvalidInput("there is no home directory to keep it in", hint="set XDG_DATA_HOME")
    kept = None if dry_run else keep(directory, made)
    if kept is not None and kept.replaced:
        tell(f"warning: {kept.path} {kept.replaced}; it was replaced")
    path = str(directory / made.key.file_name)
    if as_json:
        _print_json(path, made, kept)
    else:
        _print(path, made, kept)
    return 0


def _given(reference: str | None, gpu: str | None, model: str | None, pins: tuple[str, ...]) -> Given:
    from kvadvise.calibration import Given, read_pins

    given = Given(gpu=gpu, model=model, pins=read_pins(pins))
    if reference is None:
        return given
    import msgspec

    from advisor.workload_yaml import read_workload_bytes
    from kvadvise.workload_text import read_text

    text = read_text(reference)
    profile = read_workload_bytes(text.question, text.label)
    return msgspec.structs.replace(given, profile=profile, base_dir=text.base_dir)


def _read(log: str) -> tuple[list[str], str]:
    """The lines, and what the store calls them: the file's name and what tells it from another of that name."""
    import hashlib
    from pathlib import Path

    from kvadvise.log_input import read_log

    data = read_log(log)
    name = "stdin" if log == "-" else Path(log).name
    return data.decode("utf-8", "replace").splitlines(), f"{name}, sha256 {hashlib.sha256(data).hexdigest()[:12]}"


def _print_json(path: str, made: Measurement, kept: Kept | None) -> None:
    import msgspec

    from kvadvise.output import emit

    answer = {
        "schema": "kvadvise.calibrate/1",
        "file": path,
        "kept": kept is not None and not kept.was_known,
        "was_known": kept is not None and kept.was_known,
        "read": made,
        "known": kept.measurement if kept is not None else None,
    }
    emit(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())


def _print(path: str, made: Measurement, kept: Kept | None) -> None:
    from kvadvise.output import emit

    key = made.key
    if kept is None:
        emit(f"would be kept in {path}")
    elif kept.was_known:
        emit(f"this very log is known already; nothing changes in {path}")
    else:
        starts = kept.measurement.starts
        emit(f"kept in {path}" + (f", {starts} starts now" if starts > 1 else ""))
    emit(f"  vLLM {key.vllm_version}, {key.gpu}, {key.architecture} {key.shape}, {key.dtype}, {_quantised(made)}")
    emit(
        f"  tensor parallel {key.tensor_parallel_size}, pipeline parallel {key.pipeline_parallel_size}, "
        f"max_num_batched_tokens {key.max_num_batched_tokens}, max_num_seqs {key.max_num_seqs}, "
        f"{'CUDA graphs' if key.cuda_graphs else 'no CUDA graphs'}"
    )
    for name, value in key.settings.items():
        emit(f"  {name} {value}")
    known = kept.measurement if kept is not None else made
    rows = (
        ("activations", made.activation, known.activation),
        ("non-torch", made.non_torch, known.non_torch),
        ("CUDA graphs, captured", made.cuda_graphs, known.cuda_graphs),
        ("CUDA graphs, vLLM's estimate", made.cuda_graphs_estimated, known.cuda_graphs_estimated),
    )
    for label, read, band in rows:
        emit(f"  {label:<28}  {_size(read):>14}{_band(band)}")


def _quantised(made: Measurement) -> str:
    return made.key.quantization or "not quantised"


def _size(span: Span | None) -> str:
    from advisor.units import gib

    return "not printed" if span is None else gib(span.value)


def _band(span: Span | None) -> str:
    """The band a plan will use."""
    from advisor.units import GIB

    if span is None:
        return ""
    estimate = span.estimate
    return f"   a plan takes {estimate.low / GIB:.2f} to {estimate.high / GIB:.2f}"
