"""From a config.json and vLLM's flags to the pool, and to what one request holds of it."""

from collections.abc import Mapping
from typing import Any

from exporter.errors import InputError
from exporter.kv.architecture import Architecture, read_architecture
from exporter.kv.demand import GroupDemand, RequestDemand
from exporter.kv.grouping import Group, make_groups
from exporter.kv.layers import LayerCache
from exporter.kv.options import EngineOptions
from exporter.kv.placement import place, stages
from exporter.kv.pool import Pool, size_pool

_TOO_LARGE = 2**53
"""Bytes: no machine has a block of that size, and floats no longer count beyond."""


def size(config: Mapping[str, Any], options: EngineOptions, kv_bytes: int) -> Pool:
    """The pool that vLLM makes of `kv_bytes` per rank. Raises `InputError` for a config that is not a served model."""
    return size_architecture(read_architecture(config), options, kv_bytes)


def size_architecture(architecture: Architecture, options: EngineOptions, kv_bytes: int) -> Pool:
    """`size` for an architecture already read."""
    layers, block = place(architecture, options)
    groups = make_groups(layers, hybrid=not options.disable_hybrid_kv_cache_manager)
    pool = size_pool(groups, stages(architecture, options), block, options, kv_bytes)
    if not 1 <= pool.bytes_per_block < _TOO_LARGE:
        told = "nothing" if pool.bytes_per_block < 1 else "more than any machine holds"
        raise InputError(
            f"config.json: by its sizes the layers keep {told} of a request; check it against the original"
        )
    return pool


def held_blocks(pool: Pool, options: EngineOptions, context: int) -> int:
    """Blocks one request holds once its token number `context` has a slot, as vLLM's scheduler leaves it.

    Blocks that fell out of a window or chunk of the `context - 1` tokens computed so far are already given back.
    """
    return sum(_held(group.first, options, context) for group in pool.groups)


def _held(layer: LayerCache, options: EngineOptions, context: int) -> int:
    block = layer.block_size
    if layer.dcp_sharded:
        block *= options.decode_context_parallel_size
    slots = -(-(context + (0 if layer.kind == "state" else options.lookahead_tokens)) // block)
    done = max(0, context - 1)
    if layer.kind == "state":
        if not options.enable_prefix_caching:
            return 1 + layer.speculative_blocks
        return slots - max(0, done - 1) // block + layer.speculative_blocks
    if layer.window is not None and layer.kind in ("sliding", "sliding_mla"):
        return slots - max(0, done - layer.window + 1) // block
    if layer.chunk is not None and layer.kind == "chunked":
        return slots - done // layer.chunk * layer.chunk // block
    return slots


def request_demand(pool: Pool, options: EngineOptions) -> RequestDemand:
    """What a running request holds at any context: the caps are those of decoding, after a long prefill settled."""
    counted: dict[tuple[int, int | None], int] = {}
    for group in pool.groups:
        key = _demand(group, options)
        counted[key] = counted.get(key, 0) + 1
    return RequestDemand(tuple(GroupDemand(block, cap, groups) for (block, cap), groups in counted.items()))


def _demand(group: Group, options: EngineOptions) -> tuple[int, int | None]:
    layer = group.first
    if layer.kind == "state":
        return 1, 1 + layer.speculative_blocks
    if layer.window is not None and layer.kind in ("sliding", "sliding_mla"):
        return layer.block_size, -(-(layer.window - 1) // layer.block_size) + 1
    if layer.chunk is not None and layer.kind == "chunked":
        return layer.block_size, -(-layer.chunk // layer.block_size)
    return layer.block_size * (options.decode_context_parallel_size if layer.dcp_sharded else 1), None
