"""How many engines share what the forecast may cost."""

import gc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.forecast.blocks import BlockLine
from exporter.forecast.effort import FEWEST_ROLLOUTS, ROLLOUTS, ROLLOUTS_OF_ALL, Effort
from exporter.forecast.forecaster import EngineForecaster
from exporter.forecast.occupancy import Occupancy
from exporter.forecast.projection import Projection
from exporter.forecast.rollout import Load
from exporter.reading import EngineReading
from tests.forecast.engines import Engine, Request, pool


@given(st.integers(1, 256))
def test_the_roll_outs_of_a_second_are_bounded(engines: int) -> None:
    """All engines together are never rolled more often than eight that have all they want."""
    each = Effort.among(engines)
    assert FEWEST_ROLLOUTS <= each.rollouts <= ROLLOUTS
    assert engines * each.rollouts / each.reroll_seconds <= ROLLOUTS_OF_ALL / 2
    assert 0 <= Effort.among(engines, engines - 1).phase < 1


def test_few_engines_have_all_they_want() -> None:
    """Up to eight engines are forecast as one alone is."""
    assert {(Effort.among(n).rollouts, Effort.among(n).reroll_seconds) for n in range(1, 9)} == {(64, 2.0)}


def test_engines_that_come_together_are_rolled_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight among 64 that are seen first at one reading, at most a few are rolled at any reading after the first."""
    rolled: Counter[float] = Counter()
    project = Occupancy.project

    def counting(self: Occupancy, now: EngineReading, pool: BlockLine, rollouts: int) -> Projection | None:
        rolled[now.time] += 1
        return project(self, now, pool, rollouts)

    monkeypatch.setattr(Occupancy, "project", counting)
    forecasters = [EngineForecaster() for _ in range(8)]
    engine = Engine()
    for second in range(60):
        reading = engine.tick([Request(200, 200)] if second % 2 == 0 else [])
        for number, forecaster in enumerate(forecasters):
            forecaster.observe(reading, pool(), Effort.among(64, 8 * number))
    times = sorted(rolled)
    assert times[1] <= times[0] + 2, "the first roll-outs are spread, too"
    assert max(rolled.values()) <= 2
    assert sum(rolled.values()) >= 8 * 2, "and every one of them is rolled again and again"


def test_what_was_rolled_is_let_go_of() -> None:
    """The futures of a load are held no longer than the levers need them, and the levers stay."""
    forecaster, engine = EngineForecaster(), Engine()
    for second in range(30):
        said = forecaster.observe(engine.tick([Request(200, 200)] if second % 2 == 0 else []), pool())
    assert "replicas=2" in said.levers
    held = [thing for thing in gc.get_objects() if isinstance(thing, Load)]
    assert held == []
