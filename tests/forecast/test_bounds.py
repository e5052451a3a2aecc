"""Whatever a page tells of itself, the forecast's memory keeps its bound."""

import tracemalloc
from dataclasses import replace

import pytest

from exporter.forecast.assessment import ForecastOptions
from exporter.forecast.forecaster import EngineForecaster
from exporter.reading import EngineReading, Histogram
from tests.forecast.engines import BOUNDS, Engine, Request, pool

LIMIT_BYTES = 128 * 2**20


def swollen(reading: EngineReading, field: str, count: float) -> EngineReading:
    """The reading with one figure, and what goes with it, as no engine could have it."""
    lengths = Histogram(BOUNDS, (0.0, 0.0, count, count, count, count), 100.0 * count, count)
    return {
        "running": replace(reading, running=count),
        "waiting": replace(reading, waiting=count),
        "born": replace(reading, first_tokens=Histogram((), (), count, count), prompt_tokens=10 * count),
        "finished": replace(reading, generation_lengths=lengths, prompt_lengths=lengths, finished=count),
        "arrived": replace(reading, finished=count * reading.time),
    }[field]


@pytest.mark.parametrize("field", ["running", "waiting", "born", "finished", "arrived"])
@pytest.mark.parametrize("count", [1e6, 1e300])
def test_no_count_on_a_page_takes_memory_without_bound(field: str, count: float) -> None:
    """A page that tells of a million requests, or of more than there can be, is followed within 128 MiB."""
    engine = Engine()
    forecaster = EngineForecaster(ForecastOptions())
    tracemalloc.start()
    try:
        for second in range(11):
            reading = engine.tick([Request(50, 200)])
            assessment = forecaster.observe(reading if second < 7 else swollen(reading, field, count), pool())
            assert all(0 <= value <= 1 for value in assessment.probability.values())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < LIMIT_BYTES
