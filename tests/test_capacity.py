"""What a running engine's pool holds and what is left of it."""

from dataclasses import replace

import pytest

from exporter.capacity import capacity_of, headroom_of, pool_of, typical_context, used_blocks_of
from exporter.kv.demand import GroupDemand, RequestDemand
from exporter.kv.live import LiveArithmetic
from exporter.reading import CacheConfig, EngineReading, Histogram
from exporter.snapshot import Capacity, Headroom


def arithmetic(demand: RequestDemand, tokens: int = 16_000, ratio: float | None = None) -> LiveArithmetic:
    return LiveArithmetic(
        demand=demand,
        usable_blocks=None,
        capacity_tokens=tokens,
        bytes_per_block=2_097_152,
        bytes_per_token=131_072,
        blocks_per_request=256,
        calibration_ratio=ratio,
        cause=None if ratio is None else "a draft model shares the pool",
        estimated=None,
    )


UNIFORM = arithmetic(RequestDemand((GroupDemand(16),)))
HYBRID = arithmetic(RequestDemand((GroupDemand(16), GroupDemand(16, cap=65, groups=5))))


def test_the_reported_size_comes_first() -> None:
    """What the engine reports as its size in tokens is believed before everything else, and it is said so."""
    cache = CacheConfig(
        block_size=128, num_gpu_blocks=9271, kv_cache_size_tokens=148_336, kv_cache_max_concurrency=36.2
    )
    capacity = capacity_of(cache, UNIFORM, 4096)
    assert (capacity.tokens, capacity.tokens_rule) == (148_336, "reported")


def test_the_weights_come_from_the_arithmetic() -> None:
    """What the model's config says of its weights is told beside the pool; without a config it is absent."""
    known = capacity_of(CacheConfig(), replace(UNIFORM, weight_bytes=16_060_522_496), 4096)
    assert known.weight_bytes == 16_060_522_496
    assert capacity_of(CacheConfig(), None, 4096).weight_bytes is None


def test_concurrency_times_length_comes_second() -> None:
    """Without the size in tokens, concurrency times max_model_len gives it."""
    capacity = capacity_of(CacheConfig(block_size=128, num_gpu_blocks=9271, kv_cache_max_concurrency=36.0), None, 4096)
    assert (capacity.tokens, capacity.tokens_rule) == (147_456, "max_concurrency")


def test_the_arithmetic_comes_third() -> None:
    """A page that tells only blocks of a known model is completed by the arithmetic."""
    capacity = capacity_of(CacheConfig(block_size=16, num_gpu_blocks=1000), UNIFORM, 4096)
    assert (capacity.tokens, capacity.tokens_rule) == (16_000, "arithmetic")
    assert capacity.calibration_ratio is None


def test_blocks_times_size_comes_last() -> None:
    """With nothing else known, blocks times block size is given and named as what it is."""
    capacity = capacity_of(CacheConfig(block_size=16, num_gpu_blocks=1000), None, None)
    assert (capacity.tokens, capacity.tokens_rule) == (16_000, "blocks")


def test_nothing_known_is_absent() -> None:
    """Without a cache config every figure is absent and there is no pool to forecast."""
    capacity = capacity_of(None, None, None)
    assert capacity == Capacity()
    assert pool_of(None, capacity, None) is None
    assert used_blocks_of(EngineReading(0.0, "m", "0", kv_usage=0.5), capacity) is None


def test_the_null_block_is_not_usable() -> None:
    """One block of every pool is a placeholder; usage is a share of the others."""
    capacity = capacity_of(CacheConfig(block_size=16, num_gpu_blocks=101), None, None)
    assert capacity.usable_blocks == 100
    assert used_blocks_of(EngineReading(0.0, "m", "0", kv_usage=0.42), capacity) == 42


def test_calibration_and_its_cause_are_the_arithmetic_s() -> None:
    """How far engine and arithmetic are apart, and why, is handed on."""
    capacity = capacity_of(CacheConfig(num_gpu_blocks=1000), arithmetic(UNIFORM.demand, ratio=0.95), 4096)
    assert (capacity.calibration_ratio, capacity.calibration_cause) == (0.95, "a draft model shares the pool")


