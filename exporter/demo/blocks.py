"""The pool of KV blocks of the embedded engine: who holds which block, and which free one is reused next.

The rules are vLLM V1's: block 0 is never handed out; a free block keeps what it cached until it is reused;
free blocks without cached content are reused first, the others least recently used first.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

BlockKey = tuple[object, int]
"""What a full block holds: a stream of tokens and the index of the block within it."""


class BlockPool:
    """`num_blocks` blocks, the null block included, so that `num_blocks - 1` can be used."""

    def __init__(self, num_blocks: int) -> None:
        self.usable = num_blocks - 1
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, num_blocks))
        self._holders = [0] * num_blocks
        self._key: list[BlockKey | None] = [None] * num_blocks
        self._cached: dict[BlockKey, list[int]] = {}

    @property
    def free(self) -> int:
        """Blocks that no live request holds; cached content does not count as used."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Blocks held by live requests, a shared block counted once."""
        return self.usable - len(self._free)

    @property
    def usage(self) -> float:
        """The ratio 0..1 that the page shows, computed as vLLM computes it."""
        return 1.0 - len(self._free) / self.usable if self.usable else 0.0

    def take(self, count: int) -> list[int]:
        """Hand out `count` free blocks and forget what they cached; the caller has checked `free`."""
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self._forget(block)
            self._holders[block] = 1
        return taken

    def hits(self, keys: Iterable[BlockKey]) -> list[int]:
        """Cached blocks for the longest run of `keys` from the start."""
        found: list[int] = []
        for key in keys:
            blocks = self._cached.get(key)
            if blocks is None:
                break
            found.append(blocks[0])
        return found

    def unheld(self, blocks: Iterable[int]) -> int:
        """How many of `blocks` would leave the free ones if they were shared."""
        return sum(self._holders[block] == 0 for block in blocks)

    def share(self, blocks: Iterable[int]) -> None:
        """Hold cached blocks once more."""
        for block in blocks:
            if self._holders[block] == 0:
                del self._free[block]
            self._holders[block] += 1

    def remember(self, block: int, key: BlockKey) -> None:
        """Note what a block that has become full holds."""
        self._key[block] = key
        self._cached.setdefault(key, []).append(block)

    def release(self, blocks: Sequence[int]) -> None:
        """Let go of a request's blocks, given in the order of its tokens; its last ones are reused first."""
        first: list[int] = []
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            if self._key[block] is None:
                first.append(block)
            else:
                self._free[block] = None
        for block in reversed(first):
            self._free[block] = None
            self._free.move_to_end(block, last=False)

    def _forget(self, block: int) -> None:
        key = self._key[block]
        if key is None:
            return
        self._key[block] = None
        blocks = self._cached[key]
        blocks.remove(block)
        if not blocks:
            del self._cached[key]
