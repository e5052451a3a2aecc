"""Groups and bytes → blocks, tokens, concurrency: the pool of one engine.

vLLM: `num_blocks = bytes // bytes_per_block`, the smallest over the ranks; `max_concurrency = num_blocks / blocks one
request needs at max_model_len, summed over the groups`; `kv_cache_size_tokens = int(max_concurrency × max_model_len)`.
Block 0 is a null block that no request can hold, yet those figures count it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.kv.grouping import Group
from exporter.kv.options import EngineOptions


@dataclass(frozen=True, slots=True)
class Pool:
    """The KV pool of one engine, in blocks that all groups draw from."""

    groups: tuple[Group, ...]
    block_size: int
    """What the engine reports as block size: that of full attention, after any alignment."""
    bytes_per_block: int
    """Bytes of one block on the rank with the largest block."""
    num_gpu_blocks: int
    blocks_per_request: tuple[int, ...]
    """Blocks one request may need at max_model_len, per group."""
    max_model_len: int

    @property
    def max_concurrency(self) -> float:
        """Requests of max_model_len that fit at once."""
        total = sum(self.blocks_per_request)
        return self.num_gpu_blocks / total if total else 0.0

    @property
    def kv_cache_size_tokens(self) -> int:
        """Tokens the pool is said to hold."""
        return int(self.max_concurrency * self.max_model_len)

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can hold: all but the null block."""
        return max(0, self.num_gpu_blocks - 1)

    @property
    def bytes_needed_for_one(self) -> int:
        """Bytes the pool must have so that one request of max_model_len can run, the null block included."""
        return (sum(self.blocks_per_request) + 1) * self.bytes_per_block

    @property
    def fits(self) -> bool:
        """Whether vLLM would start: one request of max_model_len beside the null block."""
        return self.usable_blocks >= sum(self.blocks_per_request)


def size_pool(
    groups: Sequence[Group], stages: Sequence[Sequence[str]], block_size: int, options: EngineOptions, kv_bytes: int
) -> Pool:
    """Size the pool from `kv_bytes` per rank; `stages` lists the layer names of each pipeline stage."""
    per_stage = [_stage_bytes(groups, frozenset(names)) for names in stages if names]
    bytes_per_block = max(per_stage, default=0)
    blocks = max(0, kv_bytes) // bytes_per_block if bytes_per_block else 1
    if options.num_gpu_blocks_override is not None:
        blocks = options.num_gpu_blocks_override
    return Pool(
        groups=tuple(groups),
        block_size=block_size,
        bytes_per_block=bytes_per_block,
        num_gpu_blocks=blocks,
        blocks_per_request=tuple(max(layer.max_blocks(options) for layer in group.layers) for group in groups),
        max_model_len=options.max_model_len,
    )


def _stage_bytes(groups: Sequence[Group], names: frozenset[str]) -> int:
    return max(sum(layer.page_bytes for layer in group.layers if layer.name in names) for group in groups)
