"""What clients let a request generate, and what is expected before anything has finished."""

import math
from dataclasses import replace

import numpy as np
import pytest

from exporter.forecast.assessment import ForecastOptions
from exporter.forecast.blocks import BlockLine
from exporter.forecast.lengths import allowed
from exporter.forecast.occupancy import Occupancy
from exporter.reading import Histogram
from tests.forecast.engines import Engine, Request

LINE = BlockLine(1000.0, 1 / 16, 0.5)


def limits(*tokens: float) -> Histogram:
    bounds = (50.0, 100.0, 200.0, math.inf)
    return Histogram(bounds, tuple(float(sum(t <= b for t in tokens)) for b in bounds), sum(tokens), float(len(tokens)))


def test_clients_limits_cap_what_a_request_may_generate() -> None:
    """The bound of the highest bucket in use, once eight have finished; without the histogram nothing is known."""
    assert allowed(None).most == math.inf
    few = allowed(limits(40.0, 90.0))
    assert (few.mean, few.most) == (65.0, math.inf)
    assert allowed(limits(*[40.0] * 5, *[90.0] * 5)).most == 100.0
    assert allowed(limits(*[40.0] * 5, *[900.0] * 5)).most == math.inf


def test_before_anything_finished_the_clients_limits_are_the_prior() -> None:
    """Where clients allow 20 tokens a request is not expected to take 256, and none passes the limit for long."""
    occupancy = followed(limits(*[20.0] * 9))
    drawn = occupancy._outputs_beyond(np.zeros(200), (50, 200), 50.0)
    assert drawn.mean() == pytest.approx(10.0, rel=0.15)
    assert drawn.max() <= 50.0
    assert followed(None)._outputs_beyond(np.zeros(200), (50, 200), 1e9).mean() == pytest.approx(256.0, rel=0.15)


def followed(max_tokens: Histogram | None) -> Occupancy:
    made_up, occupancy, before = Engine(), Occupancy(ForecastOptions()), None
    for _ in range(5):
        reading = replace(made_up.tick([Request(100, 5000)]), max_tokens_params=max_tokens)
        occupancy.observe(before, reading, LINE)
        before = reading
    return occupancy
