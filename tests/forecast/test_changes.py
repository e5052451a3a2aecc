"""A load that changes: arrivals that grow, answers that no longer end when they used to, a pool at risk."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.forecast.arrivals import HALF_LIVES, TREND_MOST, Arrivals
from exporter.forecast.blocks import BlockLine
from exporter.forecast.endings import LEAST, Endings
from exporter.forecast.forecaster import EngineForecaster
from exporter.forecast.lengths import LengthSample
from exporter.forecast.occupancy import Occupancy
from exporter.forecast.projection import Projection
from exporter.reading import EngineReading
from tests.forecast.engines import Engine, Request, pool


def arrivals(growth: float, seconds: int = 200) -> Arrivals:
    """Ten requests a second at the end of `seconds` in which they grew as exp(`growth` · t)."""
    seen = Arrivals()
    for second in range(seconds):
        seen.observe(1.0, 10.0 * float(np.exp(growth * (second - seconds))))
    return seen


def test_a_steady_rate_has_no_trend() -> None:
    """Where the last quarter of a minute is as the last minute, the trend is that rate."""
    assert arrivals(0.0).trend() == pytest.approx(10.0, rel=1e-6)


@pytest.mark.parametrize("doubling", [20.0, 40.0, 80.0])
def test_a_rate_that_doubles_is_told_ahead(doubling: float) -> None:
    """The two means tell the growth: the trend is the rate ten seconds ahead, where every mean lags behind."""
    growth = float(np.log(2.0)) / doubling
    seen = arrivals(growth, seconds=600)
    assert seen.trend() == pytest.approx(10.0 * np.exp(10.0 * growth), rel=0.03)
    assert seen.trend() > 10.0 > max(seen.rates())


def test_a_rate_that_falls_is_told_ahead_too() -> None:
    """Every mean lags behind a fall as well, and the trend lies below all of them."""
    seen = arrivals(-0.005, seconds=600)
    assert seen.trend() == pytest.approx(10.0 * np.exp(-0.05), rel=0.05)
    assert seen.trend() < 10.0 < min(seen.rates())


@settings(deadline=None)
@given(st.lists(st.floats(0.0, 500.0), min_size=1, max_size=200))
def test_a_trend_is_bounded(counts: list[float]) -> None:
    """Whatever came, the trend is at most three times the rate of the last quarter of a minute, and never below 0."""
    seen = Arrivals()
    for count in counts:
        seen.observe(1.0, count)
    assert 0.0 <= seen.trend() <= TREND_MOST * seen.rates()[HALF_LIVES.index(15.0)] + 1e-9


def ended(lengths: float = 300.0) -> LengthSample:
    """A thousand requests, exponentially long."""
    sample = LengthSample()
    sample.add(np.random.default_rng(0).exponential(lengths, 1000))
    return sample


def follow(endings: Endings, per_second: float, seconds: int = 60) -> None:
    """Thirty requests of all ages generate ten tokens a second each, and so many end."""
    ages = np.linspace(0.0, 600.0, 30)
    for second in range(seconds):
        seen = int((second + 1) * per_second) - int(second * per_second)
        endings.observe(1.0, seen, ages, 10.0, ended())


def test_ends_as_expected_change_nothing() -> None:
    """Of thirty requests with a mean of 300 tokens, one ends for every ten tokens of each: as it always was."""
    endings = Endings()
    follow(endings, 1.0)
    assert endings.ratio == 1.0


def test_requests_that_do_not_end_are_expected_to_last() -> None:
    """Where a third of the expected ends is seen, the hazard falls, and rises again with the ends."""
    endings = Endings()
    follow(endings, 1 / 3, seconds=180)
    least = endings.ratio
    assert LEAST <= least < 0.75
    follow(endings, 1.2, seconds=300)
    assert endings.ratio > 0.95


def test_without_lengths_nothing_is_expected() -> None:
    """Before any request has ended there is nothing to compare with."""
    endings = Endings()
    endings.observe(1.0, 0, np.full(30, 1e6), 1e4, LengthSample())
    assert endings.ratio == 1.0


@settings(deadline=None)
@given(st.lists(st.floats(1, 5000), min_size=1, max_size=50), st.lists(st.floats(0, 1e6), min_size=2, max_size=50))
def test_the_hazard_never_falls_with_age(lengths: list[float], ages: list[float]) -> None:
    """It is cumulated, from 0 on, beyond the longest as well."""
    sample = LengthSample()
    sample.add(np.array(lengths))
    hazard = sample.hazard(np.sort(np.array(ages)))
    assert (np.diff(hazard) >= 0.0).all()
    assert (hazard >= 0.0).all()


def test_a_pool_at_risk_is_rolled_at_every_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a preemption is likely no second is lost; while nothing is in sight every other one is enough, or fewer."""
    rolled: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    project = Occupancy.project

    def counting(self: Occupancy, now: EngineReading, pool: BlockLine, rollouts: int) -> Projection | None:
        rolled[state] += 1
        return project(self, now, pool, rollouts)

    monkeypatch.setattr(Occupancy, "project", counting)
    forecaster, engine = EngineForecaster(), Engine()
    state = "calm"
    for second in range(200):
        many = 1 if second < 100 else 12
        said = forecaster.observe(engine.tick([Request(200, 200)] * many if second % 2 == 0 else []), pool())
        seconds[state] += 1
        state = "risk" if said.probability.get(60.0, 0.0) > 0.2 else "calm"
    assert seconds["risk"] > 10
    assert rolled["risk"] == seconds["risk"]
    assert rolled["calm"] < 0.7 * seconds["calm"]
