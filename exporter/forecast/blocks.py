"""What a request holds of the pool, as a line: blocks per token and blocks whatever its length.

Full attention and MLA grow without a bound: `groups / block_size` blocks a token, and half a block of each
for rounding up. A sliding window, a local chunk or a state-space layer stops growing: such a group counts
with what it holds at the typical context, as a constant. That is exact for models with one kind of layer,
and on the safe side while a hybrid's windows still fill.
"""

from dataclasses import dataclass

from exporter.forecast.assessment import PoolView


@dataclass(frozen=True, slots=True)
class BlockLine:
    """`blocks(n) ≈ per_token · n + per_request`, in a pool of `usable` blocks."""

    usable: float
    per_token: float
    per_request: float

    @property
    def tokens(self) -> float:
        """Tokens the pool holds if only their number counted; blocks where nothing grows."""
        return self.usable / self.per_token if self.per_token > 0 else self.usable


def block_line(pool: PoolView, context: float) -> BlockLine:
    """The line for requests that typically reach `context` tokens."""
    per_token, per_request = 0.0, 0.0
    for group in pool.demand.groups:
        if group.cap is None:
            per_token += group.groups / group.block_size
            per_request += 0.5 * group.groups
        else:
            per_request += group.blocks(max(1, round(context)))
    return BlockLine(float(pool.usable_blocks), per_token, per_request)
