"""Which modules a checkpoint's quantisation leaves alone: vLLM's name matching, restated.

Sources (vLLM 0.32): layers/quantization/utils/quant_utils.py (is_layer_skipped), utils/config_utils.py
(find_matching_patterns), modelopt.py (is_layer_excluded), models/utils.py (WeightsMapper).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

_WILD = re.compile(r"[*?\[]")
Fused = Mapping[str, tuple[str, ...]]
Match = Callable[[str, Sequence[str]], bool]

COMMON_FUSED: Fused = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}


class Renames:
    """A model's mapping from checkpoint names to module names: substrings first, then prefixes, each once."""

    __slots__ = ("prefixes", "substrings")

    def __init__(self, prefixes: Iterable[tuple[str, str]] = (), substrings: Iterable[tuple[str, str]] = ()) -> None:
        self.prefixes = tuple(prefixes)
        self.substrings = tuple(substrings)

    def __call__(self, name: str) -> str:
        """The module name of a checkpoint name."""
        for old, new in self.substrings:
            if old in name:
                name = name.replace(old, new, 1)
        for old, new in self.prefixes:
            if name.startswith(old):
                name = new + name[len(old) :]
        return name


def exact(name: str, ignored: Sequence[str]) -> bool:
    """The whole name is listed."""
    return name in ignored


def substring(name: str, ignored: Sequence[str]) -> bool:
    """A listed string occurs in the name."""
    return any(i in name for i in ignored)


def is_skipped(name: str, ignored: Sequence[str], fused: Fused, match: Match = exact) -> bool:
    """Whether a module is left unquantised; a fused module when its parts are (they must agree in vLLM)."""
    leaf = name.rpartition(".")[2]
    if leaf in fused:
        if match(name, ignored):
            return True
        return any(match(name.replace(leaf, part), ignored) for part in fused[leaf])
    if "experts" in name and match is exact:
        return any("experts" in i and name in i for i in ignored)
    return match(name, ignored)


class Excluded:
    """ModelOpt's exclusions: a module that is listed, that contains an entry, or that a wildcard matches."""

    __slots__ = ("_entries", "_fused", "_parts", "_prefixes", "_wild")

    def __init__(self, entries: Sequence[str], fused: Fused) -> None:
        self._entries = tuple(entries)
        self._fused = fused
        self._parts = tuple(e for e in entries if not _WILD.search(e))
        self._prefixes = tuple(e[:-1] for e in entries if e.endswith("*") and not _WILD.search(e[:-1]))
        self._wild = tuple(e for e in entries if _WILD.search(e[:-1]) or e.endswith(("?", "[")))

    def has(self, name: str) -> bool:
        """Whether a module is left unquantised."""
        return (
            is_skipped(name, self._entries, self._fused)
            or name.startswith(self._prefixes)
            or any(part in name for part in self._parts)
            or any(fnmatchcase(name, pattern) for pattern in self._wild)
        )


def split_wildcards(excluded: Iterable[str]) -> list[str]:
    """`path*` stands for `path` and `path.*` (ModelOptQuantConfigBase.apply_vllm_mapper)."""
    result: list[str] = []
    for name in excluded:
        if len(name) >= 2 and name[-1] == "*" and name[-2] != ".":
            result += [name[:-1], name[:-1] + ".*"]
        else:
            result.append(name)
    return result


def matches_target(value: str, target: str, *, contains: bool = False) -> bool:
    """One compressed-tensors target: `re:` a pattern, else the name itself (or, for classes, a part of it)."""
    if target.startswith("re:"):
        return re.match(target[3:], value) is not None
    if contains:
        return target.lower() in value.lower()
    return target == value


class Ignored:
    """compressed-tensors' ignore list: names, and patterns that start with `re:`."""

    __slots__ = ("_names", "_patterns")

    def __init__(self, entries: Iterable[str]) -> None:
        entries = tuple(entries)
        self._names = frozenset(e for e in entries if not e.startswith("re:"))
        self._patterns = tuple(re.compile(e[3:]) for e in entries if e.startswith("re:"))

    def has(self, name: str, fused: Fused) -> bool:
        """Whether a module is ignored; a fused one when all its parts are."""
        if self._lists(name):
            return True
        leaf = name.rpartition(".")[2]
        return leaf in fused and all(self._lists(name.replace(leaf, part)) for part in fused[leaf])

    def _lists(self, name: str) -> bool:
        return name in self._names or any(p.match(name) for p in self._patterns)


_INDEX = re.compile(r"\.(\d+)(?=\.|$)")


class LayerPatterns:
    """Tells layers apart that a list of names treats differently, without matching every layer.

    Two layers whose patterns are equal once their index is replaced are quantised alike. A pattern that is a regular
    expression with digits may treat any layer in its own way, so then every layer stands alone.
    """

    __slots__ = ("_by_layer", "_unlike")

    def __init__(self, names: Iterable[str]) -> None:
        by_layer: dict[int, set[str]] = {}
        self._unlike = False
        for name in names:
            if name.startswith(("re:", "-:", "+:")) or "[" in name:
                self._unlike = self._unlike or any(c.isdigit() for c in name)
                continue
            found = _INDEX.search(name + ".")
            if found:
                rest = _INDEX.sub(".#", name[found.end() :])
                by_layer.setdefault(int(found[1]), set()).add(name[: found.start()] + ".@" + rest)
            elif any(c.isdigit() for c in name.rpartition("layers")[2]) and "layers" in name:
                self._unlike = True
        self._by_layer = {i: frozenset(n) for i, n in by_layer.items()}

    def signature(self, layer: int) -> object:
        """Equal for layers that are quantised alike."""
        return layer if self._unlike else self._by_layer.get(layer)
