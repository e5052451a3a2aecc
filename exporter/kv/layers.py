"""What one layer of one rank keeps in the KV cache, and how many blocks of it a request may need."""

from dataclasses import dataclass
from typing import Literal

from exporter.kv.options import EngineOptions

Kind = Literal["full", "mla", "sink", "sliding", "sliding_mla", "chunked", "state"]

SPEC_NAMES: dict[str, str] = {
    "full": "FullAttentionSpec",
    "mla": "MLAAttentionSpec",
    "sink": "SinkFullAttentionSpec",
    "sliding": "SlidingWindowSpec",
    "sliding_mla": "SlidingWindowMLASpec",
    "chunked": "ChunkedLocalAttentionSpec",
    "state": "MambaSpec",
}


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer: tokens per block, bytes per block, and the rule that bounds what a request holds.

    `page_bytes` is the block of this layer as it lies in memory, padding included. `shape` tells two layers of equal
    size apart that cannot share a group (heads, head size, dtype, state shapes). `cell_bytes` is what one token costs
    (0 for a state). `checkpoints` counts the blocks a state layer reserves beside its running state.
    """

    name: str
    kind: Kind
    block_size: int
    page_bytes: int
    cell_bytes: int = 0
    window: int | None = None
    chunk: int | None = None
    shape: tuple[object, ...] = ()
    speculative_blocks: int = 0
    checkpoint_blocks: int = 0
    dcp_sharded: bool = True

    @property
    def spec(self) -> tuple[object, ...]:
        """Everything but the name: layers with the same spec share a block table."""
        return (
            self.kind,
            self.block_size,
            self.page_bytes,
            self.window,
            self.chunk,
            self.shape,
            self.speculative_blocks,
            self.checkpoint_blocks,
            self.dcp_sharded,
        )

    def max_blocks(self, options: EngineOptions) -> int:
        """Blocks one request may need at `max_model_len` (vLLM: `max_memory_usage_bytes` over the page size)."""
        length = options.max_model_len
        if self.kind == "state":
            if options.enable_prefix_caching:
                return 2 + self.speculative_blocks + self.checkpoint_blocks
            return 1 + self.speculative_blocks
        if self.window is not None and self.kind in ("sliding", "sliding_mla"):
            held = min(self.window - 1 + extra_retained(options) + options.in_flight_tokens, length)
            return _ceil(held, self.block_size) + 1
        if self.chunk is not None and self.kind == "chunked":
            return _ceil(min(self.chunk + options.in_flight_tokens, length), self.block_size)
        if self.dcp_sharded:
            length = _ceil(length, options.decode_context_parallel_size)
        return _ceil(length, self.block_size)


def extra_retained(options: EngineOptions) -> int:
    """Tokens a sliding window keeps beyond its edge for a draft of several MTP modules that prefills again."""
    if options.speculative_method == "mtp" and options.draft_layers > 1:
        return max(0, options.speculative_tokens - 1)
    return 0


def _ceil(value: int, by: int) -> int:
    return -(-value // by)
