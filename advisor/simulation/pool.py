"""vLLM's block pool: which block is handed out next, and which cached one is lost for it.

Source: vLLM 0.32 v1/core/block_pool.py (BlockPool, BlockHashToBlockMap) and kv_cache_utils.py
(FreeKVCacheBlockQueue). A block is an int, 0 is the null block. The free queue is held in two halves: a stack of blocks
without content at its front, and the cached ones behind it in the order they were freed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """Free, used and cached blocks. A key names a block's content in one group; several blocks may hold the same.

    `reuse_empty_first` is vLLM 0.28 and newer: a freed block without cached content goes to the front of the queue.
    """

    __slots__ = ("cached", "caching", "key", "lru", "ref", "reuse_empty_first", "stack", "total")

    def __init__(self, num_blocks: int, *, caching: bool, reuse_empty_first: bool) -> None:
        self.total = num_blocks - 1  # without the null block
        self.caching = caching
        self.reuse_empty_first = reuse_empty_first or not caching  # without a cache the order changes nothing
        self.stack = list(range(num_blocks - 1, 0, -1))
        self.lru: OrderedDict[int, None] = OrderedDict()
        self.ref = [0] * num_blocks
        self.key = [0] * num_blocks
        self.cached: dict[int, int | dict[int, None]] = {}

    @property
    def free(self) -> int:
        """Blocks that can be handed out; cached ones that nobody uses among them."""
        return len(self.stack) + len(self.lru)

    def take_one(self) -> int:
        """The first block of the free queue."""
        block = self.stack.pop() if self.stack else self._evict_oldest()
        self.ref[block] = 1
        return block

    def take(self, n: int) -> list[int]:
        """The first n blocks of the free queue, in its order; the caller has checked that there are so many."""
        stack = self.stack
        if n <= 0:
            return []
        if len(stack) >= n:
            taken = stack[-n:]
            del stack[-n:]
            taken.reverse()
        else:
            taken = stack[::-1]
            stack.clear()
            taken += [self._evict_oldest() for _ in range(n - len(taken))]
        ref = self.ref
        for block in taken:
            ref[block] = 1
        return taken

    def _evict_oldest(self) -> int:
        """The block that was freed first, without its content."""
        block, _ = self.lru.popitem(last=False)
        self.forget(block)
        return block

    def forget(self, block: int) -> None:
        """Take a block's content, if it has any, out of the cache."""
        key = self.key[block]
        if key:
            self.key[block] = 0
            holders = self.cached.pop(key)
            if isinstance(holders, dict):
                del holders[block]
                if holders:
                    self.cached[key] = holders

    def find(self, key: int) -> int:
        """A block that holds this content (the one that has held it longest), or 0."""
        holders = self.cached.get(key, 0)
        return holders if isinstance(holders, int) else next(iter(holders))

    def remember(self, keys: Iterable[int], blocks: Iterable[int]) -> None:
        """Let each block be found by its key; null blocks are passed over."""
        cached, own = self.cached, self.key
        for key, block in zip(keys, blocks, strict=True):
            if not block or own[block] == key:
                continue
            own[block] = key
            holders = cached.get(key)
            if holders is None:
                cached[key] = block
            elif isinstance(holders, dict):
                holders[block] = None
            else:
                cached[key] = {holders: None, block: None}

    def remember_one(self, key: int, block: int) -> None:
        """The same for one block that has no content yet."""
        holders = self.cached.get(key)
        if holders is None and not self.key[block]:
            self.key[block] = key
            self.cached[key] = block
        else:
            self.remember((key,), (block,))

    def evictable(self, blocks: Iterable[int]) -> int:
        """How many of these are in the free queue: using them takes as many free blocks."""
        ref = self.ref
        return sum(1 for block in blocks if block and not ref[block])

    def touch(self, blocks: Iterable[int]) -> None:
        """One more request uses these cached blocks."""
        ref, lru = self.ref, self.lru
        for block in blocks:
            if block:
                if not ref[block]:
                    del lru[block]
                ref[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """One request less uses these blocks; the first of them is to be reused first."""
        ref, key, lru = self.ref, self.key, self.lru
        empty: list[int] = []
        for block in blocks:
            if block:
                ref[block] -= 1
                if not ref[block]:
                    if key[block] or not self.reuse_empty_first:
                        lru[block] = None
                    else:
                        empty.append(block)
        empty.reverse()
        self.stack += empty
