"""Which architectures lack pipeline stages or LoRA in each vLLM release, read from its source without importing it.

  python -m tools.interface_tables SOURCES > advisor/model/interfaces.py

SOURCES as in version_tables.py. A class has an interface when its mark (`SupportsPP`, `SupportsLoRA`) is among its
bases, however far up and through whatever module it was imported; for 0.32 and stages the result equals what vLLM's
own registry answers.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from tools.version_tables import releases

_DICTIONARIES = {"_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS"}
_MARKS = {"SupportsPP": "NO_STAGES", "SupportsLoRA": "NO_LORA"}
Module = tuple[dict[str, ast.ClassDef], dict[str, tuple[str, str]]]  # classes, and (module, name) of what is imported
Span = tuple[tuple[int, ...], tuple[int, ...] | None]


def registered(package: Path) -> dict[str, tuple[str, str]]:
    """(module, class) of every architecture that generates."""
    tree = ast.parse((package / "model_executor/models/registry.py").read_text(encoding="utf-8"))
    found = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Dict):
            continue
        target = node.targets[0]
        if not isinstance(target, ast.Name) or target.id not in _DICTIONARIES:
            continue
        for key, value in zip(node.value.keys, node.value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple):
                module, name = (str(part.value) for part in value.elts if isinstance(part, ast.Constant))
                full = module if module.startswith("vllm.") else f"vllm.model_executor.models.{module}"
                found[str(key.value)] = (full, name)
    return found


class Sources:
    """The modules of one release, each read once."""

    def __init__(self, package: Path) -> None:
        self._root = package.parent
        self._modules: dict[str, Module] = {}

    def has(self, mark: str, module: str, name: str, seen: tuple[tuple[str, str], ...] = ()) -> bool:
        """Whether the class has the mark among its bases."""
        if name == mark:
            return True
        if (module, name) in seen:
            return False
        seen = (*seen, (module, name))
        classes, imports = self._read(module)
        if name in classes:
            names = [_base_name(base) for base in classes[name].bases]
            return any(base and self.has(mark, module, base, seen) for base in names)
        return name in imports and self.has(mark, *imports[name], seen)

    def _read(self, module: str) -> Module:
        if module not in self._modules:
            self._modules[module] = self._parse(module)
        return self._modules[module]

    def _parse(self, module: str) -> Module:
        path = self._root.joinpath(*module.split("."))
        file = next((f for f in (path.with_suffix(".py"), path / "__init__.py") if f.exists()), None)
        classes: dict[str, ast.ClassDef] = {}
        imports: dict[str, tuple[str, str]] = {}
        if file is None:
            return classes, imports
        package = module if file.name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, node)
            elif isinstance(node, ast.ImportFrom):
                source = _absolute(package, node.level, node.module)
                imports |= {alias.asname or alias.name: (source, alias.name) for alias in node.names}
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
                target = node.targets[0]
                if isinstance(target, ast.Name):
                    imports.setdefault(target.id, (module, node.value.id))
        return classes, imports


def _base_name(base: ast.expr) -> str:
    base = base.value if isinstance(base, ast.Subscript) else base
    if isinstance(base, ast.Attribute):
        return base.attr if base.attr in _MARKS else ""
    return base.id if isinstance(base, ast.Name) else ""


def _absolute(package: str, level: int, module: str | None) -> str:
    parts = package.split(".")[: len(package.split(".")) - (level - 1)] if level else []
    return ".".join([*parts, *([module] if module else [])])


def lacking(root: Path, mark: str) -> dict[str, list[Span]]:
    """For each architecture the spans of releases that lack the interface, [first, first that has it again)."""
    spans: dict[str, list[Span]] = {}
    for version, package in releases(root):
        sources = Sources(package)
        for name, (module, cls) in registered(package).items():
            known = spans.setdefault(name, [])
            is_open = bool(known) and known[-1][1] is None
            has = sources.has(mark, module, cls)
            if not has and not is_open:
                known.append((version, None))
            elif has and is_open:
                known[-1] = (known[-1][0], version)
    return {name: found for name, found in spans.items() if found}


def main(root: str) -> None:
    """Write the tables to standard output."""
    versions = [version for version, _ in releases(Path(root))]
    first, last = (".".join(map(str, v)) for v in (versions[0], versions[-1]))
    write = sys.stdout.write
    title = f"Architectures without pipeline stages or LoRA, read from the source of {len(versions)} vLLM releases."
    write(f'"""{title}\n\n{first} to {last}. Made by tools/interface_tables.py.\n"""\n\n')
    write("from __future__ import annotations\n\n")
    write("Spans = tuple[tuple[tuple[int, int, int], tuple[int, int, int] | None], ...]\n")
    write("# name: spans of releases, (first that lacks it, first that has it again or None)\n")
    for mark, table in _MARKS.items():
        write(f"{table}: dict[str, Spans] = {{\n")
        for name, found in sorted(lacking(Path(root), mark).items()):
            write(f'    "{name}": {tuple(found)!r},\n')
        write("}\n")


if __name__ == "__main__":
    main(sys.argv[1])
