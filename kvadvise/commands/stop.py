"""`kvadvise stop`: end servers that `launch --detach` left running."""

from __future__ import annotations

import click

from kvadvise.cli import debug_option


@click.command("stop", short_help="End a server that `launch --detach` left running.")
@click.option("--port", type=click.IntRange(1, 65535), help="Which one; not needed where there is one.")
@click.option("--all", "every", is_flag=True, help="All of them.")
@debug_option
def command(port: int | None, every: bool) -> int:
    """Stop a server, let its requests finish, and see that nothing of it is left.

    Exit code 0: it is gone. 2: there is no such server, or several and none is named. 69: something is left.
    """
    import os

    from advisor.errors import InvalidInput
    from kvadvise.output import emit, tell
    from launch.registry import running_servers, stop_server

    running = running_servers(os.environ)
    chosen = [record for record in running if port is None or record.port == port]
    if not chosen:
        known = ", ".join(str(record.port) for record in running)
        where = f"port {port}" if port is not None else "launch --detach"
        raise InvalidInput(f"no server was left running ({where})", hint=f"running: {known}" if known else "")
    if len(chosen) > 1 and not every:
        ports = ", ".join(f"{record.port} ({record.model})" for record in chosen)
        raise InvalidInput(f"{len(chosen)} servers are running: {ports}", hint="name one with --port, or --all")
    code = 0
    for record in chosen:
        ended = stop_server(record, os.environ)
        how = "killed" if ended.was_killed else "stopped"
        emit(f"{record.url} ({record.model}) {how} after {ended.seconds:.0f} s")
        for pid, name in ended.left:
            tell(f"error: process {pid} ({name}) did not end")
            code = 69
    return code
