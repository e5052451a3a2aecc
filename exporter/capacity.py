"""What the KV pool of a running engine holds, and what is left of it: the page first, then the arithmetic.

The order of trust for its size in tokens: `kv_cache_size_tokens` of the page; `kv_cache_max_concurrency ×
max_model_len`; the model's arithmetic; `num_gpu_blocks × block_size`, which is wrong for models with several
groups of layers and therefore last.
"""

from typing import TYPE_CHECKING

from exporter.forecast.assessment import PoolView
from exporter.kv.demand import GroupDemand, RequestDemand
from exporter.reading import CacheConfig, EngineReading, Histogram
from exporter.snapshot import Capacity, Headroom

if TYPE_CHECKING:
    from exporter.kv.live import LiveArithmetic

NULL_BLOCKS = 1
"""Block 0 of every pool is a placeholder that no request can hold."""


def capacity_of(cache: CacheConfig | None, arithmetic: "LiveArithmetic | None", max_model_len: int | None) -> Capacity:
    """The pool's size, each figure from the best evidence there is."""
    cache = cache or CacheConfig()
    blocks = cache.num_gpu_blocks
    analytic = arithmetic.capacity_tokens if arithmetic else None
    tokens, rule = _tokens(cache, analytic, max_model_len)
    block_bytes = arithmetic.bytes_per_block if arithmetic else None
    return Capacity(
        tokens=tokens,
        tokens_rule=rule,
        usable_blocks=None if blocks is None else max(0, blocks - NULL_BLOCKS),
        bytes=cache.kv_cache_memory_bytes if cache.num_gpu_blocks_override is None else None,
        analytic_tokens=analytic,
        analytic_bytes=blocks * block_bytes if blocks and block_bytes else None,
        bytes_per_token=arithmetic.bytes_per_token if arithmetic else None,
        bytes_per_block=block_bytes,
        max_model_len=max_model_len,
        weight_bytes=arithmetic.weight_bytes if arithmetic else None,
        doubled_gain=arithmetic.doubled_gain if arithmetic else None,
        calibration_ratio=arithmetic.calibration_ratio if arithmetic else None,
        calibration_cause=arithmetic.cause if arithmetic else None,
    )


def _tokens(cache: CacheConfig, analytic: int | None, max_model_len: int | None) -> tuple[int | None, str | None]:
    if cache.kv_cache_size_tokens:
        return cache.kv_cache_size_tokens, "reported"
    if cache.kv_cache_max_concurrency and max_model_len:
        return int(cache.kv_cache_max_concurrency * max_model_len), "max_concurrency"
    if analytic:
        return analytic, "arithmetic"
    if cache.num_gpu_blocks and cache.block_size:
        return cache.num_gpu_blocks * cache.block_size, "blocks"
    return None, None


def pool_of(cache: CacheConfig | None, capacity: Capacity, arithmetic: "LiveArithmetic | None") -> PoolView | None:
    """The pool as the forecast needs it; `None` when its blocks are not known.

    Without an architecture a request is taken to hold blocks in proportion to its tokens, at the rate that the
    engine's own capacity implies: exact for models with one group of layers, an estimate for the others.
    """
    if not capacity.usable_blocks or cache is None or not cache.num_gpu_blocks:
        return None
    if arithmetic is not None:
        return PoolView(capacity.usable_blocks, arithmetic.demand)
    if capacity.tokens is None:
        return None
    tokens_per_block = max(1, round(capacity.tokens / cache.num_gpu_blocks))
    return PoolView(capacity.usable_blocks, RequestDemand((GroupDemand(tokens_per_block),)))


def used_blocks_of(reading: EngineReading, capacity: Capacity) -> float | None:
    """Blocks held by live requests: the engine's usage counts blocks and leaves the null block out."""
    if reading.kv_usage is None or not capacity.usable_blocks:
        return None
    return float(round(reading.kv_usage * capacity.usable_blocks))


def headroom_of(reading: EngineReading, capacity: Capacity, pool: PoolView | None) -> Headroom:
    """What still fits.

    With one group of layers every free block holds its tokens. With several, a request's fixed and growing blocks
    differ by group, so what fits is counted in requests of the typical length.
    """
    used = used_blocks_of(reading, capacity)
    if used is None or capacity.usable_blocks is None:
        return Headroom()
    free = max(0.0, capacity.usable_blocks - used)
    size = free * capacity.bytes_per_block if capacity.bytes_per_block else None
    if pool is None:
        return Headroom(blocks=free, bytes=size)
    context = typical_context(reading)
    demand = typical_blocks(reading, used, pool)
    groups = pool.demand.groups
    if len(groups) == 1 and groups[0].groups == 1 and groups[0].cap is None:
        tokens: float | None = free * groups[0].block_size
    else:
        tokens = free / demand * context if demand and context else None
    return Headroom(blocks=free, tokens=tokens, bytes=size, requests=float(free // demand) if demand else None)


def typical_blocks(reading: EngineReading, used_blocks: float, pool: PoolView) -> float | None:
    """Blocks one more request of the present load takes: of the mean finished one, else what a running one holds."""
    context = typical_context(reading)
    if context:
        return float(pool.demand.blocks(round(context)))
    return used_blocks / reading.running if reading.running and used_blocks else None


def typical_context(reading: EngineReading) -> float | None:
    """Mean prompt plus mean output of the requests that have finished; `None` before the first."""
    prompt, output = _mean(reading.prompt_lengths), _mean(reading.generation_lengths)
    return prompt + output if prompt and output is not None else None


def _mean(histogram: Histogram | None) -> float | None:
    return histogram.sum / histogram.count if histogram is not None and histogram.count > 0 else None
