"""Tables of what each vLLM release has, read from its source without importing it.

  python tools/version_tables.py SOURCES architectures > advisor/model/since.py
  python tools/version_tables.py SOURCES arguments > advisor/argument_table.py

SOURCES holds one directory a release, named by its version, each with a `vllm` package (a wheel unpacked).
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

_ARGUMENT_CLASSES = {"EngineArgs", "AsyncEngineArgs", "FrontendArgs", "BaseFrontendArgs"}
_CLI_FILES = ("entrypoints/openai/cli_args.py", "entrypoints/launchers/cli_args.py")
Found = dict[str, list[tuple[int, ...]]]


def releases(root: Path) -> list[tuple[tuple[int, ...], Path]]:
    """(version, package directory) of every release, oldest first."""
    return sorted(
        (tuple(map(int, path.name.split("."))), path / "vllm")
        for path in root.iterdir()
        if re.fullmatch(r"\d+\.\d+\.\d+", path.name) and (path / "vllm").is_dir()
    )


def architectures(package: Path) -> set[str]:
    """Names in the registry's dictionaries of models."""
    tree = ast.parse((package / "model_executor/models/registry.py").read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        named = isinstance(target, ast.Name) and target.id.endswith("_MODELS") and "PREVIOUSLY" not in target.id
        if named and isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            names |= {k.value for k in node.value.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)}
    return names


def arguments(package: Path) -> set[str]:
    """Fields of the argument classes, and the flags that older front ends add by hand."""
    names: set[str] = set()
    for path in (package / "engine/arg_utils.py", *(package / name for name in _CLI_FILES)):
        if not path.exists():
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name in _ARGUMENT_CLASSES:
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        names.add(field.target.id)
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                for argument in node.args:
                    if isinstance(argument, ast.Constant) and str(argument.value).startswith("--"):
                        names.add(str(argument.value)[2:].replace("-", "_"))
    return {name for name in names if not name.startswith("_")}


def collect(root: Path, read: str) -> tuple[Found, list[tuple[int, ...]]]:
    """For each name the releases that have it."""
    found: Found = {}
    versions = []
    for version, package in releases(root):
        versions.append(version)
        for name in architectures(package) if read == "architectures" else arguments(package):
            found.setdefault(name, []).append(version)
    return found, versions


def main(root: str, read: str) -> None:
    """Write one table to standard output."""
    found, versions = collect(Path(root), read)
    span = f"{'.'.join(map(str, versions[0]))} to {'.'.join(map(str, versions[-1]))}"
    rows = []
    for name, has in sorted(found.items()):
        first = None if has[0] == versions[0] else has[0]
        gone = next((v for v in versions if v > has[-1]), None)
        rows.append((name, first, gone))
    write = sys.stdout.write
    write(f'"""First and last releases of vLLM\'s {read}, read from the source of {len(versions)} releases.\n\n')
    write(f"{span}; a boundary lies at the named release or between it and the one before that was read.\n")
    write('Made by tools/version_tables.py.\n"""\n\nfrom __future__ import annotations\n\n')
    write(f"READ = {tuple(versions)!r}\n\n")
    write("# name: (first release that has it, None for all that were read; first release without it, None for none)\n")
    title = "ARCHITECTURE_RELEASES" if read == "architectures" else "ARGUMENT_RELEASES"
    write(f"{title}: dict[str, tuple[tuple[int, int, int] | None, tuple[int, int, int] | None]] = {{\n")
    for name, first, gone in rows:
        write(f'    "{name}": ({first!r}, {gone!r}),\n')
    write("}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
