"""What preempted requests compute again, against the embedded engine's own account and by hand."""

from dataclasses import replace

import pytest

from exporter.demo.engine import DemoEngine, EngineConfig
from exporter.demo.scheduler import Limits, Request
from exporter.forecast.evicted import recomputed_each
from exporter.reading import CacheConfig, EngineReading, Histogram

POOL = CacheConfig(
    block_size=16, num_gpu_blocks=100, kv_cache_size_tokens=1600, enable_prefix_caching=False
)  # fmt: skip


def reading(time: float, held: float, running: float, waiting: float, began: float, tokens: float) -> EngineReading:
    """`began` requests left prefill so far, none has ended; they have `tokens` tokens, and the pool holds `held`."""
    none_ended = Histogram((), (), 0.0, 0.0)
    return EngineReading(
        time,
        "m",
        "0",
        kv_usage=(held + running * 8) / 1600,
        running=running,
        waiting=waiting,
        preemptions=time,
        prompt_tokens=tokens,
        generation_tokens=0.0,
        first_tokens=Histogram((), (), 0.0, began),
        prompt_lengths=none_ended,
        generation_lengths=none_ended,
        cache=POOL,
    )


def test_what_exists_and_is_not_held_waits() -> None:
    """Ten requests of 150 tokens have begun; eight run and hold 1,200: the two that wait lost 150 each."""
    calm = reading(0.0, 1500.0, 10.0, 0.0, 10.0, 1500.0)
    full = reading(1.0, 1200.0, 8.0, 2.0, 10.0, 1500.0)
    assert recomputed_each([calm, full], 60.0) == pytest.approx(150.0)


def test_clients_that_hung_up_are_not_taken_for_preempted() -> None:
    """What was out of balance while nobody waited stays out of account."""
    calm = reading(0.0, 1500.0, 10.0, 0.0, 15.0, 2500.0)
    full = reading(1.0, 1200.0, 8.0, 2.0, 15.0, 2500.0)
    assert recomputed_each([calm, full], 60.0) == pytest.approx(150.0)


def test_nobody_seen_waiting_is_no_estimate() -> None:
    """Without a reading at which a preempted request waits nothing is said, and neither without a page that tells."""
    calm = reading(0.0, 1500.0, 10.0, 0.0, 10.0, 1500.0)
    assert recomputed_each([calm, replace(calm, time=1.0)], 60.0) is None
    assert recomputed_each([replace(calm, cache=None)], 60.0) is None


def test_what_the_prefix_cache_still_has_is_not_computed_again() -> None:
    """With prefix caching less is computed again, and nothing if nothing took the blocks meanwhile."""
    cached = replace(POOL, enable_prefix_caching=True)
    calm = replace(reading(0.0, 1500.0, 10.0, 0.0, 10.0, 1500.0), cache=cached)
    full = replace(reading(1.0, 1200.0, 8.0, 2.0, 10.0, 1500.0), cache=cached)
    busy = replace(full, generation_tokens=400.0, kv_usage=(1600 + 64) / 1600)
    assert recomputed_each([calm, full], 60.0) == 0.0
    told = recomputed_each([calm, busy], 60.0)
    assert told is not None
    assert 0 < told < 150


def overloaded(caching: bool) -> tuple[list[EngineReading], float]:
    """Readings of the embedded engine under four minutes of overload, and the tokens it computed again."""
    requests = [Request(n * 0.55, 120 + 37 * (n % 9), 250 + 61 * (n % 7)) for n in range(400)]
    limits = Limits(num_gpu_blocks=500, block_size=16, prefix_caching=caching)
    engine = DemoEngine(EngineConfig(limits=limits), requests)
    readings, computed, first_time = [], 0, 0
    cache = CacheConfig(
        block_size=16, num_gpu_blocks=500, kv_cache_size_tokens=8000, enable_prefix_caching=caching
    )  # fmt: skip
    for second in range(1, 241):
        computed += sum(step.new_tokens for step in engine.steps(float(second)))
        tally = engine.tally
        first_time = tally.prompt_tokens - tally.prompt_tokens_cached + tally.generation_tokens
        prompts, outputs = tally.prompt_lengths, tally.generation_lengths
        readings.append(
            EngineReading(
                float(second),
                "m",
                "0",
                kv_usage=engine.usage,
                running=float(engine.running),
                waiting=float(engine.waiting),
                preemptions=float(tally.preemptions),
                prompt_tokens=float(tally.prompt_tokens),
                prompt_tokens_cached=float(tally.prompt_tokens_cached),
                generation_tokens=float(tally.generation_tokens),
                first_tokens=Histogram((), (), 0.0, float(sum(tally.first_token.counts))),
                prompt_lengths=Histogram((), (), prompts.sum, float(sum(prompts.counts))),
                generation_lengths=Histogram((), (), outputs.sum, float(sum(outputs.counts))),
                cache=cache,
            )
        )
    # Every computed token beyond the first time; the last token of each output is never computed, nor what runs now.
    return readings, computed - first_time + sum(outputs.counts)


@pytest.mark.parametrize("caching", [False, True])
def test_an_overloaded_engine_is_judged_within_a_sixth(caching: bool) -> None:
    """Summed over all preemptions, the estimate is within 17 % of the tokens that the engine computed again."""
    readings, truth = overloaded(caching)
    told = 0.0
    for number in range(1, len(readings)):
        rose = (readings[number].preemptions or 0.0) - (readings[number - 1].preemptions or 0.0)
        if rose:
            told += rose * (recomputed_each(readings[: number + 1], 60.0) or 0.0)
    assert readings[-1].preemptions
    assert readings[-1].preemptions > 50
    assert told == pytest.approx(truth, rel=0.17)
