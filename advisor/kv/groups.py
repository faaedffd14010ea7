"""vLLM's KV cache groups: which layers share a block table, with which block size and page.

Source: vLLM v1/core/kv_cache_utils.py (get_kv_cache_groups, unify_kv_cache_spec_page_size,
_get_kv_cache_groups_uniform_page_size, unify_hybrid_kv_cache_specs), by the version boundaries of
layout-by-version: the group size rule at 0.12 and 0.18, page padding at 0.24 and 0.26, merging at 0.27.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from advisor.errors import EngineRefuses
from advisor.kv.specs import LayerSpec, Lengths, ceil_div
from advisor.versions import Version

Named = tuple[int, LayerSpec]  # (position in the order of layers, spec)


class LayerGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Layers of one block table. `uniform` groups keep a spec for each layer (same kind, different pages)."""

    members: tuple[Named, ...]
    uniform: bool = False

    @property
    def spec(self) -> LayerSpec:
        """The spec that stands for the group: its first layer's."""
        return self.members[0][1]

    def blocks(self, request: Lengths) -> int:
        """The most blocks one request of this length holds in this group."""
        if self.uniform:
            return max(spec.blocks(request) for _, spec in self.members)
        return self.spec.blocks(request)


def make_groups(
    specs: Sequence[LayerSpec], version: Version, *, hybrid_disabled: bool, packed: bool = False
) -> list[LayerGroup]:
    """Form the groups of a whole model (all pipeline stages together)."""
    named = list(enumerate(specs))
    if hybrid_disabled:
        named = promote_local(named, required=True)
    if _mergeable([spec for _, spec in named]):
        return [LayerGroup(members=tuple(named))]
    if _same_type([spec for _, spec in named]):
        return [LayerGroup(members=tuple(named), uniform=True)]
    if packed:
        return pack_groups(named)
    unified = unify_pages(named, version)
    return _uniform_page_groups(unified, version)


def pack_groups(named: list[Named]) -> list[LayerGroup]:
    """Groups whose pages of several sizes lie side by side in one block (_get_packed_kv_cache_groups).

    Layers of one kind share a bucket. A bucket with equally many layers of each page size is a repeating pattern and
    may be split; the number of repeats a group is the one that pads least, and never less than the largest mixed
    pattern.
    """
    buckets: list[list[Named]] = []
    for member in named:
        for bucket in buckets:
            if _same_type([bucket[0][1], member[1]]):
                bucket.append(member)
                break
        else:
            buckets.append([member])
    by_page = [_by_page(bucket) for bucket in buckets]
    balanced = [len({len(members) for members in pages.values()}) == 1 for pages in by_page]
    most = [max(len(members) for members in pages.values()) for pages in by_page]
    mixed = [m for m, pages, even in zip(most, by_page, balanced, strict=True) if even and len(pages) > 1]
    repeats = _least_padding([m for m, even in zip(most, balanced, strict=True) if even], max(mixed)) if mixed else None
    groups = []
    for bucket, pages, even, count in zip(buckets, by_page, balanced, most, strict=True):
        parts = ceil_div(count, repeats) if even and repeats else 1
        if parts == 1:
            groups.append(LayerGroup(members=tuple(bucket), uniform=True))
            continue
        patterns = list(zip(*pages.values(), strict=True))
        for i in range(parts):
            members = tuple(member for pattern in patterns[i::parts] for member in pattern)
            groups.append(LayerGroup(members=members, uniform=True))
    return groups


def _by_page(bucket: list[Named]) -> dict[int, list[Named]]:
    pages: dict[int, list[Named]] = {}
    for member in bucket:
        pages.setdefault(member[1].page_size_bytes, []).append(member)
    return pages


def _least_padding(counts: list[int], least: int) -> int:
    """The size from `least` up that pads the counts least when each is rounded up to it; the larger of equals."""
    return max(range(least, max(*counts, least) + 1), key=lambda d: (-sum(-n % d for n in counts), d))


def _mergeable(specs: Sequence[LayerSpec]) -> bool:
    """Whether vLLM's merge() takes them all: equal but for the window of layers already promoted to full."""
    first = msgspec.structs.replace(specs[0], span_tokens=None) if _full(specs[0]) else specs[0]
    spans = set()
    for spec in specs:
        if _full(spec):
            if spec.span_tokens is not None:
                spans.add(spec.span_tokens)
            spec = msgspec.structs.replace(spec, span_tokens=None)  # noqa: PLW2901
        if spec != first:
            return False
    return len(spans) <= 1


def _full(spec: LayerSpec) -> bool:
    return spec.kind == "FullAttentionSpec"


def _same_type(specs: Sequence[LayerSpec]) -> bool:
    """UniformTypeKVCacheSpecs.is_uniform_type: one block size and one kind that always needs the same blocks."""
    if len({spec.block_size for spec in specs}) > 1:
        return False
    kinds = {"FullAttentionSpec" if s.kind == "MLAAttentionSpec" else s.kind for s in specs}
    if len(kinds) > 1:
        return False
    kind = kinds.pop()
    if kind in ("SlidingWindowSpec", "SlidingWindowMLASpec", "ChunkedLocalAttentionSpec"):
        return len({spec.span_tokens for spec in specs}) == 1
    if kind == "MambaSpec":
        return len({(s.page_size_bytes, s.state_blocks) for s in specs}) == 1
    return True


