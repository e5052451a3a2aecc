"""Signs of trouble, drivers, levers and the toll, as one engine's forecast tells them."""

from dataclasses import replace

import pytest

from exporter.forecast.assessment import Assessment, ForecastOptions
from exporter.forecast.drivers import driver_of
from exporter.forecast.forecaster import EngineForecaster, time_to_exhaustion
from exporter.reading import CacheConfig, EngineReading
from tests.forecast.engines import BLOCK, Engine, Request, later, pool


def steady(seconds: int) -> list[EngineReading]:
    """A request every two seconds: a load far below the pool."""
    engine = Engine()
    return [engine.tick([Request(200, 200)] if t % 2 == 0 else []) for t in range(seconds)]


def filling(calm: int = 160, filled: int = 40) -> list[EngineReading]:
    """A few long requests, then two of the same kind a second: the pool fills within half a minute."""
    engine = Engine()
    readings = [engine.tick([Request(100, 1000)] if t % 8 == 0 else []) for t in range(calm)]
    return readings + [engine.tick([Request(100, 1000)] * 2) for _ in range(filled)]


def observe(readings: list[EngineReading], options: ForecastOptions | None = None) -> list[Assessment]:
    forecaster = EngineForecaster(options)
    return [forecaster.observe(reading, pool()) for reading in readings]


def test_a_pool_that_fills_rings_well_before_it_is_full() -> None:
    """Requests that come faster than they can end are foreseen many seconds ahead."""
    readings = filling()
    said = observe(readings)
    onset = next(k for k, reading in enumerate(readings) if reading.preemptions)
    alarm = next(k for k, a in enumerate(said) if a.predicted)
    assert 160 <= alarm <= onset - 5
    assert said[onset].state == "exhausted"


def test_processes_answering_in_turn_are_unknown() -> None:
    """Counters that flip between two levels give no rate: the endpoint is not aggregated."""
    base = steady(60)
    flipping = [later(base[-1], t + 1.0, generation_tokens=(5000.0 if t % 2 else 3000.0)) for t in range(12)]
    said = observe(base + flipping)[-1]
    assert said.state == "unknown"
    assert "several processes" in said.reason
    assert said.probability == {}


def test_a_wedged_engine_is_stalled() -> None:
    """Gauges that say requests run, and counters that stand still for two minutes, are not ok."""
    base = steady(60)
    said = observe(base + [later(base[-1], t + 1.0, running=4.0) for t in range(130)])[-1]
    assert said.state == "stalled"
    assert not said.predicted


def test_a_request_larger_than_the_pool_is_pointed_out() -> None:
    """Requests that wait before an empty pool for minutes may not fit at all."""
    base = steady(60)
    stuck = [later(base[-1], t + 1.0, running=0.0, waiting=5.0, kv_usage=0.0) for t in range(130)]
    said = observe(base + stuck)[-1]
    assert said.state == "stalled"
    assert "more KV than the pool holds" in said.reason


def test_running_requests_with_usage_zero_make_the_gauge_suspect() -> None:
    """Requests cannot run without blocks: a usage of exactly 0 for a minute is not believed."""
    said = observe([replace(reading, kv_usage=0.0) for reading in steady(120)])[-1]
    assert said.state == "unknown"
    assert "suspect" in said.reason


def test_blocks_held_without_requests_have_leaked() -> None:
    """Usage above zero for ten minutes while no request lives is pointed out."""
    last = replace(steady(60)[-1], running=0.0, waiting=0.0, kv_usage=0.6)
    said = observe([later(last, 10.0 * k) for k in range(70)])[-1]
    assert said.state == "watch"
    assert "leaked" in said.reason


def test_a_queue_for_sequence_slots_is_no_alarm_and_is_named() -> None:
    """Requests that wait for max_num_seqs while the pool has room are no risk, whether the limit is told or not."""
    engine, readings = Engine(), []
    for t in range(200):
        reading = engine.tick([Request(200, 400)] * 2 if len(engine.running) < 7 else [])
        readings.append(replace(reading, running=8.0, waiting=float(t % 20 + 5)))
    for options in (ForecastOptions(max_num_seqs=8), ForecastOptions()):
        said = observe(readings, options)
        assert not any(a.predicted for a in said)
        assert said[-1].driver == "sequence_cap"


def test_only_preemptions_for_want_of_kv_count_where_the_page_tells() -> None:
    """Preemptions for other reasons are no exhaustion."""
    readings = [replace(r, preemptions=float(k), preemptions_kv_full=0.0) for k, r in enumerate(steady(60))]
    said = observe(readings)[-1]
    assert said.state == "ok"
    assert said.preemptions_per_second == 0.0


def test_levers_are_computed_for_the_present_load() -> None:
    """FP8 doubles a 16-bit pool; fewer seats, a second replica and shorter requests shrink the demand."""
    options = ForecastOptions(max_num_seqs=256, max_num_batched_tokens=2048, max_model_len=4096)
    cache = CacheConfig(block_size=BLOCK, cache_dtype="auto")
    gains = observe([replace(r, cache=cache) for r in filling()], options)[-1].levers
    assert gains["kv_cache_dtype=fp8"] == pytest.approx((2 * 1001 - 1) / 1000)
    assert 0 < next(v for k, v in gains.items() if k.startswith("max_num_seqs=")) < 1
    assert 0 < gains["replicas=2"] < 1
    assert 0 < gains["max_model_len=2048"] <= 1
    assert 0 < gains["max_num_batched_tokens=1024"] <= 1.01


def test_what_is_done_already_is_not_advised() -> None:
    """An FP8 cache has no FP8 lever."""
    cache = CacheConfig(block_size=BLOCK, cache_dtype="fp8_e4m3")
    assert "kv_cache_dtype=fp8" not in observe([replace(r, cache=cache) for r in steady(60)])[-1].levers


def test_many_more_requests_are_a_burst() -> None:
    """Six times the requests of the minutes before, of the same length, is burst concurrency."""
    engine = Engine(5000)
    readings = [engine.tick([Request(200, 200)] if t % 3 == 0 else []) for t in range(300)]
    readings += [engine.tick([Request(200, 200)] * 3) for _ in range(25)]
    assert driver_of(readings, 5000.0 * BLOCK, None) == "burst_concurrency"


def test_longer_requests_are_long_context() -> None:
    """As many requests as before that each hold more KV is long context."""
    engine = Engine(2000)
    readings = [engine.tick([Request(200, 200)]) for _ in range(300)]
    readings += [engine.tick([Request(600, 200)]) for _ in range(15)]
    assert driver_of(readings, 2000.0 * BLOCK, None) == "long_context"


def test_a_few_huge_prompts_are_a_prefill_spike() -> None:
    """A jump of usage by newcomers with many times the usual prompt is a prefill spike."""
    engine = Engine(1000)
    readings = [engine.tick([Request(200, 200)]) for _ in range(300)]
    readings += [engine.tick([Request(4000, 200)] if t in (1, 2) else [Request(200, 200)]) for t in range(6)]
    assert driver_of(readings, 1000.0 * BLOCK, None) == "prefill_spike"


def test_time_to_exhaustion_is_the_conditional_median() -> None:
    """Half of the probability within a minute lies before it; below the least probability there is none."""
    assert time_to_exhaustion({15.0: 0.2, 30.0: 0.4, 60.0: 0.8}) == pytest.approx(30.0)
    assert time_to_exhaustion({15.0: 0.8, 60.0: 0.8}) == pytest.approx(7.5)
    assert time_to_exhaustion({60.0: 0.09}) is None
    assert time_to_exhaustion({}) is None
