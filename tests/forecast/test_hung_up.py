"""Clients that hang up: vLLM never counts their requests as finished, and what they generated stays on its counters."""

import random
from dataclasses import replace

import pytest

from exporter.forecast.blocks import BlockLine
from exporter.forecast.lengths import Ended
from exporter.forecast.running import RunningTracker
from tests.forecast.engines import Engine, Request

LINE = BlockLine(20_000.0, 1 / 16, 0.5)


def served(seconds: int, hang_up: float, tracker: RunningTracker | None = None, seed: int = 0) -> Engine:
    """An engine after so many seconds, at each of which every client has hung up with probability `hang_up`."""
    engine, chance, before = Engine(20_000), random.Random(seed), None
    for _ in range(seconds):
        engine.running = [request for request in engine.running if chance.random() >= hang_up]
        arriving = [Request(chance.randint(50, 500), chance.randint(100, 900)) for _ in range(chance.randint(0, 2))]
        reading = replace(engine.tick(arriving), prompt_tokens_cached=0.0)
        if tracker is not None:
            tracker.observe(before, reading, Ended.between(before, reading), LINE, 275.0)
        before = reading
    return engine


@pytest.mark.parametrize("seed", range(4))
def test_requests_are_as_old_as_they_are_however_many_have_hung_up(seed: int) -> None:
    """After half an hour in which one in three hung up, the live requests' tokens are known to a quarter."""
    tracker = RunningTracker()
    engine = served(1800, 0.02, tracker, seed)
    lost = engine.totals["generated"] - sum(engine.outputs) - sum(request.age for request in engine.running)
    ages = sum(request.age for request in engine.running)
    assert lost > 5 * ages, "many have hung up"
    assert len(tracker.state.age) == len(engine.running)
    assert tracker.state.age.sum() == pytest.approx(ages, rel=0.25)


@pytest.mark.parametrize("seed", range(4))
def test_a_start_beside_a_server_whose_clients_have_hung_up(seed: int) -> None:
    """The first reading already tells the live requests' tokens to a quarter: the pool holds no more than theirs."""
    engine = served(1800, 0.02, seed=seed)
    tracker = RunningTracker()
    reading = replace(engine.reading(), prompt_tokens_cached=0.0)
    tracker.observe(None, reading, Ended.between(None, reading), LINE, 275.0)
    assert tracker.state.age.sum() == pytest.approx(sum(request.age for request in engine.running), rel=0.25)
