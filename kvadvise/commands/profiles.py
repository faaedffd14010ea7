"""`kvadvise profiles`: the workloads that have a name, bundled or your own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvadvise.cli import debug_option

if TYPE_CHECKING:
    from kvadvise.profile_store import Profile


@click.group("profiles", short_help="Named workloads: bundled and your own.", invoke_without_command=True)
@debug_option
@click.pass_context
def command(ctx: click.Context) -> None:
    """List and show profiles: workload files with a name, with or without a saved plan.

    Your own are in `$XDG_CONFIG_HOME/kvadvise/profiles`; `kvadvise plan FILE --save NAME` writes them.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_command, as_json=False)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else on stdout.")
@debug_option
def list_command(as_json: bool) -> None:
    """List every profile."""
    from kvadvise.output import emit
    from kvadvise.profile_store import list_profiles

    rows = [_row(profile) for profile in list_profiles()]
    if as_json:
        import msgspec

        emit(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    from kvadvise.printing.look import columns

    head = ("NAME", "ORIGIN", "PLAN", "DESCRIPTION")
    emit("\n".join(columns([head, *((r["name"], r["origin"], r["outcome"] or "-", r["description"]) for r in rows)])))


@command.command("show")
@click.argument("name")
@debug_option
def show_command(name: str) -> None:
    """Print a profile as it is written."""
    from kvadvise.output import emit
    from kvadvise.workload_text import read_profile

    emit(read_profile(name).data.decode("utf-8", "replace").rstrip("\n"))


def _row(profile: Profile) -> dict[str, Any]:
    """What the list says of one profile; one that cannot be read is listed with the reason."""
    from advisor.errors import InvalidInput
    from advisor.workload_yaml import read_workload_bytes

    row: dict[str, Any] = {"name": profile.name, "origin": profile.origin, "path": str(profile.path)}
    try:
        workload = read_workload_bytes(profile.path.read_bytes(), profile.name)
    except (InvalidInput, OSError) as error:
        return row | {"description": f"cannot be read: {str(error).splitlines()[0]}", "outcome": None}
    described = workload.description or f"{workload.model.id} on {workload.gpu.count} x {workload.gpu.name}"
    return row | {"description": " ".join(described.split()), "outcome": (workload.plan or {}).get("outcome")}
