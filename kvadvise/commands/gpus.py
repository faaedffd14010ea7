"""`kvadvise gpus`: what the GPU catalogue knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kvadvise.cli import debug_option

if TYPE_CHECKING:
    from kvadvise.gpus import GpuSummary


@click.command("gpus", short_help="The GPUs kvadvise knows, and their memory.")
@click.argument("search", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else on stdout.")
@debug_option
def command(search: tuple[str, ...], as_json: bool) -> None:
    """List GPUs, all of them or those in whose names every SEARCH word occurs.

    Memory is what CUDA reports, in GiB: less than the marketing figure, and what vLLM takes its share of.
    One that is not here can be stated in the workload: gpu: {name: ..., memory_gib: ...,
    compute_capability: ...}.
    """
    from advisor.errors import InvalidInput
    from kvadvise.gpus import list_gpus
    from kvadvise.output import emit

    words = [word.lower() for word in search]
    found = [gpu for gpu in list_gpus() if all(word in _names(gpu) for word in words)]
    if as_json:
        import msgspec

        emit(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    if not found:
        raise InvalidInput(f"no GPU has {' '.join(search)!r} in its name", hint="`kvadvise gpus` lists them all")
    emit(_page(found))


def _names(gpu: GpuSummary) -> str:
    return " ".join((gpu.id, gpu.name, gpu.device_name, *gpu.aliases)).lower()


def _page(found: list[GpuSummary]) -> str:
    """A table; for a single GPU also its notes and where its memory is known from."""
    from kvadvise.printing.look import columns, look_of_terminal

    head = ("NAME", "GIB", "BASIS", "CAPABILITY", "GB/S", "ARCHITECTURE")
    rows = [
        (
            gpu.name,
            f"{gpu.memory_gib:.2f}" if gpu.memory_gib is not None else "unknown",
            gpu.memory_basis or "-",
            gpu.compute_capability or "-",
            f"{gpu.bandwidth_gb_per_s:g}" if gpu.bandwidth_gb_per_s is not None else "unknown",
            gpu.arch,
        )
        for gpu in found
    ]
    lines = columns([head, *rows], right=(1, 4))
    if len(found) == 1:
        look = look_of_terminal()
        gpu = found[0]
        also = [f"also known as {', '.join(gpu.aliases)}"] if gpu.aliases else []
        also += [f"MIG profiles: {', '.join(gpu.mig)}"] if gpu.mig else []
        also += [f"source: {gpu.source}"] if gpu.source else []
        for text in (*also, *gpu.notes):
            lines += look.wrap(text, indent=4, first="  ")
    return "\n".join(lines)
