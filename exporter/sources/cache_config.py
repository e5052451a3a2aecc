"""The pool's configuration out of the labels of `cache_config_info`."""

from dataclasses import replace
from functools import lru_cache

from exporter.reading import MOST, CacheConfig


@lru_cache(maxsize=256)
def cache_config(labels: tuple[tuple[str, str], ...]) -> CacheConfig:
    """What the labels of `cache_config_info` say; "None" and what is no number of the right kind are absent.

    So is a number beyond all that is counted here: figures are multiplied, and what comes of them must be one.
    """
    told = {name: value for name, value in labels if value != "None"}

    def number(name: str) -> float | None:
        try:
            value = float(told[name])
        except (KeyError, ValueError):
            return None
        return value if 0 <= value <= MOST else None

    def whole(name: str) -> int | None:
        value = number(name)
        return int(value) if value is not None and value.is_integer() else None

    return CacheConfig(
        block_size=whole("block_size"),
        num_gpu_blocks=whole("num_gpu_blocks"),
        kv_cache_size_tokens=whole("kv_cache_size_tokens"),
        kv_cache_max_concurrency=number("kv_cache_max_concurrency"),
        kv_cache_memory_bytes=whole("kv_cache_memory_bytes"),
        cache_dtype=told.get("cache_dtype"),
        gpu_memory_utilization=number("gpu_memory_utilization"),
        enable_prefix_caching={"True": True, "False": False}.get(told.get("enable_prefix_caching", "")),
        kv_offloading_gib=number("kv_offloading_size"),
        num_gpu_blocks_override=whole("num_gpu_blocks_override"),
        mamba_block_size=whole("mamba_block_size"),
        mamba_cache_mode=told.get("mamba_cache_mode"),
        labels=told,
    )


def of_one_engine(blocks: int | None, override: int | None, alone: int | None, engines: int) -> int | None:
    """Blocks of one engine's pool, of the `blocks` that its label says on a page with so many engines.

    One front-end of several data-parallel engines tells each of them the sum of all their blocks, but its own tokens.
    A sum that the engines do not share evenly, or a label that already is the override, is left as it is; so is one
    whose blocks hold the pool's tokens one for one.
    """
    if engines < 2 or blocks is None or blocks % engines or blocks in (override, alone):
        return blocks
    share = blocks // engines
    return share if override is None or share == override else blocks


@lru_cache(maxsize=256)
def cache_config_among(labels: tuple[tuple[str, str], ...], engines: int) -> CacheConfig:
    """The configuration of one of `engines` engines on one page."""
    cache = cache_config(labels)
    tokens, size = cache.kv_cache_size_tokens, cache.block_size
    alone = tokens // size if tokens and size and tokens % size == 0 else None
    blocks = of_one_engine(cache.num_gpu_blocks, cache.num_gpu_blocks_override, alone, engines)
    return cache if blocks == cache.num_gpu_blocks else replace(cache, num_gpu_blocks=blocks)
