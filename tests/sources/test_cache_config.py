"""The pool's blocks on a page of several engines."""

import pytest

from exporter.sources.cache_config import of_one_engine
from tests.support.expositions import exposition, gauge
from tests.support.readings import engine_of, engines_of, info


def test_each_of_two_engines_has_its_own_blocks() -> None:
    """A data-parallel server labels both engines with the 512 blocks of both; each has 256, for its 8,192 tokens."""
    readings = engines_of(exposition("vllm-0.32-dp2-running.prom"))
    assert [reading.cache and reading.cache.num_gpu_blocks for reading in readings] == [256, 256]
    assert [reading.cache and reading.cache.kv_cache_size_tokens for reading in readings] == [8192, 8192]


@pytest.mark.parametrize(
    ("blocks", "override", "alone", "engines", "each"),
    [
        (512, None, None, 2, 256),
        (512, 256, 256, 2, 256),
        (512, None, 512, 2, 512),
        (512, 512, 512, 2, 512),
        (9271, None, None, 2, 9271),
        (512, None, None, 1, 512),
        (None, None, None, 2, None),
    ],
    ids=["sum", "override", "tokens", "overridden", "odd", "one", "none"],
)
def test_a_sum_is_told_from_a_pool(
    blocks: int | None, override: int | None, alone: int | None, engines: int, each: int | None
) -> None:
    """What divides evenly is a sum, unless the override or the pool's own tokens say that it is one pool."""
    assert of_one_engine(blocks, override, alone, engines) == each


def test_numbers_beyond_all_measure_are_absent() -> None:
    """Sizes are multiplied, and what comes of them must be a number; so must what a gauge says of requests."""
    page = info(block_size="1e200", num_gpu_blocks="1e300", kv_cache_size_tokens="9007199254740992")
    page += gauge("num_requests_running", 1e17) + gauge("num_requests_waiting", 3)
    reading = engine_of(page)
    assert reading.cache is not None
    assert reading.cache.block_size is reading.cache.num_gpu_blocks is None
    assert reading.cache.kv_cache_size_tokens == 2**53
    assert (reading.running, reading.waiting) == (None, 3.0)
