"""`--set key=value`: a workload's text with some keys set anew.

The YAML tree is edited before anything is built from it, so that what was written elsewhere in the file
stays as it was written, and the reader of workload files judges the result like any other file. Comments
are lost on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from advisor.errors import InvalidInput

if TYPE_CHECKING:
    import yaml

    from kvadvise.workload_text import WorkloadText

# What `model: NAME` and `gpu: NAME` are short for.
_SHORT_FOR = {"model": "id", "gpu": "name"}
# Where a workload may name a file or a directory, which is relative to the workload file.
_PATHS = (("model",), ("model", "id"), ("model", "path"), ("workload", "trace"), ("workload", "trace", "file"))
_MAP_TAG = "tag:yaml.org,2002:map"


def apply_settings(data: bytes, settings: Sequence[str], label: str) -> bytes:
    """The text with every `key=value` carried out, in order; an empty value takes the key out.

    Keys are dotted (`workload.concurrency`), values are YAML. Text that is no YAML mapping is given back as
    it is: the reader says what is wrong with it. Raises InvalidInput for a setting that cannot be carried
    out.
    """
    root = _compose(data)
    if root is None:
        return data
    for setting in settings:
        key, equals, value = setting.partition("=")
        path = key.strip().split(".")
        if not equals or not all(path):
            raise InvalidInput(
                f"{setting!r} is no setting",
                where=f"{label}: --set",
                hint="write key=value: workload.concurrency=32",
            )
        _assign(root, path, _value(value, key, label), label)
    return _serialize(root)


def edited(text: WorkloadText, settings: Sequence[str], *, keep: bool) -> WorkloadText:
    """The text with settings carried out and, to `keep` it elsewhere, in block style with absolute paths.

    Where nothing has to change, not a byte does. Raises like `apply_settings`.
    """
    data = apply_settings(text.question, settings, text.label) if settings else text.question
    if keep:
        data = _made_portable(data, text.base_dir)
    return msgspec.structs.replace(text, data=data)


def _made_portable(data: bytes, base_dir: Path) -> bytes:
    root = _compose(data)
    if root is None:
        return data
    changed = bool(root.flow_style)
    for path in _PATHS:
        named = _scalar(root, path)
        if named is not None and not Path(named.value).is_absolute() and (base_dir / named.value).exists():
            named.value = str((base_dir / named.value).resolve())
            changed = True
    return _serialize(root) if changed else data


def _scalar(root: yaml.MappingNode, path: Sequence[str]) -> yaml.ScalarNode | None:
    """The single value under a path of keys, None where there is none."""
    import yaml

    node: yaml.Node | None = root
    for name in path:
        if not isinstance(node, yaml.MappingNode):
            return None
        node = _child(node, name)
    return node if isinstance(node, yaml.ScalarNode) and node.value else None


def _compose(data: bytes) -> yaml.MappingNode | None:
    import yaml

    try:
        root = yaml.compose(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    return root if isinstance(root, yaml.MappingNode) else None


def _serialize(root: yaml.MappingNode) -> bytes:
    import yaml

    root.flow_style = False
    text = yaml.serialize(root, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), allow_unicode=True, width=110)
    return text.encode() if isinstance(text, str) else bytes(text)


def _value(text: str, key: str, label: str) -> yaml.Node | None:
    import yaml

    if not text.strip():
        return None
    try:
        return yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise InvalidInput(f"{text!r} is no YAML value", where=f"{label}: --set {key}") from error


def _assign(root: yaml.MappingNode, path: list[str], value: yaml.Node | None, label: str) -> None:
    import yaml

    node = root
    for depth, name in enumerate(path[:-1]):
        child = _child(node, name)
        if child is None and value is None:
            return
        if child is None:
            inner = yaml.MappingNode(_MAP_TAG, [], flow_style=False)
        elif isinstance(child, yaml.MappingNode):  # a copy: an alias elsewhere keeps what it stood for
            inner = yaml.MappingNode(child.tag, list(child.value), flow_style=child.flow_style)
        elif isinstance(child, yaml.ScalarNode) and depth == 0 and name in _SHORT_FOR:
            inner = yaml.MappingNode(_MAP_TAG, [(_key(_SHORT_FOR[name]), child)], flow_style=False)
        else:
            raise InvalidInput(
                f"{name} is a single value, nothing in it can be set",
                where=f"{label}: --set {'.'.join(path)}",
            )
        _replace(node, name, inner)
        node = inner
    _replace(node, path[-1], value)


def _replace(node: yaml.MappingNode, name: str, value: yaml.Node | None) -> None:
    """Put `value` under `name`, where it stood or at the end; None takes the key out."""
    import yaml

    kept: list[tuple[Any, Any]] = []
    placed = value is None
    for key, old in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value == name:
            if not placed:
                kept.append((key, value))
                placed = True
        else:
            kept.append((key, old))
    if not placed:
        kept.append((_key(name), value))
    node.value = kept


def _child(node: yaml.MappingNode, name: str) -> yaml.Node | None:
    for key, value in node.value:
        if key.value == name:
            child: yaml.Node = value
            return child
    return None


def _key(name: str) -> yaml.ScalarNode:
    import yaml

    return yaml.ScalarNode("tag:yaml.org,2002:str", name)
