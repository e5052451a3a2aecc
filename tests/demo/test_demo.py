"""The main job end to end in engine time: embedded engine, page over HTTP, exporter."""

import time
from collections.abc import Iterator

import pytest

from exporter.assembly import build_monitor
from exporter.demo.demo import Demo
from exporter.demo.engine import DemoEngine
from exporter.demo.gpu import DemoGpus
from exporter.demo.server import DemoServer
from exporter.demo.traffic import SCENARIOS
from exporter.memory import DeviceWatch
from exporter.settings import load
from exporter.snapshot import EngineStatus, Snapshot
from exporter.sources.gpus import GpuSource


def watched(engine: DemoEngine, seconds: int) -> Iterator[Snapshot]:
    """The exporter's snapshot at each second of engine time."""
    with DemoServer([engine], speed=0) as server:
        settings = load({"vllm_url": server.url, "gpus": "none", "host": "none"})
        devices = DeviceWatch(GpuSource(DemoGpus([engine.config.limits.num_gpu_blocks], pid=1)))
        monitor = build_monitor(settings, clock=server.now, devices=devices)
        for _ in range(seconds):
            server.advance(1.0)
            yield monitor.tick()
        monitor.close()


def only(snapshot: Snapshot) -> EngineStatus:
    """Its one engine."""
    (status,) = snapshot.engines
    return status


def test_calm_stays_quiet() -> None:
    """Over two minutes of calm traffic the alarm never goes on, and the engine is ok whenever it is assessed."""
    engine = DemoEngine(arrivals=SCENARIOS["calm"].requests(seed=0))
    assessed = [only(snapshot).assessment for snapshot in watched(engine, 120)]
    assert not any(assessment.predicted for assessment in assessed)
    assert {assessment.state for assessment in assessed[60:]} <= {"ok", "watch"}


def test_what_is_exported_is_what_the_engine_holds() -> None:
    """At every second used blocks, free tokens, load and preemptions are the engine's own."""
    engine = DemoEngine(arrivals=SCENARIOS["burst"].requests(seed=0))
    for snapshot in watched(engine, 70):
        status = only(snapshot)
        assert status.used_blocks == pytest.approx(engine.usage * 2587)
        assert status.headroom.tokens == pytest.approx((1 - engine.usage) * 2587 * 16)
        assert (status.reading.running, status.reading.waiting) == (engine.running, engine.waiting)
        assert status.reading.preemptions == engine.tally.preemptions
    assert engine.tally.preemptions > 0


def test_the_arithmetic_agrees_with_the_engine() -> None:
    """The model's config.json is found through the server, and its pool is the engine's to the token."""
    (snapshot,) = watched(DemoEngine(), 1)
    capacity = only(snapshot).capacity
    assert (capacity.tokens, capacity.tokens_rule) == (41_408, "reported")
    assert capacity.bytes_per_token == 131_072
    assert capacity.calibration_ratio == pytest.approx(1.0)
    assert [device.reading.name for device in snapshot.devices] == ["NVIDIA GeForce RTX 4090 (embedded)"]


def test_every_source_of_the_demo_is_up() -> None:
    """Started as the command starts it, nothing is down and nothing is missing."""
    with Demo(SCENARIOS["calm"], speed=20, listen="127.0.0.1:0") as demo:
        while (snapshot := demo.latest) is None or snapshot.ticks < 3:
            time.sleep(0.01)
        assert demo.url.startswith("http://127.0.0.1:")
    assert {health.source: health.message for health in snapshot.sources if not health.up} == {}
    assert snapshot.devices
