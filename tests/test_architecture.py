"""The house's import arrows, read from the source: kvadvise -> launch, verify -> advisor; advisor is pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("advisor", "kvadvise", "launch", "verify", "profiles")

# Whom each room may import, besides itself, the standard library and third parties.
ARROWS = {
    "advisor": set[str](),
    "launch": {"advisor", "profiles"},
    "verify": {"advisor", "profiles"},
    "kvadvise": {"advisor", "launch", "verify", "profiles"},
    "profiles": set[str](),
}

# What the pure part may import: nothing that knows the time, the machine, the network or a file.
PURE = {
    *("__future__", "abc", "bisect", "collections", "copy", "dataclasses", "difflib", "enum", "fnmatch", "fractions"),
    *("functools", "hashlib", "heapq", "itertools", "json", "math", "operator", "re", "statistics", "string"),
    *("textwrap", "types", "typing", "unicodedata"),
    *("advisor", "msgspec"),
}
# Third parties that turn text into values and do nothing else, and where.
READERS = {
    "advisor/yaml_nodes.py": {"yaml"},
    "advisor/yaml_syntax.py": {"yaml"},
    "advisor/server_metrics.py": {"prometheus_client"},
}
IMPURE_CALLS = {"open", "input", "print", "exec", "eval", "compile", "__import__", "breakpoint"}
ENGINE_ONLY = {"vllm", "torch", "transformers"}


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, int, bool]]:
    """Top-level name, line, and whether it is imported for type checking only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and isinstance(branch.test, ast.Name) and branch.test.id == "TYPE_CHECKING"
        for statement in branch.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            names = [node.module or ""]
        else:
            continue
        for name in names:
            yield name.split(".")[0], node.lineno, id(node) in typing_only


def all_modules() -> list[tuple[str, Path]]:
    return [(room, path) for room in ROOMS for path in modules(room)]


def ids(value: object) -> str | None:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else None


@pytest.mark.parametrize(("room", "path"), all_modules(), ids=ids)
def test_imports_follow_the_arrows(room: str, path: Path) -> None:
    wrong = [
        f"line {line}: {name}"
        for name, line, _ in imports(path)
        if name in ROOMS and name != room and name not in ARROWS[room]
    ]
    assert not wrong


@pytest.mark.parametrize(("room", "path"), all_modules(), ids=ids)
def test_the_engine_is_never_imported(room: str, path: Path) -> None:
    assert not [f"line {line}: {name}" for name, line, _ in imports(path) if name in ENGINE_ONLY]


@pytest.mark.parametrize("path", modules("advisor"), ids=ids)
def test_the_advisor_is_pure(path: Path) -> None:
    allowed = PURE | READERS.get(str(path.relative_to(ROOT)), set())
    assert not [f"line {line}: {name}" for name, line, _ in imports(path) if name not in allowed]
    calls = [
        f"line {node.lineno}: {node.func.id}()"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS
    ]
    assert not calls


@pytest.mark.parametrize("path", [p for room in ROOMS for p in modules(room)], ids=ids)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_profiles_hold_data_only() -> None:
    code = [path for path in modules("profiles") if path.name != "__init__.py"]
    assert not code


def test_every_package_is_typed() -> None:
    assert all((ROOT / room / "py.typed").exists() for room in ROOMS)
