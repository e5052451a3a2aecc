"""Clocks that jump and a process that stands still: every source together, in virtual time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.soak import Soak
from bench.soak_world import World
from exporter.pace import Pace, SteadyClock
from exporter.snapshot import EngineStatus, Snapshot

HOUR = 3600.0


def wall(seconds: float) -> Callable[[World], None]:
    """The calendar is set."""

    def jump(world: World) -> None:
        world.wall_jump += seconds

    return jump


def monotonic(seconds: float) -> Callable[[World], None]:
    """The monotonic clock jumps, as it can on a machine that is restored or moved."""

    def jump(world: World) -> None:
        world.jump += seconds

    return jump


def suspended(world: World) -> None:
    """Ten minutes pass in which nothing of ours runs."""
    world.now += 600
    world.pass_time()


def llama(snapshot: Snapshot) -> EngineStatus:
    """The engine whose pool is known."""
    return next(status for status in snapshot.engines if status.reading.model_name == "llama")


JUMPS = {
    "wall clock +1 h": wall(HOUR),
    "wall clock -1 h": wall(-HOUR),
    "monotonic +1 h": monotonic(HOUR),
    "monotonic -1 h": monotonic(-HOUR),
    "suspended for 10 min": suspended,
}


@pytest.mark.parametrize("name", JUMPS)
def test_after_a_jump_everything_is_there_within_two_ticks(tmp_path: Path, name: str) -> None:
    """No source is down, no counter is lost, the grid is kept, and the forecast is back once it has warmed up."""
    soak = Soak(tmp_path)
    soak.run(20)
    JUMPS[name](soak.world)
    soak.run(2)
    latest = soak.monitor.latest
    assert latest is not None
    assert {health.source for health in latest.sources if health.up} == {"vllm", "model_config", "nvml", "host"}
    assert llama(latest).headroom.tokens
    assert latest.devices
    assert latest.wall_time == pytest.approx(soak.world.calendar(), abs=2)
    soak.run(8)
    assert soak.monitor.latest is not None
    assert llama(soak.monitor.latest).assessment.probability
    assert soak.faults == []
    assert 25 <= soak.ticks <= 32
    soak.monitor.close()


@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_what_is_tried_again_is_not_put_off_by_a_jump(tmp_path: Path, seconds: float) -> None:
    """A driver that was away as the clock jumped is found again as soon as it would have been."""
    soak = Soak(tmp_path)
    soak.run(10)
    soak.world.driver_lost = True
    soak.run(2)
    soak.world.jump += seconds
    soak.world.driver_lost = False
    soak.run(5)
    latest = soak.monitor.latest
    assert latest is not None
    assert latest.devices
    soak.monitor.close()


def test_a_steady_clock_forgives_what_it_cannot_have_lived() -> None:
    """It goes on from where it was over a jump back, and follows a jump forward."""
    now = [100.0]
    clock = SteadyClock(lambda: now[0])
    told = []
    for moment in (101.0, 41.0, 42.0, 3642.0):
        now[0] = moment
        told.append(clock())
    assert told == [101.0, 101.0, 102.0, 3702.0]


def test_a_late_tick_is_not_made_up_for() -> None:
    """The next one is due on the grid that the first one set, however late the last one was."""
    pace = Pace(1.0, 10.0)
    assert pace.seconds(10.2) == pytest.approx(0.8)
    assert pace.seconds(11.0) == pytest.approx(1.0)
    assert pace.seconds(14.5) == pytest.approx(0.5)
    assert pace.due == 15.0
