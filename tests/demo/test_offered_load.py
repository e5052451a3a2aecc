"""What the exporter says of long-run load beside an engine whose load is known."""

import pytest

from exporter.assembly import build_monitor
from exporter.demo.engine import DemoEngine
from exporter.demo.server import DemoServer
from exporter.demo.traffic import SCENARIOS
from exporter.settings import load


@pytest.mark.parametrize(("scenario", "over"), [("calm", False), ("overload", True)])
def test_offered_load_tells_a_load_that_keeps_up_from_one_that_does_not(scenario: str, over: bool) -> None:
    """After four minutes the ratio is above 1 where the queue grows without end, and below 0.8 where nothing waits."""
    engine = DemoEngine(arrivals=SCENARIOS[scenario].requests(0))
    now = 0.0
    with DemoServer((engine,), speed=0) as server:
        settings = load({"vllm_url": server.url, "gpus": "none", "host": "none"})
        monitor = build_monitor(settings, lambda: now)
        for second in range(240):
            now = float(second)
            engine.advance(now)
            snapshot = monitor.tick()
        monitor.close()
    (status,) = snapshot.engines
    ratio = status.assessment.offered_load_ratio
    assert ratio is not None
    assert ratio > 1.0 if over else ratio < 0.8
    assert (status.reading.waiting or 0.0) > 50 if over else not status.reading.waiting