def promote_local(named: list[Named], *, required: bool) -> list[Named]:
    """Treat sliding and chunked layers as full ones (hybrid manager disabled); refuse where that leaves two kinds."""
    specs = [spec for _, spec in named]
    if _mergeable(specs) or _same_type(specs):
        return named
    has_full = any(spec.kind in ("FullAttentionSpec", "MLAAttentionSpec") for spec in specs)
    local = any(spec.kind in ("SlidingWindowSpec", "ChunkedLocalAttentionSpec") for spec in specs)
    full_blocks = {spec.block_size for spec in specs if _full(spec)}
    promoted = named
    if has_full and local:
        promoted = [(i, _promoted(spec, full_blocks)) for i, spec in named]
    result = [spec for _, spec in promoted]
    if required and not (_mergeable(result) or _same_type(result)):
        raise EngineRefuses(
            "hybrid-manager-required",
            "this model mixes kinds of cache that cannot be laid out with disable_hybrid_kv_cache_manager",
            hint="leave disable_hybrid_kv_cache_manager off",
            source="vLLM v1/core/kv_cache_utils.py: unify_hybrid_kv_cache_specs",
        )
    return promoted


def _promoted(spec: LayerSpec, full_blocks: set[int]) -> LayerSpec:
    if spec.kind not in ("SlidingWindowSpec", "ChunkedLocalAttentionSpec"):
        return spec
    block = next(iter(full_blocks)) if len(full_blocks) == 1 else spec.block_size
    return msgspec.structs.replace(spec, kind="FullAttentionSpec", block_size=block)


def unify_pages(named: list[Named], version: Version) -> list[Named]:
    """Make every layer's page equal: more tokens a block where that divides, padding where it does not."""
    pages = {spec.page_size_bytes for _, spec in named}
    if len(pages) <= 1:
        return named
    if version < (0, 12):
        raise EngineRefuses(
            "pages-differ",
            f"vLLM {version} cannot lay out layers with different page sizes",
            hint="use vLLM 0.12 or newer",
            source="vLLM 0.11 v1/core/kv_cache_utils.py: get_kv_cache_groups",
        )
    largest = max(pages)
    return [(i, _to_page(spec, largest, version)) for i, spec in named]


def _to_page(spec: LayerSpec, page: int, version: Version) -> LayerSpec:
    if spec.page_size_bytes == page:
        return spec
    if spec.kind == "MambaSpec":
        if version >= (0, 26):
            return spec.padded(page)
    elif page % spec.page_size_bytes == 0:
        return spec.with_block_size(spec.block_size * (page // spec.page_size_bytes))
    elif spec.kind != "MLAAttentionSpec" and version >= (0, 24):
        return spec.padded(page)
    raise EngineRefuses(
        "pages-differ",
        f"a page of {spec.page_size_bytes} bytes cannot be brought to {page} bytes",
        hint="another tensor_parallel_size or kv_cache_dtype may make the pages divide",
        source="vLLM v1/core/kv_cache_utils.py: unify_kv_cache_spec_page_size",
    )


def _uniform_page_groups(named: list[Named], version: Version) -> list[LayerGroup]:
    by_spec: dict[LayerSpec, list[Named]] = {}
    for member in named:
        by_spec.setdefault(member[1], []).append(member)
    buckets: list[list[Named]] = []
    distinct: list[list[LayerSpec]] = []
    for spec, members in by_spec.items():
        for bucket, specs in zip(buckets, distinct, strict=True):
            if version >= (0, 27) and _mergeable([*specs, spec]):
                bucket.extend(members)
                specs.append(spec)
                break
        else:
            buckets.append(list(members))
            distinct.append([spec])
    if version < (0, 11):  # 0.10.2 lists full attention first
        buckets.sort(key=lambda bucket: bucket[0][1].kind not in ("FullAttentionSpec", "MLAAttentionSpec"))
    size = group_size([len(bucket) for bucket in buckets], version)
    groups = []
    for bucket in buckets:
        count = ceil_div(len(bucket), size)
        for i in range(count):
            # up to 0.10 consecutive layers shared a group; since then they are dealt out in turn
            members = bucket[i * size : (i + 1) * size] if version < (0, 11) else bucket[i::count]
            groups.append(LayerGroup(members=tuple(members)))
    return groups


def group_size(counts: Sequence[int], version: Version) -> int:
    """Layers a group: the smallest kind's count, or the largest kind's where padding wastes little."""
    least, most = min(counts), max(counts)
    if version >= (0, 18):
        return most if most < least * 1.5 else least
    if version >= (0, 12):
        return most if most < least * 1.25 else least
    return least
