"""`kvadvise diagnose`: why a start failed, what a log says of a server, what ails one that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvadvise.cli import debug_option
from kvadvise.commands.plan import complete_profile

if TYPE_CHECKING:
    from advisor.plan_types import Plan
    from kvadvise.server_diagnosis import Asked
    from launch.diagnosis_types import Diagnosis
    from launch.live_server import Live
    from launch.server_types import ServerDiagnosis
    from launch.startup_facts import StartupFacts

_ORDER = {"error": 0, "warning": 1, "note": 2}
_SYMPTOMS = ("quality-long-context",)


@click.command("diagnose", short_help="Why vLLM did not start, or what ails a server.")
@click.option("--log", "log", metavar="FILE", help="The engine's log; `-` reads it from stdin.")
@click.option("--exit-code", type=int, help="How the engine ended, where it is known: 137, -9, 1.")
@click.option("--url", metavar="URL", help="A server that runs; it is read, and nothing is sent to its engine.")
@click.option(
    "--interval", "seconds", type=click.FloatRange(0.5, 3600), default=15.0, show_default=True, metavar="SECONDS",
    help="From the first reading of its metrics to the last; a hang shows from 60 on.",
)  # fmt: skip
@click.option("--readings", type=click.IntRange(2, 1000), default=4, show_default=True, help="How many of them.")
@click.option(
    "--profile", "reference", metavar="NAME|FILE", shell_complete=complete_profile,
    help="The workload or plan it was started for: limits and what its load declares.",
)  # fmt: skip
@click.option("--symptom", "symptoms", type=click.Choice(_SYMPTOMS), multiple=True, help="A complaint to look into.")
@click.option("--alone-tpot-s", type=float, metavar="SECONDS", help="Time per token of one request alone, if measured.")
@click.option("--throughput", "ladder", multiple=True, metavar="N=TOKENS_S", help="Tokens per second at N requests.")
@click.option(
    "--concurrency", type=click.IntRange(1), metavar="N", help="Requests that the client means to keep in flight."
)
@click.option("--ca-file", metavar="FILE", help="Who signed an https server's certificate.")
@click.option("--json", "as_json", is_flag=True, help="Print kvadvise.diagnose/1, and nothing else on stdout.")
@debug_option
def command(
    log: str | None,
    exit_code: int | None,
    url: str | None,
    seconds: float,
    readings: int,
    reference: str | None,
    symptoms: tuple[str, ...],
    alone_tpot_s: float | None,
    ladder: tuple[str, ...],
    concurrency: int | None,
    ca_file: str | None,
    as_json: bool,
) -> int:
    """Name what a log or a server shows, the cause first: what was seen, what it means, what to do, what was not seen.

    An API key is taken from KVADVISE_API_KEY or VLLM_API_KEY. Exit code 0: nothing is wrong. 1: something is. 2: the
    log cannot be read. 69: the server cannot be reached, or is not vLLM. 75: there is no start of vLLM in the log, or
    the server has no metrics to judge by.
    """
    if log is None and url is None:
        raise click.UsageError("Missing --log or --url: give a log, a server, or both.")
    if log is None and exit_code is not None:
        raise click.UsageError("--exit-code belongs to --log.")
    from launch.startup_log import is_empty, read_startup

    plan = _plan(reference)
    lines = _lines(log) if log is not None else []
    said = read_startup(lines) if log is not None else None
    found = [("log", one) for one in _from_log(lines, exit_code, plan)] if log is not None else []
    live, judged = None, None
    if url is not None:
        from kvadvise.server_diagnosis import Asked, read_ladder
        from launch.live_server import address_of

        asked = Asked(
            url=address_of(url), seconds=seconds, readings=readings, ca_file=ca_file, alone_tpot_s=alone_tpot_s,
            ladder=read_ladder(ladder), symptoms=symptoms, offered_concurrency=concurrency, plan=plan,
        )  # fmt: skip
        live, judged = _from_server(asked, said)
        found += [("server", one) for one in judged.findings]
    found.sort(key=lambda pair: _ORDER[pair[1].severity])
    if as_json:
        _print_json(found, log, live, judged)
    else:
        _print(found, live, judged)
    if any(finding.severity == "error" for _, finding in found):
        return 1
    is_blind = live is not None and not live.readings
    return _unless_blind(said is not None and is_empty(said), is_blind, log, found, as_json=as_json)


def _unless_blind(no_start: bool, no_metrics: bool, log: str | None, found: list[Any], *, as_json: bool) -> int:
    """75 where there was nothing to judge by, which is not the same as a clean bill."""
    from kvadvise.output import emit, tell

    if no_start:
        tell("the log shows no start of vLLM: nothing can be said of it")
    if no_metrics:
        tell("the server gives no metrics of vLLM's: hardly anything can be said of it")
    if no_start or no_metrics:
        return 75
    if not found and not as_json:
        emit("Nothing is wrong in this log." if log is not None else "Nothing is wrong that these readings show.")
    return 0


def _plan(reference: str | None) -> Plan | None:
    if reference is None:
        return None
    from kvadvise.pipeline import plan_or_refusal, saved_plan
    from kvadvise.workload_text import read_text

    text = read_text(reference)
    return saved_plan(text) or plan_or_refusal(text)


def _lines(log: str) -> list[str]:
    from kvadvise.log_input import read_log

    return read_log(log).decode("utf-8", "replace").splitlines()


def _from_log(lines: list[str], exit_code: int | None, plan: Plan | None) -> list[Diagnosis]:
    from launch.diagnosis import diagnose
    from launch.diagnosis_context import context_of
    from launch.diagnosis_types import Context, ExitState

    return diagnose(lines, ExitState(code=exit_code), context_of(plan) if plan is not None else Context())


def _from_server(asked: Asked, said: StartupFacts | None) -> tuple[Live, ServerDiagnosis]:
    from kvadvise.output import tell
    from kvadvise.server_diagnosis import judge_server, look_at_server

    live = look_at_server(asked, lambda seconds: tell(f"reading its metrics for {seconds:g} s"))
    return live, judge_server(live, asked, said)


def _print_json(
    found: list[tuple[str, Diagnosis]], log: str | None, live: Live | None, judged: ServerDiagnosis | None
) -> None:
    import msgspec

    from kvadvise.output import emit
    from kvadvise.server_diagnosis import not_seen, was_idle

    answer: dict[str, Any] = {
        "schema": "kvadvise.diagnose/1",
        "findings": [msgspec.to_builtins(finding) | {"seen_in": place} for place, finding in found],
    }
    if log is not None:
        answer["log"] = log
    if live is not None and judged is not None:
        answer["server"] = {
            "url": live.url,
            "version": live.version,
            "health_status": live.health_status,
            "models": live.models,
            "readings": len(live.readings),
            "seconds": round(live.seconds, 3),
            "was_idle": was_idle(live),
            "notes": live.notes,
        }
        answer["not_judged"] = judged.not_judged
        answer["not_seen"] = not_seen(live, judged)
    emit(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())


def _print(found: list[tuple[str, Diagnosis]], live: Live | None, judged: ServerDiagnosis | None) -> None:
    from kvadvise.output import emit

    if live is not None:
        names = ", ".join(model.id for model in live.models) or "models not listed"
        health = f"/health {live.health_status}" if live.health_status is not None else "/health does not answer"
        emit(f"{live.url}: vLLM {live.version or 'of an unknown release'}, {names}, {health}")
        for note in live.notes:
            emit(f"  {note}")
    for place, finding in found:
        emit(f"{finding.severity}  {finding.code}")
        where = f"line {finding.line}: " if finding.line is not None and place == "log" else ""
        emit(f"  {finding.message}\n  -> {finding.remedy}\n  seen: {where}{finding.evidence}")
        if finding.not_seen:
            emit(f"  not seen: {'; '.join(finding.not_seen)}")
    if live is not None and judged is not None:
        _print_open(live, judged)


def _print_open(live: Live, judged: ServerDiagnosis) -> None:
    """What was looked for in vain, and what these readings cannot tell."""
    from kvadvise.output import emit
    from kvadvise.printing.look import look_of_terminal
    from kvadvise.server_diagnosis import not_seen, was_idle

    look = look_of_terminal()
    absent = not_seen(live, judged)
    if absent:
        emit("\n".join(look.wrap(f"looked for and not there: {', '.join(absent)}", indent=2, first="")))
    if was_idle(live):
        emit("it was idle all the while: what shows only under load was not there to be seen")
    if judged.not_judged:
        emit("not judged, for want of")
    for one in judged.not_judged:
        emit("\n".join(look.wrap(f"{one.code}: {one.missing}", indent=4, first="  ")))
