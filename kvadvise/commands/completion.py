"""`kvadvise completion`: the script that teaches a shell kvadvise's commands, options and profile names."""

from __future__ import annotations

import click

from kvadvise.cli import debug_option

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="A completion script for your shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@debug_option
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash: kvadvise completion bash > ~/.local/share/bash-completion/completions/kvadvise
    zsh:  kvadvise completion zsh > "${fpath[1]}/_kvadvise"
    fish: kvadvise completion fish > ~/.config/fish/completions/kvadvise.fish
    """
    from click.shell_completion import get_completion_class

    from kvadvise.output import emit

    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"click has no completion for {shell}.")
    emit(script(ctx.find_root().command, {}, "kvadvise", "_KVADVISE_COMPLETE").source())
