"""The command that starts an engine, and what the launcher has to know about the server it becomes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from advisor.argument_table import ARGUMENT_RELEASES
from advisor.errors import InvalidInput
from advisor.versions import Version
from launch.engine_entry import EngineEntry

DEFAULT_PORT = 8000
_ANY = ("", "0.0.0.0", "::")  # noqa: S104  compared with, not bound to


class EngineCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What to run and where it will answer. `env` is laid over the environment that kvadvise itself has.

    `host` is what the server binds (empty: all IPv4 addresses, vLLM's own default), `drain_s` how long it lets
    requests finish at SIGTERM.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    entry: EngineEntry
    model: str
    served_model_name: str
    host: str = ""
    port: int = DEFAULT_PORT
    drain_s: float = 0.0
    api_key: str | None = None
    uses_tls: bool = False
    root_path: str = ""

    @property
    def url(self) -> str:
        """Where a client on this machine reaches it; loopback where it listens on every address."""
        host = "127.0.0.1" if self.host in ("", "0.0.0.0") else "::1" if self.host == "::" else self.host  # noqa: S104
        scheme = "https" if self.uses_tls else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def listens_everywhere(self) -> bool:
        """Whether other machines can reach it."""
        return self.host in _ANY


def engine_command(
    entry: EngineEntry,
    plan_argv: Sequence[str],
    *,
    host: str | None = None,
    port: int | None = None,
    drain_s: float | None = None,
    env: Mapping[str, str] | None = None,
) -> EngineCommand:
    """A plan's `vllm serve MODEL ...` as a command for `entry`; what is given here is added unless the plan says it.

    Raises InvalidInput where the plan and an argument say different ports, or the plan's port is none.
    """
    words = list(plan_argv[3:])
    port = _agree("--port", words, port)
    if host is not None and option_value(words, "--host") is None:
        words += ["--host", host]
    can_drain = has_shutdown_timeout(entry.version) and option_value(words, "--shutdown-timeout") is None
    if drain_s is not None and can_drain:
        words += ["--shutdown-timeout", str(round(drain_s))]
    if option_value(words, "--uds") is not None:
        raise InvalidInput("--uds: kvadvise reaches a server by its port", hint="leave uds out")
    if option_value(words, "--port") is None:
        words += ["--port", str(port)]
    model = plan_argv[2] if len(plan_argv) > 2 else ""
    drain = option_value(words, "--shutdown-timeout")
    return EngineCommand(
        argv=entry.command([*plan_argv[:2], model, *words]),
        env=dict(env or {}),
        entry=entry,
        model=model,
        served_model_name=option_value(words, "--served-model-name") or model,
        host=option_value(words, "--host") or "",
        port=port,
        drain_s=float(drain) if drain is not None and drain.isdecimal() else 0.0,
        api_key=option_value(words, "--api-key"),
        uses_tls=option_value(words, "--ssl-certfile") is not None,
        root_path=option_value(words, "--root-path") or "",
    )


def option_value(words: Sequence[str], *names: str) -> str | None:
    """The value of the last of these long options in a command line, None where there is none."""
    found = None
    for i, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in names:
            found = value if equals else words[i + 1] if i + 1 < len(words) else None
    return found


def has_shutdown_timeout(version: Version | None) -> bool:
    """Whether `--shutdown-timeout` exists, which lets requests finish at SIGTERM; without it they are cut off."""
    first = ARGUMENT_RELEASES["shutdown_timeout"][0]
    return version is not None and first is not None and version >= first


def environment_of(command: EngineCommand, base: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of the engine: kvadvise's own with the command's laid over it.

    The virtual environment's programs (ninja, ray) come first in PATH, as if it were active, and a module is not
    looked for where kvadvise happens to stand.
    """
    env = dict(base) | command.env
    if command.entry.python is not None and "PATH" not in command.env:
        own = str(Path(command.entry.python).parent)
        paths = env.get("PATH", os.defpath).split(os.pathsep)
        if own not in paths:
            env["PATH"] = os.pathsep.join([own, *paths])
    if "-m" in command.entry.words:
        env.setdefault("PYTHONSAFEPATH", "1")
    return env


def _agree(flag: str, words: Sequence[str], given: int | None) -> int:
    stated = option_value(words, flag)
    if stated is None:
        return DEFAULT_PORT if given is None else given
    if not stated.isdecimal():
        raise InvalidInput(f"{flag} {stated} is no port", hint="write a number from 1 to 65535")
    if given is not None and given != int(stated):
        raise InvalidInput(f"the plan pins port {stated}, here it is {given}", where=flag, hint="leave one of them out")
    return int(stated)
