"""Requests that share a prefix hold it once, and so do those that will come."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from exporter.demo.engine import DemoEngine, EngineConfig
from exporter.demo.page import PageCollector
from exporter.demo.scheduler import Limits, Request
from exporter.forecast.assessment import Assessment, PoolView
from exporter.forecast.forecaster import EngineForecaster
from exporter.kv.demand import GroupDemand, RequestDemand
from exporter.sources.engines import assemble
from exporter.sources.page import parse_page

PREFIX, OWN, OUTPUT, BLOCKS = 1280, 40, 250, 500


def assessments(prefix: str | None) -> tuple[list[Assessment], DemoEngine]:
    """Two minutes beside the embedded engine: a request every 0.7 s, most of each prompt `prefix`."""
    requests = [
        Request(0.7 * n, PREFIX + OWN, OUTPUT, prefix=prefix, prefix_tokens=PREFIX if prefix else 0) for n in range(170)
    ]
    engine = DemoEngine(EngineConfig(limits=Limits(num_gpu_blocks=BLOCKS, block_size=16)), requests)
    pool = PoolView(BLOCKS - 1, RequestDemand((GroupDemand(16),)))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PageCollector([engine], created=0.0))
    forecaster = EngineForecaster()
    seen = []
    for second in range(1, 121):
        engine.advance(float(second))
        (reading,) = assemble(parse_page(generate_latest(registry).decode()), time=float(second))
        seen.append(forecaster.observe(reading, pool))
    return seen, engine


def test_a_shared_prefix_is_not_expected_to_be_held_again() -> None:
    """Requests that would fill the pool three times over without sharing give no alarm when they share."""
    seen, engine = assessments("system")
    assert engine.preempted == 0
    whole = (PREFIX + OWN + OUTPUT / 2) / 16 * engine.running
    assert whole > 1.5 * BLOCKS
    assert not any(one.predicted for one in seen)
    assert seen[-1].offered_load_ratio == pytest.approx(0.3, abs=0.3)


def test_prompts_that_share_nothing_are_expected_whole() -> None:
    """The same requests without a common prefix do not fit, and the alarm and the offered load say so."""
    seen, engine = assessments(None)
    assert engine.waiting > 10
    assert any(one.predicted for one in seen)
    assert (seen[-1].offered_load_ratio or 0) > 1
