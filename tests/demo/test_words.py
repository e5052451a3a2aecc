"""The demo's plain output."""

from dataclasses import replace

from exporter.demo.words import line
from exporter.reading import EngineReading
from exporter.snapshot import Capacity, EngineStatus, Headroom, Snapshot
from tests.support.snapshots import full_engine


def at(second: float, status: EngineStatus) -> str:
    """The line of an engine at a second."""
    return line(Snapshot(time=second, wall_time=0.0, duration_seconds=0.0, ticks=1, engines=(status,)), status)


def test_a_line_has_every_figure() -> None:
    """The line names time, state, usage, headroom, probability, time to exhaustion, load, preemptions and driver."""
    text = at(83.2, full_engine())
    for part in (
        "t=    83 s",
        "predicted",
        "42 %",
        "76,032 tokens",
        "93 requests",
        "P60 0.70",
        "full in 40 s",
        "running 12, waiting 3",
        "preempted 7",
        "driver burst_concurrency",
    ):
        assert part in text
    assert "\n" not in text


def test_what_is_not_known_is_a_dash() -> None:
    """An engine of which nothing is known gives a line of dashes: no figure is made up."""
    assessment = replace(
        full_engine().assessment, state="unknown", probability={}, driver=None, time_to_exhaustion_seconds=None
    )
    text = at(1.0, EngineStatus("", EngineReading(0.0, "m", "0"), Capacity(), Headroom(), None, assessment))
    for part in ("unknown", "P60 –", "no end in sight", "running –, waiting –", "driver –"):
        assert part in text
