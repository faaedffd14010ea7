"""The command group: what commands there are, and nothing of what they do.

A command's module is imported when the command is asked for, so that `kvadvise plan` does not pay for the
others.
"""

from __future__ import annotations

from typing import Any

import click

from kvadvise import __version__

COMMANDS = (
    *("plan", "diff", "launch", "stop", "verify", "gate", "judge", "diagnose", "calibrate", "demo"),
    *("gpus", "models", "profiles", "completion"),
)


class Session:
    """What the options before the command ask for; one per process."""

    def __init__(self) -> None:
        self.debug = False


class LazyGroup(click.Group):
    """A group that imports `kvadvise.commands.NAME` when NAME is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Commands in the order of use, not of the alphabet."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, or None for a name that is not one."""
        if cmd_name not in COMMANDS:
            return None
        import importlib

        command: click.Command = importlib.import_module(f"kvadvise.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with a hint for a slip of the keys and for a file where the command belongs."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}.{_hint(name)}", ctx)
        return super().resolve_command(ctx, args)


def _hint(name: str) -> str:
    if name.endswith((".yaml", ".yml", ".json")):
        return f" Did you mean `kvadvise plan {name}`?"
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, n=1)
    return f" Did you mean `{near[0]}`?" if near else ""


def _ask_debug(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Session).debug = True


def debug_option(function: Any) -> Any:
    """`--debug`, which may stand before or after the command's name."""
    return click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_ask_debug,
        help="Show the traceback of an error.",
    )(function)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kvadvise", message="%(prog)s %(version)s")
@debug_option
def group() -> None:
    """Choose vLLM's flags from a workload before anything is loaded.

    \b
    kvadvise plan workload.yaml          the flags, what they cost, and why
    kvadvise plan workload.yaml --json   the same for a program
    """
