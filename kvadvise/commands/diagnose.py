"""`kvadvise diagnose`: why a start failed, or what a log says of a server."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kvadvise.cli import debug_option


@click.command("diagnose", short_help="Why vLLM did not start, from its log.")
@click.option("--log", "log", required=True, metavar="FILE", help="The engine's log; `-` reads it from stdin.")
@click.option("--exit-code", type=int, help="How the engine ended, where it is known: 137, -9, 1.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON, and nothing else on stdout.")
@debug_option
def command(log: str, exit_code: int | None, as_json: bool) -> int:
    """Name what a log shows, the cause first: what was seen, what it means, what to do.

    Exit code 0: nothing is wrong in it. 1: something is. 2: it cannot be read. 75: there is no start of vLLM in it.
    """
    import msgspec

    from kvadvise.output import emit, tell
    from launch.diagnosis import diagnose
    from launch.diagnosis_types import ExitState
    from launch.startup_log import is_empty, read_startup

    lines = _lines(log)
    found = diagnose(lines, ExitState(code=exit_code))
    if as_json:
        emit(msgspec.json.format(msgspec.json.encode({"findings": found}), indent=2).decode())
    for finding in () if as_json else found:
        where = f"line {finding.line}: " if finding.line is not None else ""
        emit(f"{finding.severity}  {finding.code}")
        emit(f"  {finding.message}\n  -> {finding.remedy}\n  seen: {where}{finding.evidence}")
        if finding.not_seen:
            emit(f"  not seen: {'; '.join(finding.not_seen)}")
    if any(finding.severity == "error" for finding in found):
        return 1
    if is_empty(read_startup(lines)):
        tell("the log shows no start of vLLM: nothing can be said of it")
        return 75
    if not found and not as_json:
        emit("Nothing is wrong in this log.")
    return 0


def _lines(log: str) -> list[str]:
    from advisor.errors import InvalidInput

    try:
        data = sys.stdin.buffer.read() if log == "-" else Path(log).read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=log, hint="give the engine's log") from None
    return data.decode("utf-8", "replace").splitlines()