def test_configured_bytes_are_not_believed_beside_an_override() -> None:
    """With num_gpu_blocks_override the page shows configured bytes, not the pool's."""
    overridden = CacheConfig(num_gpu_blocks=256, kv_cache_memory_bytes=1 << 30, num_gpu_blocks_override=256)
    assert capacity_of(overridden, None, None).bytes is None
    assert capacity_of(CacheConfig(num_gpu_blocks=256, kv_cache_memory_bytes=1 << 30), None, None).bytes == 1 << 30


def loaded(usage: float, mean_tokens: float | None = None, running: float | None = None) -> EngineReading:
    """An engine whose finished requests took `mean_tokens` of prompt and output."""
    if mean_tokens is None:
        return EngineReading(0.0, "m", "0", kv_usage=usage, running=running)
    prompt, output = Histogram((), (), mean_tokens * 3, 4), Histogram((), (), mean_tokens, 4)
    return EngineReading(0.0, "m", "0", kv_usage=usage, prompt_lengths=prompt, generation_lengths=output)


def test_headroom_of_a_uniform_model() -> None:
    """Free blocks hold their tokens and bytes; requests are whole ones of the typical length."""
    cache = CacheConfig(block_size=16, num_gpu_blocks=1001)
    capacity = capacity_of(cache, UNIFORM, 4096)
    left = headroom_of(loaded(0.4, 1000), capacity, pool_of(cache, capacity, UNIFORM))
    assert left == Headroom(blocks=600, tokens=9600, bytes=600 * 2_097_152, requests=9)


def test_headroom_of_a_hybrid_model_counts_requests_not_a_share_of_tokens() -> None:
    """Where groups differ, tokens that fit are those of requests of the typical length, fixed blocks included."""
    cache = CacheConfig(block_size=16, num_gpu_blocks=1001, kv_cache_size_tokens=50_000)
    capacity = capacity_of(cache, HYBRID, 32_768)
    pool = pool_of(cache, capacity, HYBRID)
    left = headroom_of(loaded(0.0, 160), capacity, pool)
    assert left.requests == 1000 // 60
    assert left.tokens == pytest.approx(1000 / 60 * 160)
    assert headroom_of(loaded(0.0), capacity, pool).tokens is None


def test_before_a_request_has_finished_the_running_ones_are_typical() -> None:
    """Without finished requests, one more is taken to hold what a running one holds; without those, nothing is said."""
    cache = CacheConfig(block_size=16, num_gpu_blocks=1001)
    capacity = capacity_of(cache, UNIFORM, 4096)
    pool = pool_of(cache, capacity, UNIFORM)
    assert headroom_of(loaded(0.4, running=4), capacity, pool).requests == 6
    assert headroom_of(loaded(0.0, running=0), capacity, pool).requests is None


def test_a_full_pool_has_no_headroom() -> None:
    """A pool in full use has zero blocks left, and zero tokens and requests."""
    cache = CacheConfig(block_size=16, num_gpu_blocks=101)
    capacity = capacity_of(cache, UNIFORM, 4096)
    left = headroom_of(loaded(1.0, 160), capacity, pool_of(cache, capacity, UNIFORM))
    assert left == Headroom(blocks=0, tokens=0, bytes=0, requests=0)


def test_without_an_architecture_tokens_per_block_follow_the_engine() -> None:
    """A multi-group pool whose model is unknown is projected at the rate its own capacity implies."""
    cache = CacheConfig(block_size=128, num_gpu_blocks=9271, kv_cache_size_tokens=148_336)
    pool = pool_of(cache, capacity_of(cache, None, None), None)
    assert pool is not None
    assert pool.demand.blocks(1600) == 100


def test_the_typical_request_is_the_mean_of_the_finished() -> None:
    """Mean prompt plus mean output; unknown before a request has finished."""

    def lengths(total: float, count: float) -> Histogram:
        return Histogram((), (), total, count)

    reading = EngineReading(0.0, "m", "0", prompt_lengths=lengths(1000, 4), generation_lengths=lengths(200, 4))
    assert typical_context(reading) == 300
    assert typical_context(EngineReading(0.0, "m", "0")) is None
    empty = EngineReading(0.0, "m", "0", prompt_lengths=lengths(0, 0), generation_lengths=lengths(0, 0))
    assert typical_context(empty) is None
