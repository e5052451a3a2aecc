"""Histograms and the cache configuration, piece by piece."""

import math

import pytest

from exporter.reading import Histogram
from tests.support.expositions import gauge, series
from tests.support.readings import engine_of, engines_of, info, lengths


@pytest.mark.parametrize("wrong", ["many", "-5", "nan", "inf", "", "1e999", "12.5"])
def test_numbers_of_the_cache_that_cannot_be_are_absent(wrong: str) -> None:
    """A label that is no whole number where one is due is absent."""
    cache = engine_of(gauge("num_requests_running", 0) + info(engine="0", num_gpu_blocks=wrong, block_size="16")).cache
    assert cache is not None
    assert cache.num_gpu_blocks is None
    assert cache.block_size == 16


def test_a_cache_without_engine_label_is_every_engines() -> None:
    """Before 0.9 the info named no engine: one for all that have none of their own."""
    text = "".join(gauge("num_requests_running", 0, engine=str(index)) for index in range(2))
    assert [e.cache and e.cache.num_gpu_blocks for e in engines_of(text + info(num_gpu_blocks="7"))] == [7, 7]
    both = text + info(num_gpu_blocks="7") + info(num_gpu_blocks="9", engine="1")
    assert [e.cache and e.cache.num_gpu_blocks for e in engines_of(both)] == [7, 9]


def test_two_caches_for_one_engine_are_none() -> None:
    """When a page tells two sizes of one engine's pool, the size is unknown."""
    text = gauge("num_requests_running", 0)
    text += info(engine="0", num_gpu_blocks="100") + info(engine="0", num_gpu_blocks="900")
    assert engine_of(text).cache is None
    assert "cache" not in engine_of(text).names
    same = gauge("num_requests_running", 0) + info(engine="0", num_gpu_blocks="100", pid="1")
    same += info(engine="0", num_gpu_blocks="100", pid="2")
    cache = engine_of(same).cache
    assert cache is not None
    assert cache.num_gpu_blocks == 100


def test_an_info_that_is_zero_is_not_so() -> None:
    """An info series of value 0 says that it does not hold."""
    text = gauge("num_requests_running", 0) + series("vllm:cache_config_info", 0, engine="0", block_size="16")
    assert engine_of(text).cache is None


def test_a_histogram_without_buckets_keeps_its_totals() -> None:
    """Sum and count are read where the buckets are missing."""
    text = gauge("request_prompt_tokens_sum", 30) + gauge("request_prompt_tokens_count", 3)
    assert engine_of(text).prompt_lengths == Histogram((), (), 30.0, 3.0)


def test_buckets_come_in_rising_order() -> None:
    """The order of the page does not matter, and a missing +Inf is the count."""
    text = lengths("request_prompt_tokens", {"10.0": 4, "2.0": 1, "5": 2}, 40, 6)
    assert engine_of(text).prompt_lengths == Histogram((2.0, 5.0, 10.0, math.inf), (1.0, 2.0, 4.0, 6.0), 40.0, 6.0)


@pytest.mark.parametrize(
    "text",
    [
        lengths("request_prompt_tokens", {"1.0": 5, "2.0": 3, "+Inf": 6}, 40, 6),
        lengths("request_prompt_tokens", {"1.0": 5, "+Inf": 6}, "NaN", 6),
        gauge("request_prompt_tokens_bucket", 5, le="1.0"),
        gauge("request_prompt_tokens_sum", 5),
    ],
    ids=["falling", "no sum", "one bucket", "no count"],
)
def test_a_histogram_that_does_not_hold_together_is_absent(text: str) -> None:
    """Counts that fall, or a missing sum or count, make no histogram."""
    engine = engine_of(text + gauge("num_requests_running", 1))
    assert engine.prompt_lengths is None
    assert "prompt_lengths" not in engine.names


def test_a_bucket_without_a_bound_is_left_out() -> None:
    """A bucket whose `le` is missing, no number or NaN costs itself alone."""
    text = lengths("request_prompt_tokens", {"1.0": 1, "NaN": 2, "much": 2, "+Inf": 3}, 9, 3)
    text += gauge("request_prompt_tokens_bucket", 99)
    assert engine_of(text).prompt_lengths == Histogram((1.0, math.inf), (1.0, 3.0), 9.0, 3.0)
