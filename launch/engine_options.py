"""The options an engine's own parser takes: asked of the engine in a child process, kept per engine.

Importing vLLM to ask takes some ten seconds, so the answer is kept in the user's cache directory until the engine at
that path changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from launch.engine_entry import EngineEntry
from launch.engine_probe import quiet_environment
from launch.user_dirs import cache_dir, write_whole

_FORMAT = 1  # of the kept file
_TIMEOUT_S = 300.0
_WATCHED = ("engine/arg_utils.py", "version.py", "_version.py", "entrypoints/openai/cli_args.py")

# Both names have moved: cli_args in 0.29, the parser class in 0.11.1.
_SCRIPT = """
import importlib, json, sys
def first(name, *modules):
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if not module.startswith(str(error.name)):
                raise
        except AttributeError:
            pass
    raise SystemExit(f"{name} is in none of {modules}")
parser = first("FlexibleArgumentParser", "vllm.utils.argparse_utils", "vllm.utils")()
first("make_arg_parser", "vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")(parser)
rows = []
for action in parser._actions:
    choices = action.choices
    rows.append({
        "names": [name.replace("_", "-") if name.startswith("--") else name for name in action.option_strings],
        "nargs": action.nargs if action.nargs is None else str(action.nargs),
        "choices": None if choices is None else [str(choice) for choice in choices],
        "kind": getattr(action.type, "__name__", "") or "",
    })
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(rows, file)
"""


class Option(msgspec.Struct, frozen=True):
    """One option: its spellings with dashes, argparse's nargs as text, its choices, the name of its converter."""

    names: tuple[str, ...]
    nargs: str | None = None
    choices: tuple[str, ...] | None = None
    kind: str = ""

    @property
    def takes_no_value(self) -> bool:
        """Whether it is a switch."""
        return self.nargs == "0"


class Options(msgspec.Struct, frozen=True):
    """Every option of one engine."""

    options: tuple[Option, ...]

    def by_name(self) -> dict[str, Option]:
        """Each spelling to its option."""
        return {name: option for option in self.options for name in option.names}


class OptionsUnreadable(Exception):
    """The engine could not be asked; the text is its last word, which a start would end with too."""


def read_options(entry: EngineEntry, env: Mapping[str, str]) -> Options:
    """The options of an engine, from the kept answer where the engine is still the same.

    Raises OptionsUnreadable where its parser cannot be built, or where it is not known which python runs it.
    """
    if entry.python is None or not entry.location:
        raise OptionsUnreadable("it is not known which python runs it")
    kept = cache_dir(env) / "engines" / f"{_key(entry)}.json"
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(kept.read_bytes(), type=Options)
    options = Options(_ask(entry.python, env))
    with contextlib.suppress(OSError):  # a cache that cannot be written only costs time
        write_whole(kept, msgspec.json.encode(options))
    return options


def _key(entry: EngineEntry) -> str:
    """Changes with the path, the version and the files that say what the parser takes."""
    times = []
    for name in _WATCHED:
        with contextlib.suppress(OSError):
            times.append(f"{name}={(Path(entry.location) / name).stat().st_mtime_ns}")
    identity = "\n".join([str(_FORMAT), entry.python or "", entry.location, entry.version_text, *times])
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


def _ask(python: str, env: Mapping[str, str]) -> tuple[Option, ...]:
    with tempfile.TemporaryDirectory(prefix="kvadvise-") as folder:
        answer = Path(folder) / "options.json"
        try:
            done = subprocess.run(
                [python, "-c", _SCRIPT, str(answer)],
                cwd="/",
                env=quiet_environment(env),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except OSError as error:
            raise OptionsUnreadable(f"{python} cannot be run: {error.strerror or error}") from None
        except subprocess.TimeoutExpired:
            raise OptionsUnreadable(f"it did not answer in {_TIMEOUT_S:.0f} s") from None
        if done.returncode or not answer.exists():
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise OptionsUnreadable(last or f"exit code {done.returncode}")
        return msgspec.json.decode(answer.read_bytes(), type=tuple[Option, ...])
