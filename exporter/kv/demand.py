"""Blocks one request holds at a context length.

Every kind of layer group obeys one rule: a request whose context is n tokens holds
`min(ceil(n / block_size), cap)` blocks of the group. Full attention and MLA have no cap; a sliding
window or a local chunk stops growing; a state-space layer holds a constant.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupDemand:
    """`groups` equal KV cache groups: tokens per block, and the most blocks a request ever holds in one."""

    block_size: int
    cap: int | None = None
    groups: int = 1

    def blocks(self, context: int) -> int:
        """Blocks held in all `groups` by one request of `context` tokens."""
        grown = -(-context // self.block_size)
        return self.groups * (grown if self.cap is None else min(grown, self.cap))


@dataclass(frozen=True, slots=True)
class RequestDemand:
    """Blocks one request holds, summed over the groups of the pool it shares."""

    groups: tuple[GroupDemand, ...]

    def blocks(self, context: int) -> int:
        """Blocks held by one request whose context is `context` tokens."""
        return sum(group.blocks(context) for group in self.groups)
