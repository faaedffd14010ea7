"""`kvadvise models`: the models that can be planned without a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvadvise.cli import debug_option

if TYPE_CHECKING:
    from kvadvise.catalogue import ModelRow


@click.group("models", short_help="The models kvadvise knows without a network.", invoke_without_command=True)
@debug_option
@click.pass_context
def command(ctx: click.Context) -> None:
    """List, show and add catalogue entries: a model's config and the size of its weights.

    A model that is not here is read from its directory, the hub cache or the hub.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_command, search=(), as_json=False)


@command.command("list")
@click.argument("search", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else on stdout.")
@debug_option
def list_command(search: tuple[str, ...], as_json: bool) -> None:
    """List entries, all of them or those in whose id or architecture every SEARCH word occurs."""
    from kvadvise.catalogue import list_models
    from kvadvise.output import emit

    words = [word.lower() for word in search]
    found = [row for row in list_models() if all(word in f"{row.id} {row.architecture}".lower() for word in words)]
    if as_json:
        import msgspec

        emit(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    emit(_table(found))


@command.command("show")
@click.argument("model")
@debug_option
def show_command(model: str) -> None:
    """Print what is known of MODEL (an id, a catalogue name or a directory) and where it was read, as JSON."""
    import msgspec

    from advisor.workload import ModelRef
    from kvadvise.output import emit
    from kvadvise.sources import resolve_model

    facts = resolve_model(ModelRef(id=model), base_dir=Path.cwd())
    emit(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode())


@command.command("add")
@click.argument("model", metavar="ID|DIR")
@click.option("--out", type=click.Path(path_type=Path), help="Write the entry here, not into your own catalogue.")
@debug_option
def add_command(model: str, out: Path | None) -> None:
    """Read a model's facts once, from its directory, the hub cache or the hub, and keep them as an entry.

    Weights are not downloaded, only their headers or their index.
    """
    from kvadvise.catalogue import add_model
    from kvadvise.output import emit

    emit(str(add_model(model, out)))


def _table(found: list[ModelRow]) -> str:
    from advisor.units import gib
    from kvadvise.printing.look import columns

    head = ("ID", "ARCHITECTURE", "WEIGHTS", "ENTRY", "ORIGIN")
    rows = [
        (
            row.id,
            row.architecture or "unknown",
            gib(row.total_bytes) if row.total_bytes is not None else "unknown",
            row.completeness,
            row.origin,
        )
        for row in found
    ]
    return "\n".join(columns([head, *rows], right=(2,)))
